// Additive states in chunks of tokens; called by backends/cpp/additive.py.
//
//     S_t = a_t S_{t-1} + b_t v_t k_t^T,   o_t = S_t q_t,   one gate a_t and one rate b_t per token and head.
//
// In a chunk with the state S before it, g the log gates summed from its first token (inclusive) and
// D_ij = exp(g_i - g_j) for j <= i, else 0:
//
//     O = (Q K^T * D) (b V) + exp(g) Q S^T,   S' = exp(g_C) S + (exp(g_C - g) b V)^T K.
//
// Going token by token needs less arithmetic, but loads and stores the whole state for every token;
// products over a chunk keep tiles of their results in registers. Inputs are read where the projections
// left them, in float or bfloat16. A chunk of one head is packed into the cache, with channels and tokens
// padded with zeros to whole vectors; the padding does not change any result. Streams (one head of one
// task each) are independent and are divided among the threads. `decay` is the logarithm of a_t.

#pragma once

#include <cmath>

#include "numbers.h"
#include "problem.h"
#include "products.h"

namespace {

INLINE int64_t rounded(int64_t count) { return (count + WIDTH - 1) / WIDTH * WIDTH; }

// Working memory of a thread: sizes padded to whole vectors, and one block from which matrices are cut.
struct Room {
    int64_t chunk, keys, values;
    std::vector<Line> block;
    int64_t used = 0;

    Room(const Problem &p, int64_t numbers)
        : chunk(rounded(p.chunk)), keys(rounded(p.keys)), values(rounded(p.values)),
          block(numbers / WIDTH) {}

    float *cut(int64_t numbers) {
        float *start = reinterpret_cast<float *>(block.data()) + used;
        used += numbers;
        return start;
    }
};

INLINE float number(const View &view, int64_t stream, int64_t heads, int64_t token) {
    return static_cast<const float *>(view.data)[stream / heads * view.batch +
                                                 stream % heads * view.head + token * view.token];
}

INLINE vec read(const float *from) { return *reinterpret_cast<const loose *>(from); }
INLINE void write(float *to, vec x) { *reinterpret_cast<loose *>(to) = x; }

// Offset of token `first` of a stream from the start of the array, in elements.
INLINE int64_t place(const View &view, const Problem &p, int64_t stream, int64_t first) {
    return stream / p.heads * view.batch + stream % p.heads * view.head + first * view.token;
}

template <typename T>
INLINE void pack_rows(float *to, int64_t width, const T *from, int64_t step, int64_t channels,
                      int64_t count, const float *factors) {
    for (int64_t t = 0; t < count; ++t, from += step, to += width)
        for (int64_t c = 0; c < width; c += WIDTH) {
            const vec x = load(from + c, channels - c);
            write(to + c, factors ? x * factors[t] : x);
        }
}

// Copies `count` tokens of a stream from token `first` on to rows of `width` floats, multiplied by `factors`
// (one per token) if there are any. Further rows up to a multiple of WIDTH become zero.
INLINE void pack(float *to, int64_t width, const View &view, const Problem &p, int64_t channels,
                 int64_t stream, int64_t first, int64_t count, const float *factors = nullptr) {
    const int64_t start = place(view, p, stream, first);
    if (view.lowered)
        pack_rows(to, width, static_cast<const bfloat16 *>(view.data) + start, view.token, channels,
                  count, factors);
    else
        pack_rows(to, width, static_cast<const float *>(view.data) + start, view.token, channels,
                  count, factors);
    std::fill(to + count * width, to + rounded(count) * width, 0.0f);
}

// Prefetches the tokens of the next chunk, a few of them beside each tile of a product. The rows of one head lie
// apart, so the processor does not prefetch them by itself, and prefetching all at once would stall.
class Ahead {
  public:
    // The chunk that begins at token `first`; an empty one if `first` is negative.
    Ahead(const Problem &p, int64_t stream, int64_t first)
        : p(p), stream(stream), first(first),
          count(first < 0 ? 0 : std::min(p.chunk, p.tokens - first)) {}

    void add(const View &view, int64_t channels) {
        if (!view.data) return;
        const int64_t size = view.lowered ? 2 : 4;
        lists[added++] = {static_cast<const char *>(view.data) + size * place(view, p, stream, first),
                          size * view.token, size * channels};
    }

    void some() {
        for (int i = 0; i < TOKENS && token < count; ++i) {
            const List &list = lists[next];
            for (int64_t c = 0; c < list.length; c += LINE)
                __builtin_prefetch(list.start + token * list.step + c);
            if (++next == added) {
                next = 0;
                ++token;
            }
        }
    }

