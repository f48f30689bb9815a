// Softmax attention across the few cells of a row, forward and backward; called by
// backends/cpp/cell_attention.py. Rows are read in place, although their cells are far apart in memory: one row
// fits into the L1 cache. The scores of a query take one or two vectors, with one lane per key, so keys are
// transposed when they are loaded. Inputs and outputs are float or bfloat16, sums are float.

#include "numbers.h"
#include "share.h"

namespace {

constexpr int MOST_CELLS = 16, MOST_DIM = 128;
constexpr int TOGETHER = 4;  // cells that are summed at the same time
#define SIDE_BY_SIDE(n) _Pragma("GCC unroll 4") for (int n = 0; n < TOGETHER; ++n)

struct Cells {
    const void *qkv;  // [groups, cells, rows, 3, heads, dim], like `dqkv`: bfloat16 if lowered
    void *out;        // [groups, cells, rows, heads, dim], or its gradient
    void *dqkv;
    int64_t groups, cells, rows, heads, dim, pieces;
    float scale;
    int lowered;
};

// The vectors of all cells, padded with zeros to whole blocks of cells and channels.
struct alignas(64) Block {
    float at[MOST_CELLS][MOST_DIM];
};

struct alignas(64) Square {
    float at[MOST_CELLS][MOST_CELLS];
};

// One head of one row.
struct Head {
    int64_t cells, padded, dim, stride;  // stride: elements from one cell of an input to the next
};

// WIDTH floats of a block or square, in memory. Sums are plain `vec`, whose address is never taken, so
// that they stay in registers.
typedef vec lanes __attribute__((may_alias));
INLINE lanes &lanes_at(float *first) { return *reinterpret_cast<lanes *>(first); }
INLINE vec lanes_at(const float *first) { return *reinterpret_cast<const lanes *>(first); }

template <typename X>
INLINE void gather(Block &to, const X *from, const Head &h, float scale) {
    for (int64_t i = 0; i < h.padded; ++i)
        for (int64_t d = 0; d < h.dim; d += WIDTH)
            lanes_at(&to.at[i][d]) =
                i < h.cells ? load(from + i * h.stride + d, h.dim - d) * scale : vec{};
}

// c_ij = a_i^T b_j.
INLINE void products(Square &c, const Block &a, const Block &b, const Head &h) {
    alignas(64) float turned[MOST_DIM][MOST_CELLS];
    for (int64_t d = 0; d < h.dim * MOST_CELLS; d += WIDTH) lanes_at(turned[0] + d) = vec{};
    for (int64_t j = 0; j < h.cells; ++j)
        for (int64_t d = 0; d < h.dim; ++d) turned[d][j] = b.at[j][d];
    for (int64_t i = 0; i < h.cells; i += TOGETHER)
        for (int64_t j = 0; j < MOST_CELLS; j += WIDTH) {
            vec sums[TOGETHER] = {};
            for (int64_t d = 0; d < h.dim; ++d) {
                const vec keys = lanes_at(&turned[d][j]);
                SIDE_BY_SIDE(n) sums[n] += a.at[i + n][d] * keys;
            }
            SIDE_BY_SIDE(n) lanes_at(&c.at[i + n][j]) = sums[n];
        }
}

// to_i = sum_j c_ij b_j; with c_ji instead if `turned`.
template <bool turned, typename X>
INLINE void mix(X *to, int64_t stride, const Square &c, const Block &b, const Head &h) {
    for (int64_t d = 0; d < h.dim; d += WIDTH)
        for (int64_t i = 0; i < h.cells; i += TOGETHER) {
            vec sums[TOGETHER] = {};
            for (int64_t j = 0; j < h.cells; ++j) {
                const vec part = lanes_at(&b.at[j][d]);
                SIDE_BY_SIDE(n) sums[n] += (turned ? c.at[j][i + n] : c.at[i + n][j]) * part;
            }
            SIDE_BY_SIDE(n) {
                if (i + n < h.cells) store(to + (i + n) * stride + d, sums[n], h.dim - d);
            }
        }
}

INLINE float largest(vec x) {
    const four c = quartered(x, [](auto a, auto b) { return a > b ? a : b; });
    return std::max(std::max(c[0], c[1]), std::max(c[2], c[3]));
}

// Turns rows of scores into weights that add up to one; lanes without a cell get zero.
INLINE void softmax(Square &c, const Head &h) {
    alignas(64) float numbers[MOST_CELLS];
    for (int j = 0; j < MOST_CELLS; ++j) numbers[j] = j;
    const auto is_cell = [&](int j) { return lanes_at(numbers + j) < vec{} + float(h.cells); };
    for (int64_t i = 0; i < h.cells; ++i) {
        float most = -3e38f;
        for (int j = 0; j < MOST_CELLS; j += WIDTH) {
            const vec x = lanes_at(&c.at[i][j]);
            most = std::max(most, largest(is_cell(j) ? x : vec{} - 3e38f));
        }
        vec total = {};
        for (int j = 0; j < MOST_CELLS; j += WIDTH) {
            const vec below = lanes_at(&c.at[i][j]) - most;
            const vec e = exponential(below < -87.0f ? vec{} - 87.0f : below);
            const vec weights = is_cell(j) ? (below == below ? e : below) : vec{};
            lanes_at(&c.at[i][j]) = weights;
            total += weights;
        }
        const float share = 1.0f / sum(total);
        for (int j = 0; j < MOST_CELLS; j += WIDTH) lanes_at(&c.at[i][j]) *= share;
    }
}

// Turns dc, the gradient of the weights c, into the gradient of the scores.
INLINE void softmax_back(Square &dc, const Square &c, const Head &h) {
    for (int64_t i = 0; i < h.cells; ++i) {
        vec total = {};
        for (int j = 0; j < MOST_CELLS; j += WIDTH)
            total += lanes_at(&c.at[i][j]) * lanes_at(&dc.at[i][j]);
        const float mean = sum(total);
        for (int j = 0; j < MOST_CELLS; j += WIDTH) {
            const vec x = lanes_at(&dc.at[i][j]);
            lanes_at(&dc.at[i][j]) = lanes_at(&c.at[i][j]) * (x - mean);
        }
    }
}

INLINE Head head_of(const Cells &f, int64_t stride) {
    return {f.cells, (f.cells + TOGETHER - 1) / TOGETHER * TOGETHER, f.dim, stride};
}

template <typename X>
INLINE void rows_forward(const Cells &f, int64_t first, int64_t last) {
    const int64_t wide = f.heads * f.dim;
    const Head in = head_of(f, f.rows * 3 * wide);
    Block q, k, v;
    Square c;
    for (int64_t row = first; row < last; ++row)
        for (int64_t head = 0; head < f.heads; ++head) {
            const int64_t token = row / f.rows * f.cells * f.rows + row % f.rows;
            const X *x = static_cast<const X *>(f.qkv) + token * 3 * wide + head * f.dim;
            gather(q, x, in, f.scale);
            gather(k, x + wide, in, 1);
            gather(v, x + 2 * wide, in, 1);
            products(c, q, k, in);
            softmax(c, in);
            X *out = static_cast<X *>(f.out) + token * wide + head * f.dim;
            mix<false>(out, f.rows * wide, c, v, in);
        }
}

template <typename X>
INLINE void rows_back(const Cells &f, int64_t first, int64_t last) {
    const int64_t wide = f.heads * f.dim;
    const Head in = head_of(f, f.rows * 3 * wide), out = head_of(f, f.rows * wide);
    Block q, k, v, grad;
    Square c, dc;
    for (int64_t row = first; row < last; ++row)
        for (int64_t head = 0; head < f.heads; ++head) {
            const int64_t token = row / f.rows * f.cells * f.rows + row % f.rows;
            const int64_t at = token * 3 * wide + head * f.dim;
            const X *x = static_cast<const X *>(f.qkv) + at;
            X *dx = static_cast<X *>(f.dqkv) + at;
            gather(q, x, in, f.scale);
            gather(k, x + wide, in, 1);
            gather(v, x + 2 * wide, in, 1);
            gather(grad, static_cast<const X *>(f.out) + token * wide + head * f.dim, out, 1);
            products(c, q, k, in);
            softmax(c, in);
            mix<true>(dx + 2 * wide, in.stride, c, grad, in);
            products(dc, grad, v, in);
            softmax_back(dc, c, in);
            mix<true>(dx + wide, in.stride, dc, q, in);
            // `q` was scaled when it was loaded, so gradients of keys contain the scale already; those of
            // queries are scaled here.
            for (int64_t i = 0; i < f.cells; ++i)
                for (int j = 0; j < MOST_CELLS; j += WIDTH) lanes_at(&dc.at[i][j]) *= f.scale;
            mix<false>(dx, in.stride, dc, k, in);
        }
}

CLONED void piece_forward(const Cells &f, int64_t first, int64_t last) {
    f.lowered ? rows_forward<bfloat16>(f, first, last) : rows_forward<float>(f, first, last);
}

CLONED void piece_back(const Cells &f, int64_t first, int64_t last) {
    f.lowered ? rows_back<bfloat16>(f, first, last) : rows_back<float>(f, first, last);
}

}  // namespace

extern "C" {

void tabicl_cells(const Cells *f, int64_t threads) {
    const int64_t rows = f->groups * f->rows;
    share(f->pieces, threads, [&](int64_t i) {
        piece_forward(*f, i * rows / f->pieces, (i + 1) * rows / f->pieces);
    });
}

void tabicl_cells_back(const Cells *f, int64_t threads) {
    const int64_t rows = f->groups * f->rows;
    share(f->pieces, threads, [&](int64_t i) {
        piece_back(*f, i * rows / f->pieces, (i + 1) * rows / f->pieces);
    });
}

}  // extern "C"
