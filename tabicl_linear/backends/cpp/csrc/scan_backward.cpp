// Backward. States and their gradients are stored as [value][key].

#include <cmath>

#include "scan.h"
#include "share.h"

namespace {

struct Backward {
    Problem p;
    const float *errors;         // from the forward pass; null for additive rules
    const float *final;          // state after the last token
    const float *final_grad;     // or null
    View outputs_grad;           // data is null if nothing was read
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
template <int N, bool DELTA, bool GATED>
INLINE void write(const Backward &f, int64_t stream, int64_t t, const Line *from, Line *to) {
    const Problem &p = f.p;
    const Token now = token<DELTA>(f, stream, t);
    vec k[N], a[N];
    load(k, at(p.k, stream, p.heads, t), p.keys);
    if (GATED) load_decay(a, p, stream, t);
    for (int64_t j = 0; j < p.values; ++j) {
        const float u = now.beta * now.value[j];
        EACH(n) {
            const vec kept = GATED ? a[n] * from[j * N + n].x : from[j * N + n].x;
            to[j * N + n].x = kept + u * k[n];
        }
    }
}

// The backward pass of one token. Turns `grad`, the gradient of S_t from later tokens, into that of S_{t-1}, and
// `state`, S_t, into S_{t-1}; if that is KNOWN, it is `before` instead.
template <int N, bool DELTA, bool GATED, bool READS, bool KNOWN>
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
            const vec known = KNOWN ? before[j * N + n].x : S[n].x - u * k[n];
            const vec kept = GATED ? a[n] * known : known;
            if (!KNOWN) S[n].x = known;
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

INLINE void load_matrix(Line *to, const float *from, const Problem &p, int64_t vectors) {
    for (int64_t j = 0; j < p.values; ++j)
        std::memcpy(to + j * vectors, from + j * p.keys, p.keys * sizeof(float));
}

INLINE float square(const float *x, int64_t count) {
    vec total = {};
    float rest = 0;
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) {
        vec part;
        std::memcpy(&part, x + i, sizeof(part));
        total += part * part;
    }
    for (; i < count; ++i) rest += x[i] * x[i];
    return sum(total) + rest;
}

// Goes backwards through the tokens and computes the state before each token as the state after it minus
// what the token wrote. Each difference is rounded, with an error of about ROUNDING times the larger
// number, and these errors add up. Before a large write that was later overwritten, they may even exceed
// the state. So this stops when their bound exceeds LOST times the state, or when squares exceed the
// range of float, and returns the number of tokens that are left.
template <int N, bool READS>
INLINE int64_t subtract_writes(const Backward &f, int64_t stream, Line *grad) {
    constexpr double ROUNDING = 0x1p-25, LOST = 0x1p-17;
    constexpr int64_t OFTEN = 16;  // tokens between two measurements of the state
    const Problem &p = f.p;
    const int64_t size = p.values * N;
    std::vector<Line> state(size);
    load_matrix(state.data(), f.final + stream * p.values * p.keys, p, N);
    const float *numbers = reinterpret_cast<const float *>(state.data());
    // An upper bound on |S_t|, and the sum of the squares of all such bounds so far.
    double norm = std::sqrt(square(numbers, size * WIDTH)), squares = 0;
    for (int64_t t = p.tokens - 1; t >= 0; --t) {
        back<N, true, false, READS, false>(f, stream, t, state.data(), nullptr, grad);
        const Token now = token<true>(f, stream, t);
        const double u = std::fabs(now.beta) * std::sqrt(double(square(now.value, p.values)));
        const double wrote = u * std::sqrt(double(square(at(p.k, stream, p.heads, t), p.keys)));
        const bool measure = t % OFTEN == 0 || 2 * wrote > norm;
        norm += wrote;
        squares += norm * norm;
        if (measure) norm = std::sqrt(square(numbers, size * WIDTH));
        // Negated, so that inf / inf, which is NaN, stops here too.
        if (!(squares / (norm * norm) <= (LOST / ROUNDING) * (LOST / ROUNDING))) return t;
    }
    return 0;
}

// Goes backwards through the first `end` tokens, at least one, with states computed again: one state is
// stored for each segment of sqrt(end) tokens, from which the segment is run forward. (Undoing a decay by
// a division would magnify rounding errors.)
template <int N, bool DELTA, bool GATED, bool READS>
INLINE void repeat_writes(const Backward &f, int64_t stream, int64_t end, Line *grad) {
    const Problem &p = f.p;
    const int64_t size = p.values * N;
    const int64_t step = std::llround(std::sqrt(double(end)));
    const int64_t segments = (end + step - 1) / step;
    std::vector<Line> starts(segments * size), states((step + 1) * size);
    load_matrix(starts.data(), p.initial + stream * p.values * p.keys, p, N);
    for (int64_t s = 0; s + 1 < segments; ++s) {
        Line *next = starts.data() + (s + 1) * size;
        std::copy_n(next - size, size, next);
        for (int64_t t = s * step; t < (s + 1) * step; ++t)
            write<N, DELTA, GATED>(f, stream, t, next, next);
    }
    for (int64_t s = segments - 1; s >= 0; --s) {
        const int64_t first = s * step, count = std::min(step, end - first);
        std::copy_n(starts.data() + s * size, size, states.data());
        for (int64_t i = 0; i < count; ++i)
            write<N, DELTA, GATED>(f, stream, first + i, states.data() + i * size,
                                   states.data() + (i + 1) * size);
        for (int64_t i = count - 1; i >= 0; --i)
            back<N, DELTA, GATED, READS, true>(f, stream, first + i,
                                               states.data() + (i + 1) * size,
                                               states.data() + i * size, grad);
    }
}

template <int N>
INLINE int64_t subtract_rule(const Backward &f, int64_t stream, Line *grad) {
    if (f.outputs_grad.data) return subtract_writes<N, true>(f, stream, grad);
    return subtract_writes<N, false>(f, stream, grad);
}

template <int N>
INLINE void repeat_rule(const Backward &f, int64_t stream, int64_t end, Line *grad) {
    const bool delta = f.p.beta.data, gated = f.p.gates > 0, reads = f.outputs_grad.data;
    if (!gated && reads) return repeat_writes<N, true, false, true>(f, stream, end, grad);
    if (!gated) return repeat_writes<N, true, false, false>(f, stream, end, grad);
    if (delta && reads) return repeat_writes<N, true, true, true>(f, stream, end, grad);
    if (delta) return repeat_writes<N, true, true, false>(f, stream, end, grad);
    if (reads) return repeat_writes<N, false, true, true>(f, stream, end, grad);
    return repeat_writes<N, false, true, false>(f, stream, end, grad);
}

// Numbers of vectors in a row of the state for which code is compiled. Each has functions of its own, because GCC
// keeps fewer vectors in registers if one function contains all variants.
#ifdef TABICL_WIDE
#define EACH_COUNT(do) do(1) do(2) do(3) do(4) do(5) do(6) do(8)
#else
#define EACH_COUNT(do) do(1) do(2) do(3) do(4) do(5) do(6) do(8) do(10) do(16)
#endif

#define PIECES(N)                                                                          \
    CLONED int64_t subtract_##N(const Backward &f, int64_t stream, Line *grad) {           \
        return subtract_rule<N>(f, stream, grad);                                          \
    }                                                                                      \
    CLONED void repeat_##N(const Backward &f, int64_t stream, int64_t end, Line *grad) {   \
        repeat_rule<N>(f, stream, end, grad);                                              \
    }
