// Vectors of floats.
//
// Functions are local to the source file that includes them and are inlined into CLONED functions, so
// that they are compiled for the processor of each clone.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

// A vector has as many floats as a register of the processor. GCC would compute wider ones in memory, several
// times as slowly, so there is one library for processors with AVX-512 and one for all others (setup.py).
#ifdef TABICL_WIDE
#define CLONED __attribute__((flatten))
#elif defined(__x86_64__) && defined(__gnu_linux__)
// The dynamic loader picks the clone that fits the processor.
#define CLONED __attribute__((target_clones("arch=x86-64-v3", "default"), flatten))
#else
#define CLONED
#endif
#define EACH(n) _Pragma("GCC unroll 8") for (int n = 0; n < N; ++n)
#define INLINE static inline __attribute__((always_inline))

namespace {

#ifdef TABICL_WIDE
constexpr bool MANY_REGISTERS = true;  // AVX-512 has 32 vector registers, AVX2 has 16
#else
constexpr bool MANY_REGISTERS = false;
#endif
constexpr int WIDTH = MANY_REGISTERS ? 16 : 8;
typedef float vec __attribute__((vector_size(4 * WIDTH)));
typedef float eight __attribute__((vector_size(32)));
typedef float four __attribute__((vector_size(16)));

// A vector at any address of an array of floats. (memcpy would take the address of the vector, which then
// would not stay in a register.)
typedef float loose __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

struct alignas(4 * WIDTH) Line {
    vec x;
};

// Combines the halves of a vector by `join`, then the halves of the result, until four numbers are left.
template <typename Join>
INLINE four quartered(vec x, Join join) {
    union {
        vec whole;
        eight parts[WIDTH / 8];
    } a = {x};
    const eight joined = WIDTH == 16 ? join(a.parts[0], a.parts[WIDTH / 8 - 1]) : a.parts[0];
    union {
        eight whole;
        four parts[2];
    } b = {joined};
    return join(b.parts[0], b.parts[1]);
}

INLINE float sum(vec x) {
    const four c = quartered(x, [](auto a, auto b) { return a + b; });
    return (c[0] + c[2]) + (c[1] + c[3]);
}

}  // namespace
