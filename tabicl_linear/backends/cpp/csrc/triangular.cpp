// Triangular systems in float and double, called by backends/cpp/triangular.py: squared lengths of the
// columns of L^-1 R for a lower triangular L, and for symmetric G the solutions of (G + c I) X = R with the
// diagonal of (G + c I)^-1. Panels of a few columns are solved one after the other, in tiles that fit into
// registers, whereas LAPACK solves all of R in memory. With the identity as R, that costs only a third: its
// columns begin with zeros, which stay zeros.

#include <limits>

#include "share.h"
#include "triangular.h"

namespace {

struct Lengths {
    const void *factor;  // [size, size], of which the lower half is read
    const void *right;   // [size, columns]; null for the identity
    void *out;           // [columns]
    int64_t size, columns, factor_row, factor_column, right_row, right_column;
    int is_double;
};

// Copies L into stripes.
template <typename T, int M>
Stripes<T, M> stripes_of(const Lengths &f) {
    Stripes<T, M> stripes(f.size);
    const T *from = static_cast<const T *>(f.factor);
    for (int64_t s = 0; s < stripes.count; ++s) {
        T *to = stripes.stripe(s);
        for (int64_t p = 0; p < (s + 1) * M; ++p)
            for (int64_t m = 0; m < M; ++m) {
                const int64_t i = s * M + m;
                const bool inside = i < f.size && p < i;
                to[p * M + m] = inside ? from[i * f.factor_row + p * f.factor_column] : T(0);
            }
        for (int64_t m = 0; m < M; ++m) {
            const int64_t i = s * M + m;
            if (i < f.size) to[i * M + m] = T(1) / from[i * (f.factor_row + f.factor_column)];
        }
    }
    return stripes;
}

// Copies the columns of R from `first` on to a panel [row][column], with zeros beyond the last column.
template <typename T>
INLINE void fill(const Lengths &f, T *panel, int64_t wide, int64_t rows, int64_t first) {
    std::fill_n(panel, rows * wide, T(0));
    const int64_t count = std::min(wide, f.columns - first);
    const T *right = static_cast<const T *>(f.right);
    if (!right) {
        for (int64_t c = 0; c < count; ++c) panel[(first + c) * wide + c] = 1;
        return;
    }
    constexpr int64_t BLOCK = 16;
    for (int64_t i = 0; i < f.size; i += BLOCK)
        for (int64_t c = 0; c < count; ++c)
            for (int64_t row = i; row < std::min(i + BLOCK, f.size); ++row)
                panel[row * wide + c] =
                    right[row * f.right_row + (first + c) * f.right_column];
}

// Squared lengths of the columns of a panel from some row on.
template <typename T, int N>
INLINE void measure(const Vec<T> *panel, int64_t first, int64_t rows, T *out, int64_t count) {
    Vec<T> lengths[N] = {};
    for (int64_t p = first; p < rows; ++p)
        EACH(n) lengths[n] += panel[p * N + n] * panel[p * N + n];
    T found[N * LANES<T>];
    std::memcpy(found, lengths, sizeof(found));
    std::copy_n(found, std::min(N * LANES<T>, count), out);
}

template <typename T, int M, int N>
INLINE void solve_panel(const Lengths &f, const Stripes<T, M> &stripes, int64_t first) {
    constexpr int64_t wide = N * LANES<T>;
    const int64_t rows = stripes.count * M, start = f.right ? 0 : first / M;
    const Room<T> memory = room<T>(rows * wide);
    fill<T>(f, memory.get(), wide, rows, first);
    Vec<T> *panel = reinterpret_cast<Vec<T> *>(memory.get());
    solve_stripes<T, M, N>(stripes, panel, start, stripes.count);
    measure<T, N>(panel, start * M, rows, static_cast<T *>(f.out) + first, f.columns - first);
}

template <typename T, int M, int N, typename Solve>
bool solve_all(const Lengths &f, int64_t threads, const Solve &solve) {
    constexpr int64_t wide = N * LANES<T>;
    try {
        const Stripes<T, M> stripes = stripes_of<T, M>(f);
        return share((f.columns + wide - 1) / wide, threads,
                     [&](int64_t i) { solve(f, stripes, i * wide); });
    } catch (const std::bad_alloc &) {
        return false;
    }
}

#define SOLVE(T)                                                                                   \
    CLONED void solve_##T(const Lengths &f, const Stripes<T, TILE_ROWS> &stripes, int64_t first) { \
        solve_panel<T, TILE_ROWS, TILE_VECTORS>(f, stripes, first);                                \
    }