EACH_COUNT(PIECES)

struct Pieces {
    int64_t vectors;
    int64_t (*subtract)(const Backward &f, int64_t stream, Line *grad);
    void (*repeat)(const Backward &f, int64_t stream, int64_t end, Line *grad);
};

#define ROW(N) {N, subtract_##N, repeat_##N},
constexpr Pieces PIECES_OF[] = {EACH_COUNT(ROW)};

// The functions with the fewest vectors that hold a row.
const Pieces &pieces_for(const Problem &p) {
    const Pieces *pieces = PIECES_OF;
    while (pieces->vectors * WIDTH < p.keys) ++pieces;
    return *pieces;
}

void backward_stream(const Backward &f, int64_t stream) {
    const Problem &p = f.p;
    const Pieces &pieces = pieces_for(p);
    const int64_t vectors = pieces.vectors, matrix = stream * p.values * p.keys;
    std::vector<Line> grad(p.values * vectors);
    if (f.final_grad) load_matrix(grad.data(), f.final_grad + matrix, p, vectors);
    const int64_t left = p.gates > 0 ? p.tokens : pieces.subtract(f, stream, grad.data());
    if (left > 0) pieces.repeat(f, stream, left, grad.data());
    for (int64_t j = 0; j < p.values; ++j)
        std::memcpy(f.dinitial + matrix + j * p.keys, grad.data() + j * vectors,
                    p.keys * sizeof(float));
}

}  // namespace

extern "C" {

// Returns 0, or 1 if memory ran out.
int tabicl_backward(const Problem *problem, const float *errors, const float *final,
                    const float *final_grad, const View *outputs_grad, float *dq, float *dk,
                    float *dv, float *dbeta, float *dgate, float *dinitial) {
    const Backward f = {*problem, errors, final, final_grad, *outputs_grad, dq,
                        dk,       dv,     dbeta, dgate,      dinitial};
    return !share(f.p.batch * f.p.heads, f.p.threads,
                  [&](int64_t stream) { backward_stream(f, stream); });
}

}  // extern "C"
