// Backward: states and their gradients [value][key].
//
// Chunks are processed from the last to the first; the states before them are computed again. G is the gradient
// of the outputs, Z that of the state after a chunk, and * (by element) comes before matrix products:
//
//     dQ = (G W^T * D) K + exp(g) G S,             W = b V,
//     dK = (G W^T * D)^T Q + exp(g_C - g) W Z,
//     dW = (Q K^T * D)^T G + exp(g_C - g) K Z^T,
//     dS = exp(g_C) Z + (exp(g) G)^T Q.
//
// The gradient of the log gate of token t sums over everything that passes the gate: writes before t, and the
// state before the chunk, that are read from t on or remain in the state after the chunk. That is
// Z.S' + sum_{i >= t} (q_i.dq_i - k_i.dk_i), without the reads of a token's own write, which would cancel.

#include <utility>

#include "additive.h"
#include "share.h"

namespace {

struct Backward {
    Problem p;
    View outputs_grad;               // data is null if nothing was read
    const float *final_grad;         // or null
    float *dq, *dk, *dv, *dbeta, *ddecay;  // [batch, tokens, heads, channels]
    float *dinitial;                 // [batch, heads, values, keys]
};

constexpr int64_t SEGMENT = 64;  // chunks between two states that are stored during the whole pass

// The packed inputs of a chunk, and memory for its results.
struct Chunk {
    int64_t C, keys, values, first, count, padded;
    float *Q, *K, *KT, *W, *WT, *G, *P, *dP, *dQ, *dK, *dW, *dWT;
    std::vector<float> own;
};

INLINE void load_chunk(Chunk &c, const Backward &f, Weights &weights, int64_t stream, int64_t first,
                       bool reads) {
    const Problem &p = f.p;
    c.first = first;
    c.count = std::min(p.chunk, p.tokens - first);
    c.padded = rounded(c.count);
    weights.set(p, stream, first, c.count, reads);
    pack(c.K, c.keys, p.k, p, p.keys, stream, first, c.count);
    pack(c.W, c.values, p.v, p, p.values, stream, first, c.count,
         p.beta.data ? weights.rates.data() : nullptr);
}

// S = exp(g_C) S + (exp(g_C - g) W)^T K
template <int M, int WIDEST>
INLINE void write_chunk(float *to, const float *S, Chunk &c, const Problem &p, const Weights &weights,
                        int64_t stream) {
    float *W = c.W;
    if (weights.gated) {
        W = c.dW;
        multiply_rows(W, c.W, c.values, weights.until.data(), c.count);
    }
    Ahead ahead(p, stream, c.first + p.chunk);
    ahead.add(p.k, p.keys);
    ahead.add(p.v, p.values);
    each_tile<M, WIDEST>(c.values, c.keys, TILE {
        COLUMNS;
        ahead.some();
        vec total[M][N];
        load_tile(total, S + i * c.keys + j, c.keys);
        if (weights.gated) ROWS(m) EACH(n) total[m][n] *= weights.whole;
        add_product(total, {W + i, 1, c.values}, c.K + j, c.keys, 0, c.count);
        store_tile(to + i * c.keys + j, c.keys, total);
    });
}

// The gradients of a chunk, without those of a token's read of its own write, dP_ii, which go to `own`.
template <int M, int WIDEST>
INLINE void differentiate(Chunk &c, const Backward &f, const Weights &weights, int64_t stream,
                          const float *S, const float *Z, bool reads) {
    const Problem &p = f.p;
    const int64_t C = c.C, keys = c.keys, values = c.values, padded = c.padded;
    Ahead ahead(p, stream, c.first - p.chunk);
    ahead.add(p.k, p.keys);
    ahead.add(p.v, p.values);
    if (reads) {
        ahead.add(p.q, p.keys);
        ahead.add(f.outputs_grad, p.values);
    }
    transpose(c.KT, C, c.K, keys, padded, keys);
    transpose(c.WT, C, c.W, values, padded, values);
    if (reads) {
        pair_products<M>(c.P, weights, c.Q, keys, c.KT, p.keys, padded);
        pair_products<M>(c.dP, weights, c.G, values, c.WT, p.values, padded);
        for (int64_t t = 0; t < padded; ++t) c.own[t] = std::exchange(c.dP[t * C + t], 0.0f);
        each_tile<M, WIDEST>(padded, keys, TILE {
            COLUMNS;
            ahead.some();
            vec total[M][N] = {};
            add_product(total, {c.G + i * values, values, 1}, S + j, keys, 0, p.values);
            if (weights.gated) ROWS(m) EACH(n) total[m][n] *= weights.since[i + m];
            add_product(total, {c.dP + i * C, C, 1}, c.K + j, keys, 0, UP_TO(i));
            store_tile(c.dQ + i * keys + j, keys, total);
        });
    }
    each_tile<M, WIDEST>(padded, keys, TILE {
        COLUMNS;
        ahead.some();
        vec total[M][N] = {};
        add_product(total, {c.W + i * values, values, 1}, Z + j, keys, 0, p.values);
        if (weights.gated) ROWS(m) EACH(n) total[m][n] *= weights.until[i + m];
        if (reads) add_product(total, {c.dP + i, 1, C}, c.Q + j, keys, i, padded);
        store_tile(c.dK + i * keys + j, keys, total);
    });
    each_tile<M, WIDEST>(values, padded, TILE {
        COLUMNS;
        ahead.some();
        vec total[M][N] = {};
        add_product(total, {Z + i * keys, keys, 1}, c.KT + j, C, 0, p.keys);
        if (weights.gated)
            ROWS(m) EACH(n)
                total[m][n] *= read(weights.until.data() + j + n * WIDTH);
        if (reads) add_product(total, {c.G + i, 1, values}, c.P + j, C, j, padded);
        store_tile(c.dWT + i * C + j, C, total);
    });
    transpose(c.dW, values, c.dWT, C, values, padded);
}

// Z = exp(g_C) Z + (exp(g) G)^T Q; G becomes exp(g) G.
template <int M, int WIDEST>
INLINE void pass_on(float *Z, Chunk &c, const Weights &weights, bool reads) {
    if (reads && weights.gated) multiply_rows(c.G, c.G, c.values, weights.since.data(), c.count);
    each_tile<M, WIDEST>(c.values, c.keys, TILE {
        COLUMNS;
        vec total[M][N];
        load_tile(total, Z + i * c.keys + j, c.keys);
        if (weights.gated) ROWS(m) EACH(n) total[m][n] *= weights.whole;
        if (reads) add_product(total, {c.G + i, 1, c.values}, c.Q + j, c.keys, 0, c.count);
        store_tile(Z + i * c.keys + j, c.keys, total);
    });
}

INLINE float dot(const float *x, const float *y, int64_t count) {
    vec total = {};
    for (int64_t i = 0; i < count; i += WIDTH) total += read(x + i) * read(y + i);
    return sum(total);
}

// Writes the gradients of a chunk out. `passed` is Z.S', for the state S' after it.
INLINE void write_out(Chunk &c, const Backward &f, const Weights &weights, int64_t stream,
                      double passed, bool reads) {
    const Problem &p = f.p;
    if (p.beta.data) pack(c.dWT, c.values, p.v, p, p.values, stream, c.first, c.count);
    for (int64_t t = c.count - 1; t >= 0; --t) {
        const int64_t place = (stream / p.heads * p.tokens + c.first + t) * p.heads + stream % p.heads;
        const float *dq = c.dQ + t * c.keys, *dk = c.dK + t * c.keys, *dw = c.dW + t * c.values;
        const float *q = c.Q + t * c.keys, *k = c.K + t * c.keys, rate = weights.rates[t];
        if (weights.gated) {
            if (reads) passed += dot(q, dq, c.keys);
            passed -= dot(k, dk, c.keys);
            f.ddecay[place] = float(passed);
        }
        for (int64_t i = 0; i < p.keys; i += WIDTH) {
            vec total = read(dk + i);
            if (reads) {
                store(f.dq + place * p.keys + i, read(dq + i) + c.own[t] * read(k + i), p.keys - i);
                total += c.own[t] * read(q + i);
            }
            store(f.dk + place * p.keys + i, total, p.keys - i);
        }
        if (p.beta.data) f.dbeta[place] = dot(c.dWT + t * c.values, dw, c.values);
        for (int64_t j = 0; j < p.values; j += WIDTH)
            store(f.dv + place * p.values + j, rate * read(dw + j), p.values - j);
    }
}

template <int M, int WIDEST>
INLINE void backward_stream(const Backward &f, int64_t stream) {
    const Problem &p = f.p;
    const int64_t C = rounded(p.chunk), keys = rounded(p.keys), values = rounded(p.values);
    const int64_t size = keys * values, chunks = (p.tokens + p.chunk - 1) / p.chunk;
    const int64_t segments = std::max<int64_t>((chunks + SEGMENT - 1) / SEGMENT, 1);
    const int64_t longest = std::min(chunks, SEGMENT);
    const bool reads = f.outputs_grad.data;
    Room room(p, C * (5 * keys + 6 * values + 3 * C) + size * (segments + longest + 2));
    Chunk c{C, keys, values};
    for (float **matrix : {&c.Q, &c.K, &c.KT, &c.dQ, &c.dK}) *matrix = room.cut(C * keys);
    for (float **matrix : {&c.W, &c.WT, &c.G, &c.dW, &c.dWT}) *matrix = room.cut(C * values);
    c.P = room.cut(C * C);
    c.dP = room.cut(C * C);
    c.own.resize(C);
    Weights weights(p, room.cut(C * C), C);
    float *starts = room.cut(size * segments), *states = room.cut(size * (longest + 1));
    float *Z = room.cut(size);
    const int64_t matrix = stream * p.values * p.keys;
    for (int64_t j = 0; j < p.values; ++j) {
        std::copy_n(p.initial + matrix + j * p.keys, p.keys, starts + j * keys);
        if (f.final_grad) std::copy_n(f.final_grad + matrix + j * p.keys, p.keys, Z + j * keys);
    }
    for (int64_t i = 0; i < (segments - 1) * SEGMENT; ++i) {
        float *to = starts + (i / SEGMENT + 1) * size;
        load_chunk(c, f, weights, stream, i * p.chunk, false);
        write_chunk<M, WIDEST>(to, i % SEGMENT ? to : to - size, c, p, weights, stream);
    }
    for (int64_t s = segments - 1; s >= 0; --s) {
        const int64_t first = s * SEGMENT, count = std::min(SEGMENT, chunks - first);
        std::copy_n(starts + s * size, size, states);
        for (int64_t i = 0; i < count; ++i) {
            load_chunk(c, f, weights, stream, (first + i) * p.chunk, false);
            write_chunk<M, WIDEST>(states + (i + 1) * size, states + i * size, c, p, weights, stream);
        }
        for (int64_t i = count - 1; i >= 0; --i) {
            const double passed = weights.gated ? dot(Z, states + (i + 1) * size, size) : 0;
            load_chunk(c, f, weights, stream, (first + i) * p.chunk, reads);
            if (reads) {
                pack(c.Q, keys, p.q, p, p.keys, stream, c.first, c.count);
                pack(c.G, values, f.outputs_grad, p, p.values, stream, c.first, c.count);
            }
            differentiate<M, WIDEST>(c, f, weights, stream, states + i * size, Z, reads);
            write_out(c, f, weights, stream, passed, reads);
            pass_on<M, WIDEST>(Z, c, weights, reads);
        }
    }
    for (int64_t j = 0; j < p.values; ++j)
        std::copy_n(Z + j * keys, p.keys, f.dinitial + matrix + j * p.keys);
}

CLONED void backward_tiled(const Backward &f, int64_t stream) {
    backward_stream<MANY_REGISTERS ? 8 : 4, 2>(f, stream);
}

}  // namespace

extern "C" {

// Returns 0, or 1 if memory ran out.
int tabicl_additive_back(const Problem *problem, const View *outputs_grad,
                         const float *final_grad, float *dq, float *dk, float *dv, float *dbeta,
                         float *ddecay, float *dinitial) {
    const Backward f = {*problem, *outputs_grad, final_grad, dq, dk, dv, dbeta, ddecay, dinitial};
    return !share(f.p.batch * f.p.heads, f.p.threads, [&](int64_t stream) { backward_tiled(f, stream); });
}

}  // extern "C"
