// Token-wise functions between the matrix products of a block, forward and backward, called by
// backends/cpp/tokenwise.py: RMSNorm, SwiGLU, and the feature maps of the delta rules. Each takes one
// pass over memory, where PyTorch takes up to a dozen. Inputs and outputs are float or bfloat16, sums
// are float.

#include <cmath>

#include "numbers.h"
#include "share.h"

namespace {

#define BLOCKS(i, dim) for (int64_t i = 0; i < (dim); i += WIDTH)

// ---- y = x r w, r = (mean x^2 + eps)^-1/2 ----

struct Norm {
    const void *x;  // [rows, dim], like `dx`: bfloat16 if lowered_x
    const float *weight;
    void *y;        // [rows, dim], or its gradient: bfloat16 if lowered_y
    float *scale;   // r of each row
    void *dx;
    float *dweight;  // [pieces, dim]: sums over the rows of a piece
    int64_t rows, dim, pieces;
    float eps;
    int lowered_x, lowered_y;
};

template <typename X, typename Y>
INLINE void norm_rows(const Norm &f, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
        const X *x = static_cast<const X *>(f.x) + row * f.dim;
        Y *y = static_cast<Y *>(f.y) + row * f.dim;
        vec squares = {};
        BLOCKS(i, f.dim) {
            const vec part = load(x + i, f.dim - i);
            squares += part * part;
        }
        const float r = 1.0f / std::sqrt(sum(squares) / f.dim + f.eps);
        f.scale[row] = r;
        BLOCKS(i, f.dim)
        store(y + i, load(x + i, f.dim - i) * r * load(f.weight + i, f.dim - i), f.dim - i);
    }
}

template <typename X, typename Y>
INLINE void norm_rows_back(const Norm &f, int64_t first, int64_t last, float *dweight) {
    for (int64_t i = 0; i < f.dim; ++i) dweight[i] = 0;
    for (int64_t row = first; row < last; ++row) {
        const X *x = static_cast<const X *>(f.x) + row * f.dim;
        const Y *dy = static_cast<const Y *>(f.y) + row * f.dim;
        X *dx = static_cast<X *>(f.dx) + row * f.dim;
        const float r = f.scale[row];
        vec along = {};
        BLOCKS(i, f.dim) {
            const int64_t count = f.dim - i;
            const vec part = load(x + i, count) * load(dy + i, count);
            along += part * load(f.weight + i, count);
            store(dweight + i, load(dweight + i, count) + part * r, count);
        }
        const float back = sum(along) * r * r * r / f.dim;
        BLOCKS(i, f.dim) {
            const int64_t count = f.dim - i;
            const vec direct = load(dy + i, count) * load(f.weight + i, count) * r;
            store(dx + i, direct - load(x + i, count) * back, count);
        }
    }
}

CLONED void norm_piece(const Norm &f, int64_t first, int64_t last) {
    if (f.lowered_x && f.lowered_y) return norm_rows<bfloat16, bfloat16>(f, first, last);
    if (f.lowered_x) return norm_rows<bfloat16, float>(f, first, last);
    if (f.lowered_y) return norm_rows<float, bfloat16>(f, first, last);
    return norm_rows<float, float>(f, first, last);
}

CLONED void norm_piece_back(const Norm &f, int64_t first, int64_t last, float *dweight) {
    if (f.lowered_x && f.lowered_y)
        return norm_rows_back<bfloat16, bfloat16>(f, first, last, dweight);
    if (f.lowered_x) return norm_rows_back<bfloat16, float>(f, first, last, dweight);
    if (f.lowered_y) return norm_rows_back<float, bfloat16>(f, first, last, dweight);
    return norm_rows_back<float, float>(f, first, last, dweight);
}

// ---- y = silu(gate) up, both in one row ----

struct Gated {
    const void *x;   // [rows, 2 dim], bfloat16 if lowered, like all of these
    void *y;         // [rows, dim]
    const void *dy;  // [rows, dim]
    void *dx;        // [rows, 2 dim]
    int64_t rows, dim, pieces;
    int lowered;
};

template <typename X>
INLINE void gated_rows(const Gated &f, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
        const X *gate = static_cast<const X *>(f.x) + row * 2 * f.dim, *up = gate + f.dim;
        X *y = static_cast<X *>(f.y) + row * f.dim;
        BLOCKS(i, f.dim)
        store(y + i, silu(load(gate + i, f.dim - i)) * load(up + i, f.dim - i), f.dim - i);
    }
}

template <typename X>
INLINE void gated_rows_back(const Gated &f, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
        const X *gate = static_cast<const X *>(f.x) + row * 2 * f.dim, *up = gate + f.dim;
        const X *dy = static_cast<const X *>(f.dy) + row * f.dim;
        X *dgate = static_cast<X *>(f.dx) + row * 2 * f.dim, *dup = dgate + f.dim;
        BLOCKS(i, f.dim) {
            const int64_t count = f.dim - i;
            const vec g = load(gate + i, count), d = load(dy + i, count), s = sigmoid(g);
            store(dgate + i, d * load(up + i, count) * (s * (1.0f + g * (1.0f - s))), count);
            store(dup + i, d * (g * s), count);
        }
    }
}

CLONED void gated_piece(const Gated &f, int64_t first, int64_t last) {
    f.lowered ? gated_rows<bfloat16>(f, first, last) : gated_rows<float>(f, first, last);
}

