// Forward. The state is stored transposed, [key][value], as the right factor of queries.

#include "additive.h"
#include "share.h"

namespace {

struct Forward {
    Problem p;
    float *outputs;  // [batch, tokens, heads, values], or null
    float *final;    // [batch, heads, values, keys]
};

template <int M, int WIDEST>
INLINE void forward_stream(const Forward &f, int64_t stream) {
    const Problem &p = f.p;
    const int64_t C = rounded(p.chunk), keys = rounded(p.keys), values = rounded(p.values);
    Room room(p, C * (2 * keys + 2 * values + 2 * C) + 2 * keys * C + keys * values);
    float *Q = room.cut(C * keys), *K = room.cut(C * keys), *KT = room.cut(keys * C);
    float *V = room.cut(C * values), *O = room.cut(C * values), *P = room.cut(C * C);
    Weights weights(p, room.cut(C * C), C);
    float *S = room.cut(keys * values);
    const float *initial = p.initial + stream * p.values * p.keys;
    for (int64_t j = 0; j < p.values; ++j)
        for (int64_t i = 0; i < p.keys; ++i) S[i * values + j] = initial[j * p.keys + i];
    for (int64_t first = 0; first < p.tokens; first += p.chunk) {
        const int64_t count = std::min(p.chunk, p.tokens - first), padded = rounded(count);
        weights.set(p, stream, first, count, p.q.data);
        pack(K, keys, p.k, p, p.keys, stream, first, count);
        pack(V, values, p.v, p, p.values, stream, first, count, p.beta.data ? weights.rates.data() : nullptr);
        Ahead ahead(p, stream, first + p.chunk);
        ahead.add(p.q, p.keys);
        ahead.add(p.k, p.keys);
        ahead.add(p.v, p.values);
        if (p.q.data) {
            pack(Q, keys, p.q, p, p.keys, stream, first, count);
            transpose(KT, C, K, keys, padded, keys);
            pair_products<M>(P, weights, Q, keys, KT, p.keys, padded);
            each_tile<M, WIDEST>(padded, values, TILE {
                COLUMNS;
                ahead.some();
                vec total[M][N] = {};
                add_product(total, {Q + i * keys, keys, 1}, S + j, values, 0, p.keys);
                if (weights.gated)
                    ROWS(m) EACH(n)
                        total[m][n] *= weights.since[i + m];
                add_product(total, {P + i * C, C, 1}, V + j, values, 0, UP_TO(i));
                store_tile(O + i * values + j, values, total);
            });
            for (int64_t t = 0; t < count; ++t)
                std::memcpy(f.outputs + ((stream / p.heads * p.tokens + first + t) * p.heads +
                                         stream % p.heads) * p.values,
                            O + t * values, p.values * sizeof(float));
        }
        if (weights.gated) multiply_rows(V, V, values, weights.until.data(), count);
        each_tile<M, WIDEST>(keys, values, TILE {
            COLUMNS;
            ahead.some();
            vec total[M][N];
            load_tile(total, S + i * values + j, values);
            if (weights.gated)
                ROWS(m) EACH(n) total[m][n] *= weights.whole;
            add_product(total, {K + i, 1, keys}, V + j, values, 0, count);
            store_tile(S + i * values + j, values, total);
        });
    }
    float *final = f.final + stream * p.values * p.keys;
    for (int64_t j = 0; j < p.values; ++j)
        for (int64_t i = 0; i < p.keys; ++i) final[j * p.keys + i] = S[i * values + j];
}

CLONED void forward_tiled(const Forward &f, int64_t stream) {
    forward_stream<MANY_REGISTERS ? 8 : 4, 2>(f, stream);
}

}  // namespace

extern "C" {

// Returns 0, or 1 if memory ran out.
int tabicl_additive(const Problem *problem, float *outputs, float *final) {
    const Forward f = {*problem, outputs, final};
    return !share(f.p.batch * f.p.heads, f.p.threads, [&](int64_t stream) { forward_tiled(f, stream); });
}

}  // extern "C"
