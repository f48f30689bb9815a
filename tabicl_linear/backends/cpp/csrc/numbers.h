// Loads and stores in float and bfloat16, exponential, sigmoid and silu.

#pragma once

#include "vectors.h"

namespace {

typedef uint32_t words __attribute__((vector_size(4 * WIDTH)));
typedef uint16_t shorts __attribute__((vector_size(2 * WIDTH)));
typedef uint16_t loose_shorts __attribute__((vector_size(2 * WIDTH), aligned(2), may_alias));

struct bfloat16 {
    uint16_t bits;
};

// Loads up to WIDTH numbers; the remaining lanes are zero.
INLINE vec load(const float *from, int64_t count) {
    if (count >= WIDTH) return *reinterpret_cast<const loose *>(from);
    vec x = {};
    std::memcpy(&x, from, count * sizeof(float));
    return x;
}

INLINE vec load(const bfloat16 *from, int64_t count) {
    if (count >= WIDTH)
        return (vec)(__builtin_convertvector(*reinterpret_cast<const loose_shorts *>(from), words) << 16);
    shorts x = {};
    std::memcpy(&x, from, count * sizeof(bfloat16));
    return (vec)(__builtin_convertvector(x, words) << 16);
}

INLINE void store(float *to, vec x, int64_t count) {
    if (count >= WIDTH) {
        *reinterpret_cast<loose *>(to) = x;
        return;
    }
    const vec part = x;
    std::memcpy(to, &part, count * sizeof(float));
}

INLINE void store(bfloat16 *to, vec x, int64_t count) {
    // Rounds to nearest, ties to even; NaN stays NaN.
    const words bits = (words)x, rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const words chosen = (bits & 0x7fffffff) > 0x7f800000 ? words{} + 0x7fc0 : rounded;
    const shorts result = __builtin_convertvector(chosen, shorts);
    if (count >= WIDTH) {
        *reinterpret_cast<loose_shorts *>(to) = result;
        return;
    }
    const shorts part = result;
    std::memcpy(to, &part, count * sizeof(bfloat16));
}

// exp(x) = 2^n e^r for -87 <= x <= 88.7, with |r| <= ln(2) / 2 and e^r by its Taylor series; the
// relative error is at most 2e-7. The result for NaN is arbitrary.
INLINE vec exponential(vec x) {
    // Adding 1.5 * 2^23 rounds to a whole number, which is then in the low bits.
    const vec shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    const vec r = x - n * 0.693145752f - n * 1.42860677e-6f;
    vec e = r * (1.0f / 5040) + 1.0f / 720;
    e = e * r + 1.0f / 120;
    e = e * r + 1.0f / 24;
    e = e * r + 1.0f / 6;
    e = e * r + 0.5f;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    return (vec)((words)e + ((words)shifted << 23));
}

// 1 / (1 + exp(-x)); exactly zero where exp(-x) exceeds the range of float, because callers multiply
// it by x, which may be as large as that. The result for NaN is arbitrary: the product is NaN anyway.
INLINE vec sigmoid(vec x) {
    const vec s = 1.0f / (1.0f + exponential(x > 87.0f ? vec{} - 87.0f : -x));
    return x < -88.7f ? vec{} : s;
}

INLINE vec silu(vec x) { return x * sigmoid(x); }

}  // namespace
