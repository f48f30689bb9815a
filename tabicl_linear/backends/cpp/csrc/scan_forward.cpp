// Forward. The state is stored transposed, [key][value], so that sums over keys need no reduction.

#include "scan.h"
#include "share.h"

namespace {

struct Forward {
    Problem p;
    int64_t tile;  // value channels per piece of work
    float *outputs;  // [batch, tokens, heads, values], or null
    float *errors;   // v - S~ k, same shape, or null
    float *final;    // [batch, heads, values, keys]
};

template <int N, bool DELTA, bool GATED, bool READS>
INLINE void forward_tile(const Forward &f, int64_t stream, int64_t first, Line *scratch) {
    const Problem &p = f.p;
    const int64_t keys = p.keys, width = std::min<int64_t>(p.values - first, N * WIDTH);
    const int64_t matrix = stream * p.values * keys, gate = p.gates == 1 ? 0 : 1;
    vec(*S)[N] = reinterpret_cast<vec(*)[N]>(scratch);
    float *decayed_k = reinterpret_cast<float *>(scratch + keys * N), *decayed_q = decayed_k + keys;
    for (int64_t i = 0; i < keys; ++i) {
        Line row[N] = {};
        float *channels = reinterpret_cast<float *>(row);
        for (int64_t j = 0; j < width; ++j)
            channels[j] = p.initial[matrix + (first + j) * keys + i];
        EACH(n) S[i][n] = row[n].x;
    }
    for (int64_t t = 0; t < p.tokens; ++t) {
        const float *k = at(p.k, stream, p.heads, t);
        const float *q = READS ? at(p.q, stream, p.heads, t) : nullptr;
        const float *alpha = GATED ? at(p.decay, stream, p.heads, t) : nullptr;
        const float *key = k, *query = q;
        if (GATED) {
            for (int64_t i = 0; i < keys; ++i) {
                decayed_k[i] = alpha[i * gate] * k[i];
                if (READS) decayed_q[i] = alpha[i * gate] * q[i];
            }
            key = decayed_k;
            query = decayed_q;
        }
        vec recalled[N] = {}, read[N] = {}, u[N];
        float match = 0;
        if (DELTA || READS)
            for (int64_t i = 0; i < keys; ++i) {
                EACH(n) {
                    if (DELTA) recalled[n] += key[i] * S[i][n];
                    if (READS) read[n] += query[i] * S[i][n];
                }
                if (READS) match += k[i] * q[i];
            }
        const int64_t place = ((stream / p.heads * p.tokens + t) * p.heads + stream % p.heads) *
                                  p.values + first;
        load(u, at(p.v, stream, p.heads, t) + first, width);
        if (DELTA) {
            const float beta = *at(p.beta, stream, p.heads, t);
            EACH(n) u[n] -= recalled[n];
            if (f.errors) store(f.errors + place, u, width);
            EACH(n) u[n] *= beta;
        }
        if (READS) {
            EACH(n) read[n] += match * u[n];
            store(f.outputs + place, read, width);
        }
        for (int64_t i = 0; i < keys; ++i) {
            EACH(n) S[i][n] = (GATED ? alpha[i * gate] * S[i][n] : S[i][n]) + k[i] * u[n];
        }
    }
    for (int64_t i = 0; i < keys; ++i) {
        float channels[N * WIDTH];
        std::memcpy(channels, S[i], sizeof(channels));
        for (int64_t j = 0; j < width; ++j)
            f.final[matrix + (first + j) * keys + i] = channels[j];
    }
}

template <int N>
INLINE void forward_rule(const Forward &f, int64_t stream, int64_t first, Line *scratch) {
    const bool delta = f.p.beta.data, gated = f.p.gates > 0, reads = f.p.q.data;
    if (delta && !gated && reads) return forward_tile<N, true, false, true>(f, stream, first, scratch);
    if (delta && !gated) return forward_tile<N, true, false, false>(f, stream, first, scratch);
    if (delta && reads) return forward_tile<N, true, true, true>(f, stream, first, scratch);
    if (delta) return forward_tile<N, true, true, false>(f, stream, first, scratch);
    if (reads) return forward_tile<N, false, true, true>(f, stream, first, scratch);
    return forward_tile<N, false, true, false>(f, stream, first, scratch);
}

CLONED void forward_piece(const Forward &f, int64_t stream, int64_t first, Line *scratch) {
    switch (f.tile / WIDTH) {
        case 1: return forward_rule<1>(f, stream, first, scratch);
        case 2: return forward_rule<2>(f, stream, first, scratch);
        case 4: return forward_rule<4>(f, stream, first, scratch);
        default: return forward_rule<5>(f, stream, first, scratch);
    }
}

}  // namespace

extern "C" {

// Returns 0, or 1 if memory ran out.
int tabicl_forward(const Problem *problem, float *outputs, float *errors, float *final) {
    Forward f = {*problem, 0, outputs, errors, final};
    const int64_t streams = f.p.batch * f.p.heads;
    // The widest tiles that registers can hold, so that keys are read few times, if all threads have work.
    int64_t vectors = 1, tiles = (f.p.values + WIDTH - 1) / WIDTH;
    for (const int64_t wider : {2, 4, 5}) {
        const int64_t fewer = (f.p.values + wider * WIDTH - 1) / (wider * WIDTH);
        if (fewer < tiles && streams * fewer >= f.p.threads) vectors = wider, tiles = fewer;
    }
    f.tile = vectors * WIDTH;
    return !share(streams * tiles, f.p.threads, [&](int64_t i) {
        std::vector<Line> scratch(f.p.keys * vectors + 2 * f.p.keys / WIDTH + 1);
        forward_piece(f, i / tiles, i % tiles * f.tile, scratch.data());
    });
}

}  // extern "C"