  private:
    struct List {
        const char *start;
        int64_t step, length;
    };
    static constexpr int TOKENS = 3, LINE = 64;
    const Problem &p;
    int64_t stream, first, count, token = 0;
    List lists[4];
    int added = 0, next = 0;
};

INLINE void multiply_rows(float *to, const float *from, int64_t width, const float *factors,
                          int64_t count) {
    for (int64_t t = 0; t < count; ++t, from += width, to += width)
        for (int64_t c = 0; c < width; c += WIDTH) write(to + c, read(from + c) * factors[t]);
}

// The write rates (`rates`) of a chunk and its decays: from its start to each token (`since`), from each token to
// its end (`until`), over all of it (`whole`), and between two tokens (`pairs`). `high` + `low` are `sums`, the
// summed log gates, as pairs of floats.
struct Weights {
    std::vector<float> high, low, since, until, rates;
    std::vector<double> sums;
    float whole = 1;
    float *pairs;  // D, [chunk, chunk]
    int64_t stride;
    bool gated;

    Weights(const Problem &p, float *pairs, int64_t chunk)
        : high(chunk), low(chunk), since(chunk), until(chunk), rates(chunk, 1.0f), sums(chunk),
          pairs(pairs), stride(chunk), gated(p.decay.data) {
        if (!gated) set_pairs(chunk);
    }

    const float *of_writes() const { return gated ? until.data() : nullptr; }

    // Decays between two tokens are computed only for `reads`.
    void set(const Problem &p, int64_t stream, int64_t first, int64_t count, bool reads) {
        if (p.beta.data)
            for (int64_t t = 0; t < count; ++t)
                rates[t] = number(p.beta, stream, p.heads, first + t);
        if (!gated) return;
        // In double: after a strong gate, the decay between two tokens is a small difference of large sums.
        double sum = 0;
        for (int64_t t = 0; t < count; ++t)
            sums[t] = sum += std::max(number(p.decay, stream, p.heads, first + t), LEAST);
        std::fill(sums.begin() + count, sums.end(), sum);
        for (int64_t t = 0; t < rounded(count); ++t) {
            high[t] = float(sums[t]);
            low[t] = float(sums[t] - high[t]);
            since[t] = std::exp(float(sums[t]));
            until[t] = std::exp(float(sum - sums[t]));
        }
        whole = std::exp(float(sum));
        if (reads) set_pairs(rounded(count));
    }

    void set_pairs(int64_t count) {
        words lanes;
        for (int lane = 0; lane < WIDTH; ++lane) lanes[lane] = lane;
        for (int64_t i = 0; i < count; ++i)
            for (int64_t j = 0; j <= i; j += WIDTH) {
                vec x = {};
                if (gated) {
                    x = (high[i] - read(high.data() + j)) + (low[i] - read(low.data() + j));
                    x = x < -87.0f ? vec{} - 87.0f : x;
                    x = x > 0.0f ? vec{} : x;
                }
                x = lanes + uint32_t(j) > uint32_t(i) ? vec{} : exponential(x);
                write(pairs + i * stride + j, x);
            }
    }

    static constexpr float LEAST = -1e4f;  // lower bound of log gates; its exponential is 0
};

// x * D, and 0 where D is 0, even if x is infinite or NaN.
INLINE vec decayed(vec x, const float *D) {
    const vec d = read(D);
    return d > 0.0f ? x * d : vec{};
}

// to = left right^T * D for `count` tokens, except tiles above the diagonal; `right` is given transposed.
template <int M>
INLINE void pair_products(float *to, const Weights &weights, const float *left, int64_t width,
                          const float *right, int64_t channels, int64_t count) {
    const int64_t C = weights.stride;
    each_tile<M, 1>(count, count, TILE {
        COLUMNS;
        if (j >= i + M) return;
        vec total[M][N] = {};
        if (j < i + M) add_product(total, {left + i * width, width, 1}, right + j, C, 0, channels);
        ROWS(m) EACH(n) total[m][n] = decayed(total[m][n], weights.pairs + (i + m) * C + j + n * WIDTH);
        store_tile(to + i * C + j, C, total);
    });
}

// End of the columns of a lower triangular matrix that are not zero in a tile whose rows begin at i.
#define UP_TO(i) std::min<int64_t>((i) + M, padded)

}  // namespace