SOLVE(float)
SOLVE(double)

// ---- (G + c I) X = R and the diagonal of (G + c I)^-1 ----

struct Systems {
    const double *gram;   // [tasks, size, size], symmetric
    const double *added;  // [penalties]
    const double *right;  // [tasks, size, columns]
    double *solutions;    // [penalties, tasks, size, columns]
    double *diagonals;    // [penalties, tasks, size]
    int64_t penalties, tasks, size, columns;
};

// Computes L^-1 R, one panel of columns after the other.
template <int M, int N>
INLINE void solve_right(const Systems &f, const double *right, const Stripes<double, M> &stripes,
                        double *panels) {
    constexpr int64_t wide = N * LANES<double>;
    const int64_t rows = stripes.count * M;
    for (int64_t first = 0; first < f.columns; first += wide, panels += rows * wide) {
        std::fill_n(panels, rows * wide, 0.0);
        for (int64_t p = 0; p < f.size; ++p)
            std::copy_n(right + p * f.columns + first, std::min(wide, f.columns - first),
                        panels + p * wide);
        solve_stripes<double, M, N>(stripes, reinterpret_cast<Vec<double> *>(panels), 0,
                                    stripes.count);
    }
}

// A panel Z of columns of L^-1 gives the entries of the diagonal of (G + c I)^-1 = L^-T L^-1 and the rows of
// X = L^-T (L^-1 R) that belong to these columns.
template <int M, int N>
INLINE void solve_system(const Systems &f, int64_t system) {
    constexpr int64_t wide = N * LANES<double>;
    const Stripes<double, M> stripes(f.size);
    const int64_t rows = stripes.count * M, task = system % f.tasks;
    const int64_t panels = (f.columns + wide - 1) / wide;
    const Room<double> memory = room<double>((rows + wide) * wide), half = room<double>(panels * rows * wide);
    double *diagonal = f.diagonals + system * f.size;
    double *solution = f.solutions + system * f.size * f.columns, *panel = memory.get();
    const double added = f.added[system / f.tasks];
    if (!factorise<M, N>(f.gram + task * f.size * f.size, added, f.size, stripes, panel)) {
        std::fill_n(diagonal, f.size, std::numeric_limits<double>::quiet_NaN());
        std::fill_n(solution, f.size * f.columns, std::numeric_limits<double>::quiet_NaN());
        return;
    }
    solve_right<M, N>(f, f.right + task * f.size * f.columns, stripes, half.get());
    Vec<double> *vectors = reinterpret_cast<Vec<double> *>(panel);
    for (int64_t first = 0; first < f.size; first += wide) {
        const int64_t count = std::min(wide, f.size - first);
        std::fill_n(panel + first * wide, (rows - first) * wide, 0.0);
        for (int64_t c = 0; c < count; ++c) panel[(first + c) * wide + c] = 1;
        solve_stripes<double, M, N>(stripes, vectors, first / M, stripes.count);
        measure<double, N>(vectors, first, rows, diagonal + first, count);
        for (int64_t y = 0; y < f.columns; y += M) {
            const double *of = half.get() + y / wide * rows * wide + y % wide;
            Vec<double> total[M][N] = {};
            subtract<double, M, N>(total, of + first * wide, wide, vectors + first * N, rows - first);
            double found[M][wide];
            std::memcpy(found, total, sizeof(found));
            for (int64_t c = 0; c < count; ++c)
                for (int64_t m = 0; m < std::min<int64_t>(M, f.columns - y); ++m)
                    solution[(first + c) * f.columns + y + m] = -found[m][c];
        }
    }
}

CLONED void solve_one(const Systems &f, int64_t system) {
    solve_system<TILE_ROWS, TILE_VECTORS>(f, system);
}

}  // namespace

extern "C" {

// False if memory ran out.
bool tabicl_lengths(const Lengths *f, int64_t threads) {
    return f->is_double ? solve_all<double, TILE_ROWS, TILE_VECTORS>(*f, threads, solve_double)
                        : solve_all<float, TILE_ROWS, TILE_VECTORS>(*f, threads, solve_float);
}

// False if memory ran out.
bool tabicl_systems(const Systems *f, int64_t threads) {
    return share(f->penalties * f->tasks, threads, [&](int64_t i) { solve_one(*f, i); });
}

}  // extern "C"
