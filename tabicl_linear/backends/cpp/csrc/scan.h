// Matrix states token by token, forward and backward (backends/cpp/rules.py is the way in).
//
//     S_t = S~ + u_t k_t^T,   S~ = S_{t-1} Diag(a_t),   o_t = S_t q_t,
//     u_t = b_t (v_t - S~ k_t) for the (gated) delta rule,   u_t = v_t for additive memories.
//
// One state is small enough for the innermost cache, so this order of work, with no more arithmetic
// than the definition, is faster on a CPU than the chunked form with its triangular solves. Streams
// (one head of one task) are independent and are shared out among threads. Key and value dimensions
// are padded to whole vectors with zeros, which write and read nothing.

#pragma once

#include "vectors.h"

extern "C" {

// Elements [batch, token, head, channel] with channel stride 1; strides in elements.
struct View {
    const float *data;
    int64_t batch, token, head;
};

struct Problem {
    int64_t batch, tokens, heads, keys, values;
    int64_t gates;  // channels of alpha: 0 without decay, 1 or `keys`
    View q, k, v;   // q.data is null where nothing is read
    View beta;      // null for additive memories
    View alpha;
    const float *initial;  // [batch, heads, values, keys]
    int64_t threads;
};

}  // extern "C"

namespace {

constexpr int MAX_VECTORS = 8;

INLINE const float *at(const View &view, int64_t stream, int64_t heads, int64_t token) {
    return view.data + (stream / heads) * view.batch + (stream % heads) * view.head +
           token * view.token;
}

// Reads `count` floats into N vectors with zeros behind them. Arrays of `vec` whose address nobody
// takes stay in registers, so what is copied by bytes goes through a buffer.
template <int N>
INLINE void load(vec (&to)[N], const float *from, int64_t count) {
    Line buffer[N] = {};
    std::memcpy(buffer, from, count * sizeof(float));
    EACH(n) to[n] = buffer[n].x;
}

template <int N>
INLINE void store(float *to, const vec (&from)[N], int64_t count) {
    Line buffer[N];
    EACH(n) buffer[n].x = from[n];
    std::memcpy(to, buffer, count * sizeof(float));
}

// The decay of every key channel of a token.
template <int N>
INLINE void load_decay(vec (&to)[N], const Problem &p, int64_t stream, int64_t token) {
    const float *alpha = at(p.alpha, stream, p.heads, token);
    if (p.gates > 1) return load(to, alpha, p.keys);
    EACH(n) to[n] = vec{} + *alpha;
}

}  // namespace
