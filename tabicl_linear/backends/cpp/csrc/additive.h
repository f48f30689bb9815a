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
// left them, in float or bfloat16, and a chunk of one head is packed into the cache: channels and tokens
// padded with zeros to whole vectors, which neither write nor read anything. Streams (one head of one
// task) are independent, and threads share them out. Decay is the logarithm of a_t.

#pragma once

#include <cmath>

#include "numbers.h"
#include "problem.h"
#include "products.h"

namespace {

INLINE int64_t rounded(int64_t count) { return (count + WIDTH - 1) / WIDTH * WIDTH; }

// Memory of a thread for chunks: the sizes padded to whole vectors, and matrices cut from one block.
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

template <typename T>
INLINE void pack_rows(float *to, int64_t width, const T *from, int64_t step, int64_t channels,
                      int64_t count, const float *factors) {
    for (int64_t t = 0; t < count; ++t, from += step, to += width)
        for (int64_t c = 0; c < width; c += WIDTH) {
            const int64_t rest = channels - c;
            vec x = load(from + c, rest);
            if (factors) x *= factors[t];
            std::memcpy(to + c, &x, sizeof(x));
        }
}

// Copies `count` tokens of a stream from token `first` on to rows of `width`, as multiples of `factors` if
// there are any. Rows up to the next multiple of WIDTH become zero.
INLINE void pack(float *to, int64_t width, const View &view, const Problem &p, int64_t channels,
                 int64_t stream, int64_t first, int64_t count, const float *factors = nullptr) {
    const int64_t start = stream / p.heads * view.batch + stream % p.heads * view.head +
                          first * view.token;
    if (view.lowered)
        pack_rows(to, width, static_cast<const bfloat16 *>(view.data) + start, view.token, channels,
                  count, factors);
    else
        pack_rows(to, width, static_cast<const float *>(view.data) + start, view.token, channels,
                  count, factors);
    std::fill(to + count * width, to + rounded(count) * width, 0.0f);
}

// The write rates and decays of a chunk: from its start to each token, from each token to its end, over all
// of it, and between two tokens.
struct Weights {
    std::vector<float> high, low, since, until, rates;
    float whole = 1;
    float *pairs;  // D, [chunk, chunk]
    int64_t stride;
    bool gated;

    Weights(const Problem &p, float *pairs, int64_t chunk)
        : high(chunk), low(chunk), since(chunk), until(chunk), rates(chunk, 1.0f), pairs(pairs),
          stride(chunk), gated(p.decay.data) {
        if (!gated) set_pairs(chunk);
    }

    const float *of_writes() const { return gated ? until.data() : nullptr; }

    void set(const Problem &p, int64_t stream, int64_t first, int64_t count) {
        if (p.beta.data)
            for (int64_t t = 0; t < count; ++t)
                rates[t] = number(p.beta, stream, p.heads, first + t);
        if (!gated) return;
        // After a strong gate, the decay between two tokens is a small difference of large sums.
        std::vector<double> sums(rounded(count));
        double sum = 0;
        for (int64_t t = 0; t < count; ++t)
            sums[t] = sum += std::max(number(p.decay, stream, p.heads, first + t), LEAST);
        std::fill(sums.begin() + count, sums.end(), sum);
        for (size_t t = 0; t < sums.size(); ++t) {
            high[t] = float(sums[t]);
            low[t] = float(sums[t] - high[t]);
            since[t] = std::exp(float(sums[t]));
            until[t] = std::exp(float(sum - sums[t]));
        }
        whole = std::exp(float(sum));
        set_pairs(rounded(count));
    }

    void set_pairs(int64_t count) {
        words lanes;
        for (int lane = 0; lane < WIDTH; ++lane) lanes[lane] = lane;
        for (int64_t i = 0; i < count; ++i)
            for (int64_t j = 0; j < count; j += WIDTH) {
                vec x = {};
                if (gated) {
                    vec h, l;
                    std::memcpy(&h, high.data() + j, sizeof(h));
                    std::memcpy(&l, low.data() + j, sizeof(l));
                    x = (high[i] - h) + (low[i] - l);
                    x = x < -87.0f ? vec{} - 87.0f : x;
                    x = x > 0.0f ? vec{} : x;
                }
                x = lanes + uint32_t(j) > uint32_t(i) ? vec{} : exponential(x);
                std::memcpy(pairs + i * stride + j, &x, sizeof(x));
            }
    }

    static constexpr float LEAST = -1e4f;  // its exponential is 0, and so are those of sums with it
};

// x * D, and 0 where D is, whatever x is there.
INLINE vec decayed(vec x, const float *D) {
    const vec d = *reinterpret_cast<const loose *>(D);
    return d > 0.0f ? x * d : vec{};
}

// to = left right^T * D for `count` tokens; `right` is transposed already.
template <int M, int WIDEST>
INLINE void pair_products(float *to, const Weights &weights, const float *left, int64_t width,
                          const float *right, int64_t channels, int64_t count) {
    const int64_t C = weights.stride;
    each_tile<M, WIDEST>(count, count, TILE {
        COLUMNS;
        vec total[M][N] = {};
        if (j < i + M) add_product(total, {left + i * width, width, 1}, right + j, C, 0, channels);
        ROWS(m) EACH(n) total[m][n] = decayed(total[m][n], weights.pairs + (i + m) * C + j + n * WIDTH);
        store_tile(to + i * C + j, C, total);
    });
}

// The columns of a tile's rows from i on, in a lower triangular matrix, end here.
#define UP_TO(i) std::min<int64_t>((i) + M, padded)

}  // namespace
