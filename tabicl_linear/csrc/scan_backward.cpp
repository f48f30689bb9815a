// Backward: states and their gradients [value][key].

#include <cmath>

#include "scan.h"
#include "share.h"

namespace {

struct Backward {
    Problem p;
    const float *errors;         // as the forward pass left them, or null for additive memories
    const float *final;          // state after the last token
    const float *final_grad;     // or null
    View outputs_grad;           // data is null where nothing was read
    float *dq, *dk, *dv, *dbeta; // [batch, tokens, heads, channels]
    float *dgate;                // of log alpha, [batch, tokens, heads, gates]
    float *dinitial;             // [batch, heads, values, keys]
};

struct Token {
    const float *value;  // error or value of the token
    float beta;
    int64_t place;       // index of (batch, token, head)
};

template <bool DELTA>
INLINE Token token(const Backward &f, int64_t stream, int64_t t) {
    const Problem &p = f.p;
    const int64_t place = (stream / p.heads * p.tokens + t) * p.heads + stream % p.heads;
    if (DELTA) return {f.errors + place * p.values, *at(p.beta, stream, p.heads, t), place};
    return {at(p.v, stream, p.heads, t), 1.0f, place};
}

// to = from Diag(a) + u k^T
template <int N, bool DELTA>
INLINE void write(const Backward &f, int64_t stream, int64_t t, const Line *from, Line *to) {
    const Problem &p = f.p;
    const Token now = token<DELTA>(f, stream, t);
    vec k[N], a[N];
    load(k, at(p.k, stream, p.heads, t), p.keys);
    load_decay(a, p, stream, t);
    for (int64_t j = 0; j < p.values; ++j) {
        const float u = now.beta * now.value[j];
        EACH(n) to[j * N + n].x = a[n] * from[j * N + n].x + u * k[n];
    }
}

// One token backwards. `state` is S_t and becomes S_{t-1} where there is no decay; with decay S_t
// and S_{t-1} are given. `grad` is the gradient of S_t from later tokens and becomes that of S_{t-1}.
template <int N, bool DELTA, bool GATED, bool READS>
INLINE void back(const Backward &f, int64_t stream, int64_t t, Line *state, const Line *before,
                 Line *grad) {
    const Problem &p = f.p;
    const Token now = token<DELTA>(f, stream, t);
    vec k[N], q[N] = {}, a[N] = {}, dq[N] = {}, dk[N] = {}, da[N] = {};
    load(k, at(p.k, stream, p.heads, t), p.keys);
    if (READS) load(q, at(p.q, stream, p.heads, t), p.keys);
    if (GATED) load_decay(a, p, stream, t);
    const float *out = READS ? at(f.outputs_grad, stream, p.heads, t) : nullptr;
    float *dv = f.dv + now.place * p.values;
    float dbeta = 0;
    for (int64_t j = 0; j < p.values; ++j) {
        Line *S = state + j * N, *dS = grad + j * N;
        const float u = now.beta * now.value[j];
        vec d[N], dot = {};
        EACH(n) {
            d[n] = dS[n].x;
            if (READS) {
                d[n] += out[j] * q[n];
                dq[n] += out[j] * S[n].x;
            }
            dk[n] += u * d[n];
            dot += d[n] * k[n];
        }
        const float du = sum(dot), recalled_grad = -now.beta * du;
        dv[j] = now.beta * du;
        if (DELTA) dbeta += du * now.value[j];
        EACH(n) {
            const vec kept = GATED ? a[n] * before[j * N + n].x : S[n].x - u * k[n];
            if (!GATED) S[n].x = kept;
            if (DELTA) {
                dk[n] += recalled_grad * kept;
                d[n] += recalled_grad * k[n];
            }
            if (GATED) {
                da[n] += d[n] * kept;
                d[n] *= a[n];
            }
            dS[n].x = d[n];
        }
    }
    store(f.dk + now.place * p.keys, dk, p.keys);
    if (READS) store(f.dq + now.place * p.keys, dq, p.keys);
    if (DELTA) f.dbeta[now.place] = dbeta;
    if (GATED && p.gates > 1) store(f.dgate + now.place * p.keys, da, p.keys);
    if (GATED && p.gates == 1) {
        vec total = {};
        EACH(n) total += da[n];
        f.dgate[now.place] = sum(total);
    }
}

template <int N>
INLINE void load_matrix(Line *to, const float *from, const Problem &p) {
    for (int64_t j = 0; j < p.values; ++j)
        std::memcpy(to + j * N, from + j * p.keys, p.keys * sizeof(float));
}

template <int N, bool DELTA, bool GATED, bool READS>
INLINE void backward_stream(const Backward &f, int64_t stream) {
    const Problem &p = f.p;
    const int64_t size = p.values * N, matrix = stream * p.values * p.keys;
    std::vector<Line> grad(size);
    if (f.final_grad) load_matrix<N>(grad.data(), f.final_grad + matrix, p);
    if (!GATED) {
        // Without decay the state before a token is the state after it less what the token wrote.
        std::vector<Line> state(size);
        load_matrix<N>(state.data(), f.final + matrix, p);
        for (int64_t t = p.tokens - 1; t >= 0; --t)
            back<N, DELTA, GATED, READS>(f, stream, t, state.data(), nullptr, grad.data());
    } else {
        // Dividing by a decay would magnify rounding: keep a state per segment of sqrt(tokens) and
        // run every segment forward again.
        const int64_t step = std::max<int64_t>(1, std::llround(std::sqrt(double(p.tokens))));
        const int64_t segments = (p.tokens + step - 1) / step;
        std::vector<Line> starts(segments * size), states((step + 1) * size);
        load_matrix<N>(starts.data(), p.initial + matrix, p);
        for (int64_t s = 0; s + 1 < segments; ++s) {
            Line *next = starts.data() + (s + 1) * size;
            std::copy_n(next - size, size, next);
            for (int64_t t = s * step; t < (s + 1) * step; ++t)
                write<N, DELTA>(f, stream, t, next, next);
        }
        for (int64_t s = segments - 1; s >= 0; --s) {
            const int64_t first = s * step, count = std::min(step, p.tokens - first);
            std::copy_n(starts.data() + s * size, size, states.data());
            for (int64_t i = 0; i < count; ++i)
                write<N, DELTA>(f, stream, first + i, states.data() + i * size,
                                states.data() + (i + 1) * size);
            for (int64_t i = count - 1; i >= 0; --i)
                back<N, DELTA, GATED, READS>(f, stream, first + i, states.data() + (i + 1) * size,
                                             states.data() + i * size, grad.data());
        }
    }
    for (int64_t j = 0; j < p.values; ++j)
        std::memcpy(f.dinitial + matrix + j * p.keys, grad.data() + j * N,
                    p.keys * sizeof(float));
}

template <int N>
INLINE void backward_rule(const Backward &f, int64_t stream) {
    const bool delta = f.p.beta.data, gated = f.p.gates > 0, reads = f.outputs_grad.data;
    if (delta && !gated && reads) return backward_stream<N, true, false, true>(f, stream);
    if (delta && !gated) return backward_stream<N, true, false, false>(f, stream);
    if (delta && reads) return backward_stream<N, true, true, true>(f, stream);
    if (delta) return backward_stream<N, true, true, false>(f, stream);
    if (reads) return backward_stream<N, false, true, true>(f, stream);
    return backward_stream<N, false, true, false>(f, stream);
}

CLONED void backward_piece(const Backward &f, int64_t stream) {
    switch ((f.p.keys + WIDTH - 1) / WIDTH) {
        case 1: return backward_rule<1>(f, stream);
        case 2: return backward_rule<2>(f, stream);
        case 3: return backward_rule<3>(f, stream);
        case 4: return backward_rule<4>(f, stream);
        case 5: return backward_rule<5>(f, stream);
        case 6: return backward_rule<6>(f, stream);
        default: return backward_rule<MAX_VECTORS>(f, stream);
    }
}

}  // namespace

extern "C" {

// Returns 0, or 1 where memory ran out.
int tabicl_backward(const Problem *problem, const float *errors, const float *final,
                    const float *final_grad, const View *outputs_grad, float *dq, float *dk,
                    float *dv, float *dbeta, float *dgate, float *dinitial) {
    const Backward f = {*problem, errors, final, final_grad, *outputs_grad, dq,
                        dk,       dv,     dbeta, dgate,      dinitial};
    return !share(f.p.batch * f.p.heads, f.p.threads,
                  [&](int64_t stream) { backward_piece(f, stream); });
}

}  // extern "C"
