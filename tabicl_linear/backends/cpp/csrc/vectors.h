// Vectors of floats.
//
// Functions are local to the source file that includes them and are inlined into CLONED functions, so
// that they are compiled for the processor of each clone.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__x86_64__) && defined(__gnu_linux__)
// One library serves every x86-64 processor: the dynamic loader picks the clone that fits it.
#define CLONED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), flatten))
#else
#define CLONED
#endif
#define EACH(n) _Pragma("GCC unroll 8") for (int n = 0; n < N; ++n)
#define INLINE static inline __attribute__((always_inline))

namespace {

constexpr int WIDTH = 16;
typedef float vec __attribute__((vector_size(4 * WIDTH)));
typedef float half __attribute__((vector_size(2 * WIDTH)));
typedef float quarter __attribute__((vector_size(WIDTH)));

// A vector anywhere in an array of floats. (With memcpy, the address of what is copied would be taken, and it
// would not stay in registers.)
typedef float loose __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

struct alignas(64) Line {
    vec x;
};

// Joins the halves of a vector, and then the halves of the result.
template <typename Join>
INLINE quarter quartered(vec x, Join join) {
    union {
        vec whole;
        half parts[2];
    } a = {x};
    union {
        half whole;
        quarter parts[2];
    } b = {join(a.parts[0], a.parts[1])};
    return join(b.parts[0], b.parts[1]);
}

INLINE float sum(vec x) {
    const quarter c = quartered(x, [](auto a, auto b) { return a + b; });
    return (c[0] + c[2]) + (c[1] + c[3]);
}

}  // namespace
