// Matrix memories token by token, forward and backward, for the CPU (compiled.py is the way in).
//
//     S_t = S~ + u_t k_t^T,   S~ = S_{t-1} Diag(a_t),   o_t = S_t q_t,
//     u_t = b_t (v_t - S~ k_t) for the (gated) delta rule,   u_t = v_t for additive memories.
//
// One state is small enough for the innermost cache, so this order of work, with no more arithmetic
// than the definition, is faster on a CPU than the chunked form with its triangular solves. Streams
// (one head of one task) are independent and are shared out among threads. Key and value dimensions
// are padded to whole vectors with zeros, which write and read nothing.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#if defined(__x86_64__) && defined(__gnu_linux__)
// One library for every x86-64: the loader picks the clone that the processor can run.
#define CLONED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), flatten))
#else
#define CLONED
#endif
#define EACH(n) _Pragma("GCC unroll 8") for (int n = 0; n < N; ++n)
#define INLINE static inline __attribute__((always_inline))

namespace {

constexpr int WIDTH = 16;
constexpr int MAX_VECTORS = 8;
typedef float vec __attribute__((vector_size(4 * WIDTH)));
typedef float half __attribute__((vector_size(2 * WIDTH)));
typedef float quarter __attribute__((vector_size(WIDTH)));

struct alignas(64) Line {
    vec x;
};

}  // namespace

extern "C" {

// Elements [batch, token, head, channel] with channel stride 1; strides in elements.
struct View {
    const float *data;
    int64_t batch, token, head;
};

struct Problem {
    int64_t batch, tokens, heads, keys, values;
    int64_t gates;  // channels of alpha: 0 without decay, 1 or `keys`
    View q, k, v;   // q.data is null where nothing is read
    View beta;      // null for additive memories
    View alpha;
    const float *initial;  // [batch, heads, values, keys]
    int64_t threads;
};

}  // extern "C"

namespace {

INLINE const float *at(const View &view, int64_t stream, int64_t heads, int64_t token) {
    return view.data + (stream / heads) * view.batch + (stream % heads) * view.head +
           token * view.token;
}

INLINE float sum(vec x) {
    union {
        vec whole;
        half parts[2];
    } a = {x};
    union {
        half whole;
        quarter parts[2];
    } b = {a.parts[0] + a.parts[1]};
    const quarter c = b.parts[0] + b.parts[1];
    return (c[0] + c[2]) + (c[1] + c[3]);
}

// Reads `count` floats into N vectors with zeros behind them. Arrays of `vec` whose address nobody
// takes stay in registers, so what is copied by bytes goes through a buffer.
template <int N>
INLINE void load(vec (&to)[N], const float *from, int64_t count) {
    Line buffer[N] = {};
    std::memcpy(buffer, from, count * sizeof(float));
    EACH(n) to[n] = buffer[n].x;
}

template <int N>
INLINE void store(float *to, const vec (&from)[N], int64_t count) {
    Line buffer[N];
    EACH(n) buffer[n].x = from[n];
    std::memcpy(to, buffer, count * sizeof(float));
}

// The decay of every key channel of a token.
template <int N>
INLINE void load_decay(vec (&to)[N], const Problem &p, int64_t stream, int64_t token) {
    const float *alpha = at(p.alpha, stream, p.heads, token);
    if (p.gates > 1) return load(to, alpha, p.keys);
    EACH(n) to[n] = vec{} + *alpha;
}

// ---- forward: the state transposed, [key][value], so that sums over keys need no reduction ----

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
        const float *alpha = GATED ? at(p.alpha, stream, p.heads, t) : nullptr;
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

// ---- backward: states and their gradients [value][key] ----

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

// ---- sharing the work out ----

CLONED void forward_piece(const Forward &f, int64_t stream, int64_t first, Line *scratch) {
    switch (f.tile / WIDTH) {
        case 1: return forward_rule<1>(f, stream, first, scratch);
        case 2: return forward_rule<2>(f, stream, first, scratch);
        case 4: return forward_rule<4>(f, stream, first, scratch);
        default: return forward_rule<5>(f, stream, first, scratch);
    }
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

// Runs work(i) for i < count. False if memory ran out.
template <typename Work>
bool share(int64_t count, int64_t threads, const Work &work) {
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    const auto loop = [&] {
        try {
            for (int64_t i = next++; i < count && !failed; i = next++) work(i);
        } catch (const std::bad_alloc &) {
            failed = true;
        }
    };
    std::vector<std::thread> others;
    for (int64_t i = 1; i < std::min(threads, count); ++i) others.emplace_back(loop);
    loop();
    for (std::thread &other : others) other.join();
    return !failed;
}

}  // namespace

extern "C" {

// Both return 0, or 1 where memory ran out.

int tabicl_forward(const Problem *problem, float *outputs, float *errors, float *final) {
    Forward f = {*problem, 0, outputs, errors, final};
    const int64_t streams = f.p.batch * f.p.heads;
    // As few passes over the keys as the registers allow, but work for every thread.
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

int tabicl_backward(const Problem *problem, const float *errors, const float *final,
                    const float *final_grad, const View *outputs_grad, float *dq, float *dk,
                    float *dv, float *dbeta, float *dgate, float *dinitial) {
    const Backward f = {*problem, errors, final, final_grad, *outputs_grad, dq,
                        dk,       dv,     dbeta, dgate,      dinitial};
    return !share(f.p.batch * f.p.heads, f.p.threads,
                  [&](int64_t stream) { backward_piece(f, stream); });
}

}  // extern "C"
