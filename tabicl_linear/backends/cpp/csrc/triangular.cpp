// Squared lengths of the columns of L^-1 R, for a lower triangular L; called by
// backends/cpp/triangular.py. Panels of a few columns are solved one after the other in tiles that lie in
// registers, where LAPACK solves all of R in memory. The identity as R costs a third: its columns begin
// with zeros, which stay zeros.

#include <memory>
#include <type_traits>

#include "share.h"
#include "vectors.h"

namespace {

struct Lengths {
    const void *factor;  // [size, size], of which the lower half is read
    const void *right;   // [size, columns]; null for the identity
    void *out;           // [columns]
    int64_t size, columns, factor_row, factor_column, right_row, right_column;
    int is_double;
};

typedef double vec_double __attribute__((vector_size(4 * WIDTH)));
template <typename T>
using Vec = std::conditional_t<std::is_same_v<T, double>, vec_double, vec>;
template <typename T>
constexpr int64_t LANES = sizeof(vec) / sizeof(T);

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

// L in stripes of M rows, each column by column: [stripe][column][M]. A stripe ends with the columns of its
// own rows, and a diagonal holds its reciprocals. Rows beyond the last are those of the identity.
template <typename T, int M>
struct Stripes {
    int64_t count;
    Room<T> data;

    explicit Stripes(const Lengths &f)
        : count((f.size + M - 1) / M), data(room<T>(count * (count + 1) / 2 * M * M)) {
        const T *from = static_cast<const T *>(f.factor);
        for (int64_t s = 0; s < count; ++s) {
            T *to = stripe(s);
            for (int64_t p = 0; p < (s + 1) * M; ++p)
                for (int64_t m = 0; m < M; ++m) {
                    const int64_t i = s * M + m;
                    const bool inside = i < f.size && p < i;
                    to[p * M + m] = inside ? from[i * f.factor_row + p * f.factor_column] : T(0);
                }
            for (int64_t m = 0; m < M; ++m) {
                const int64_t i = s * M + m;
                if (i < f.size)
                    to[i * M + m] = T(1) / from[i * (f.factor_row + f.factor_column)];
            }
        }
    }

    T *stripe(int64_t s) const { return data.get() + s * (s + 1) / 2 * M * M; }
};

// The columns of R from `first` on, [row][column], zeros beyond the last.
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

template <typename T, int M, int N>
INLINE void solve_panel(const Lengths &f, const Stripes<T, M> &stripes, int64_t first) {
    typedef Vec<T> V;
    constexpr int64_t wide = N * LANES<T>;
    const int64_t rows = stripes.count * M;
    const Room<T> memory = room<T>(rows * wide);
    fill<T>(f, memory.get(), wide, rows, first);
    V *panel = reinterpret_cast<V *>(memory.get());
    V lengths[N] = {};
    const int64_t start = f.right ? 0 : first / M;  // Above, the panel is zero.
    for (int64_t s = start; s < stripes.count; ++s) {
        const T *factor = stripes.stripe(s);
        V *own = panel + s * M * N, total[M][N];
        ROWS(m) EACH(n) total[m][n] = own[m * N + n];
        for (int64_t p = start * M; p < s * M; ++p) {
            V row[N];
            EACH(n) row[n] = panel[p * N + n];
            ROWS(m) {
                const T from = factor[p * M + m];
                EACH(n) total[m][n] -= from * row[n];
            }
        }
        const T *corner = factor + s * M * M;
        ROWS(l) {
            const T reciprocal = corner[l * M + l];
            EACH(n) total[l][n] *= reciprocal;
            _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m) if (m > l) {
                const T from = corner[l * M + m];
                EACH(n) total[m][n] -= from * total[l][n];
            }
        }
        ROWS(m) EACH(n) {
            own[m * N + n] = total[m][n];
            lengths[n] += total[m][n] * total[m][n];
        }
    }
    T found[wide];
    std::memcpy(found, lengths, sizeof(found));
    std::copy_n(found, std::min(wide, f.columns - first), static_cast<T *>(f.out) + first);
}

template <typename T, int M, int N, typename Solve>
bool solve_all(const Lengths &f, int64_t threads, const Solve &solve) {
    constexpr int64_t wide = N * LANES<T>;
    try {
        const Stripes<T, M> stripes(f);
        return share((f.columns + wide - 1) / wide, threads,
                     [&](int64_t i) { solve(f, stripes, i * wide); });
    } catch (const std::bad_alloc &) {
        return false;
    }
}

// Tiles of 8 x 3 vectors fit into 32 registers of AVX-512, and of 4 x 1 into 16 half as wide.
#define SOLVE(name, T, M, N)                                                               \
    CLONED void name(const Lengths &f, const Stripes<T, M> &stripes, int64_t first) {      \
        solve_panel<T, M, N>(f, stripes, first);                                           \
    }
SOLVE(wide_float, float, 8, 3)
SOLVE(wide_double, double, 8, 3)
SOLVE(narrow_float, float, 4, 1)
SOLVE(narrow_double, double, 4, 1)

bool many_registers() {
#if defined(__x86_64__) && defined(__GNUC__)
    return __builtin_cpu_supports("avx512f");
#else
    return false;
#endif
}

}  // namespace

extern "C" {

// False if memory ran out.
bool tabicl_lengths(const Lengths *f, int64_t threads) {
    if (many_registers())
        return f->is_double ? solve_all<double, 8, 3>(*f, threads, wide_double)
                            : solve_all<float, 8, 3>(*f, threads, wide_float);
    return f->is_double ? solve_all<double, 4, 1>(*f, threads, narrow_double)
                        : solve_all<float, 4, 1>(*f, threads, narrow_float);
}

}  // extern "C"
