// Triangular matrices in float and double: Cholesky factors, and triangular systems that are solved for a panel
// of a few columns at a time, in tiles that fit into registers.

#pragma once

#include <cmath>
#include <memory>
#include <type_traits>

#include "vectors.h"

namespace {

typedef double vec_double __attribute__((vector_size(4 * WIDTH)));
template <typename T>
using Vec = std::conditional_t<std::is_same_v<T, double>, vec_double, vec>;
template <typename T>
constexpr int64_t LANES = sizeof(vec) / sizeof(T);

// Rows and vectors of a tile that fits into registers.
constexpr int TILE_ROWS = MANY_REGISTERS ? 8 : 4, TILE_VECTORS = MANY_REGISTERS ? 3 : 2;

#define ROWS(m) _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m)

struct Free {
    void operator()(void *memory) const { ::operator delete(memory, std::align_val_t{64}); }
};
template <typename T>
using Room = std::unique_ptr<T[], Free>;

template <typename T>
Room<T> room(int64_t count) {
    return Room<T>(static_cast<T *>(::operator new(count * sizeof(T), std::align_val_t{64})));
}

// A lower triangular L in stripes of M rows: [stripe][column][M]. A stripe ends with its diagonal block, and the
// diagonal holds reciprocals. Rows beyond the last are those of the identity.
template <typename T, int M>
struct Stripes {
    int64_t count;
    Room<T> data;

    explicit Stripes(int64_t size)
        : count((size + M - 1) / M), data(room<T>(count * (count + 1) / 2 * M * M)) {}

    T *stripe(int64_t s) const { return data.get() + s * (s + 1) / 2 * M * M; }
};

// total -= F' P, for F with M numbers in a row, rows `step` apart, and P with N vectors in a row.
template <typename T, int M, int N>
INLINE void subtract(Vec<T> (&total)[M][N], const T *factor, int64_t step, const Vec<T> *panel,
                     int64_t rows) {
    for (int64_t p = 0; p < rows; ++p) {
        Vec<T> row[N];
        EACH(n) row[n] = panel[p * N + n];
        ROWS(m) {
            const T from = factor[p * step + m];
            EACH(n) total[m][n] -= from * row[n];
        }
    }
}

// Replaces a panel P by L^-1 P, stripe by stripe from `first` to `last`; above `first`, P must be zero.
template <typename T, int M, int N>
INLINE void solve_stripes(const Stripes<T, M> &stripes, Vec<T> *panel, int64_t first, int64_t last) {
    for (int64_t s = first; s < last; ++s) {
        const T *factor = stripes.stripe(s);
        Vec<T> *own = panel + s * M * N, total[M][N];
        ROWS(m) EACH(n) total[m][n] = own[m * N + n];
        subtract<T, M, N>(total, factor + first * M * M, M, panel + first * M * N, (s - first) * M);
        const T *corner = factor + s * M * M;
        ROWS(l) {
            const T reciprocal = corner[l * M + l];
            EACH(n) total[l][n] *= reciprocal;
            _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m) if (m > l) {
                const T from = corner[l * M + m];
                EACH(n) total[m][n] -= from * total[l][n];
            }
        }
        ROWS(m) EACH(n) own[m * N + n] = total[m][n];
    }
}

// Computes the Cholesky factor of G + c I; returns false if that is not positive definite. A panel holds the next
// rows of L as its columns; solving it with the rows of L before gives their first part.
template <int M, int N>
INLINE bool factorise(const double *gram, double added, int64_t size, const Stripes<double, M> &stripes,
                      double *panel) {
    constexpr int64_t wide = N * LANES<double>;
    Vec<double> *vectors = reinterpret_cast<Vec<double> *>(panel);
    for (int64_t first = 0; first < size; first += wide) {
        const int64_t last = std::min(first / M + wide / M, stripes.count);
        for (int64_t p = 0; p < last * M; ++p)
            for (int64_t c = 0; c < wide; ++c) {
                const bool inside = p < size && first + c < size;
                const double entry = inside ? gram[p * size + first + c] : 0.0;
                panel[p * wide + c] = p != first + c ? entry : inside ? entry + added : 1.0;
            }
        solve_stripes<double, M, N>(stripes, vectors, 0, first / M);
        for (int64_t s = first / M; s < last; ++s) {
            const int64_t row = s * M, column = row - first;
            Vec<double> *own = vectors + row * N, total[M][N];
            ROWS(m) EACH(n) total[m][n] = own[m * N + n];
            subtract<double, M, N>(total, panel + column, wide, vectors, row);
            ROWS(l) {
                // The pivot is read from memory, because its lane depends on the stripe.
                EACH(n) own[l * N + n] = total[l][n];
                const double *pivots = panel + (row + l) * wide + column;
                if (!(pivots[l] > 0)) return false;
                const double reciprocal = 1 / std::sqrt(pivots[l]);
                EACH(n) own[l * N + n] = total[l][n] *= reciprocal;
                _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m) if (m > l) {
                    const double from = pivots[m];
                    EACH(n) total[m][n] -= from * total[l][n];
                }
            }
            double *to = stripes.stripe(s);
            for (int64_t p = 0; p < row + M; ++p)
                for (int64_t m = 0; m < M; ++m)
                    to[p * M + m] = p < row + m ? panel[p * wide + column + m] : 0.0;
            ROWS(m) to[(row + m) * M + m] = 1 / panel[(row + m) * wide + column + m];
        }
    }
    return true;
}

}  // namespace
