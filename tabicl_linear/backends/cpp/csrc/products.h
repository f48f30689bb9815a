// Products of small matrices: the matrices fit into the cache, tiles of the result into registers.

#pragma once

#include <type_traits>

#include "vectors.h"

namespace {

// A left factor: element (i, p) is data[i * row + p * column], so a transposed matrix costs no copy.
struct Left {
    const float *data;
    int64_t row, column;
};

#if defined(__clang__)
#define MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t order __attribute__((vector_size(sizeof(eight))));
#define MIX(a, b, ...) __builtin_shuffle(a, b, order{__VA_ARGS__})
#endif
#define ROWS(m) _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m)

// total += left[:, first:end] right[first:end]; rows of `right` are `stride` elements apart.
template <int M, int N>
INLINE void add_product(vec (&total)[M][N], const Left &left, const float *right, int64_t stride,
                        int64_t first, int64_t end) {
    for (int64_t p = first; p < end; ++p) {
        vec row[N];
        EACH(n) row[n] = *reinterpret_cast<const loose *>(right + p * stride + n * WIDTH);
        ROWS(m) {
            const float factor = left.data[m * left.row + p * left.column];
            EACH(n) total[m][n] += factor * row[n];
        }
    }
}

template <int M, int N>
INLINE void load_tile(vec (&to)[M][N], const float *from, int64_t stride) {
    ROWS(m) EACH(n) to[m][n] = *reinterpret_cast<const loose *>(from + m * stride + n * WIDTH);
}

template <int M, int N>
INLINE void store_tile(float *to, int64_t stride, const vec (&from)[M][N]) {
    ROWS(m) EACH(n) *reinterpret_cast<loose *>(to + m * stride + n * WIDTH) = from[m][n];
}

// A lambda for `each_tile`; its body begins with COLUMNS, which defines N.
#define TILE [&](int64_t i, int64_t j, auto vectors) __attribute__((always_inline))
#define COLUMNS constexpr int N = decltype(vectors)::value

// Calls work(row, column, N) for tiles of M rows and N vectors that cover a matrix; its number of rows is a
// multiple of M, that of columns one of WIDTH. The last argument has the value N as a constant of its type.
template <int M, int N, typename Work>
INLINE void each_tile(int64_t rows, int64_t columns, const Work &work) {
    int64_t j = 0;
    for (; j + N * WIDTH <= columns; j += N * WIDTH)
        for (int64_t i = 0; i < rows; i += M) work(i, j, std::integral_constant<int, N>{});
    for (; j < columns; j += WIDTH)
        for (int64_t i = 0; i < rows; i += M) work(i, j, std::integral_constant<int, 1>{});
}

// to = from^T, for numbers of rows and columns of `from` that are multiples of 8.
INLINE void transpose(float *to, int64_t to_stride, const float *from, int64_t from_stride,
                      int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; i += 8)
        for (int64_t j = 0; j < columns; j += 8) {
            eight x[8], y[8];
            _Pragma("GCC unroll 8") for (int n = 0; n < 8; ++n)
                std::memcpy(&x[n], from + (i + n) * from_stride + j, sizeof(eight));
            // Interleaving rows n and n + 4 three times transposes 8 x 8 numbers.
#define MERGE(from, to)                                                     \
    _Pragma("GCC unroll 8") for (int n = 0; n < 4; ++n) {                   \
        to[2 * n] = MIX(from[n], from[n + 4], 0, 8, 1, 9, 2, 10, 3, 11);    \
        to[2 * n + 1] = MIX(from[n], from[n + 4], 4, 12, 5, 13, 6, 14, 7, 15); \
    }
            MERGE(x, y)
            MERGE(y, x)
            MERGE(x, y)
#undef MERGE
            _Pragma("GCC unroll 8") for (int n = 0; n < 8; ++n)
                std::memcpy(to + (j + n) * to_stride + i, &y[n], sizeof(eight));
        }
}

}  // namespace