CLONED void gated_piece_back(const Gated &f, int64_t first, int64_t last) {
    f.lowered ? gated_rows_back<bfloat16>(f, first, last) : gated_rows_back<float>(f, first, last);
}

// ---- queries, keys and values: silu of all, then queries and keys to unit length, queries scaled ----

struct Features {
    const void *x;  // [rows, 3, heads, dim], like `dx`: bfloat16 if lowered
    float *out[3];  // [rows, heads, dim] of queries, keys, values; or gradients, null for zeros
    void *dx;
    int64_t rows, heads, dim, pieces;
    float scale, eps;
    int lowered;
};

INLINE float length(const Features &f, int stream) { return stream == 0 ? f.scale : 1.0f; }

template <typename X>
INLINE void features_rows(const Features &f, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row)
        for (int stream = 0; stream < 3; ++stream)
            for (int64_t head = 0; head < f.heads; ++head) {
                const int64_t source = ((row * 3 + stream) * f.heads + head) * f.dim;
                const X *x = static_cast<const X *>(f.x) + source;
                float *out = f.out[stream] + (row * f.heads + head) * f.dim;
                vec squares = {};
                BLOCKS(i, f.dim) {
                    const vec s = silu(load(x + i, f.dim - i));
                    squares += s * s;
                    store(out + i, s, f.dim - i);
                }
                if (stream == 2) continue;
                const float r = length(f, stream) / std::sqrt(sum(squares) + f.eps);
                BLOCKS(i, f.dim) store(out + i, load(out + i, f.dim - i) * r, f.dim - i);
            }
}

template <typename X>
INLINE void features_back(const Features &f, const X *x, const float *grad, X *dx, int stream) {
    float direct = 1, back = 0;
    if (stream < 2) {
        vec squares = {}, along = {};
        BLOCKS(i, f.dim) {
            const vec s = silu(load(x + i, f.dim - i));
            squares += s * s;
            along += s * load(grad + i, f.dim - i);
        }
        const float r = 1.0f / std::sqrt(sum(squares) + f.eps);
        direct = length(f, stream) * r;
        back = direct * r * r * sum(along);
    }
    BLOCKS(i, f.dim) {
        const int64_t count = f.dim - i;
        const vec part = load(x + i, count), s = sigmoid(part);
        const vec slope = s * (1.0f + part * (1.0f - s));
        store(dx + i, (load(grad + i, count) * direct - part * s * back) * slope, count);
    }
}

template <typename X>
INLINE void features_rows_back(const Features &f, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row)
        for (int stream = 0; stream < 3; ++stream) {
            const int64_t source = (row * 3 + stream) * f.heads * f.dim;
            const X *x = static_cast<const X *>(f.x) + source;
            X *dx = static_cast<X *>(f.dx) + source;
            const float *grad = f.out[stream];
            if (!grad) {
                std::memset(dx, 0, f.heads * f.dim * sizeof(X));
                continue;
            }
            for (int64_t at = 0; at < f.heads * f.dim; at += f.dim)
                features_back(f, x + at, grad + row * f.heads * f.dim + at, dx + at, stream);
        }
}

CLONED void features_piece(const Features &f, int64_t first, int64_t last) {
    f.lowered ? features_rows<bfloat16>(f, first, last) : features_rows<float>(f, first, last);
}

CLONED void features_piece_back(const Features &f, int64_t first, int64_t last) {
    f.lowered ? features_rows_back<bfloat16>(f, first, last)
              : features_rows_back<float>(f, first, last);
}

// Divides the rows into `pieces` of equal length. Their number does not depend on that of threads, and so
// neither do sums over the rows of a piece.
template <typename Function, typename Work>
void each_piece(const Function &f, int64_t threads, const Work &work) {
    share(f.pieces, threads, [&](int64_t i) {
        work(i * f.rows / f.pieces, (i + 1) * f.rows / f.pieces, i);
    });
}

// The same for work that does not sum over rows and therefore need not know its piece.
template <typename Function>
void each_piece_alone(const Function &f, int64_t threads,
                      void (*work)(const Function &, int64_t, int64_t)) {
    each_piece(f, threads, [&](int64_t first, int64_t last, int64_t) { work(f, first, last); });
}

}  // namespace

extern "C" {

// Must equal the version in backends/cpp/loader.py, which refuses a library with another one.
int tabicl_version() { return 14; }

// Whether the processor can run the library compiled for wide vectors.
int tabicl_many_registers() {
#if defined(__x86_64__) && defined(__GNUC__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
#else
    return 0;
#endif
}

void tabicl_norm(const Norm *f, int64_t threads) { each_piece_alone(*f, threads, norm_piece); }

void tabicl_norm_back(const Norm *f, int64_t threads) {
    each_piece(*f, threads, [&](int64_t first, int64_t last, int64_t piece) {
        norm_piece_back(*f, first, last, f->dweight + piece * f->dim);
    });
}

void tabicl_gated(const Gated *f, int64_t threads) { each_piece_alone(*f, threads, gated_piece); }

void tabicl_gated_back(const Gated *f, int64_t threads) {
    each_piece_alone(*f, threads, gated_piece_back);
}

void tabicl_features(const Features *f, int64_t threads) {
    each_piece_alone(*f, threads, features_piece);
}

void tabicl_features_back(const Features *f, int64_t threads) {
    each_piece_alone(*f, threads, features_piece_back);
}

}  // extern "C"
