// Matrix states token by token, forward and backward; called by backends/cpp/rules.py.
//
//     S_t = S~ + u_t k_t^T,   S~ = S_{t-1} Diag(a_t),   o_t = S_t q_t,
//     u_t = b_t (v_t - S~ k_t) for the (gated) delta rule,   u_t = v_t for additive rules.
//
// A state fits into the L1 cache. Going token by token needs no more arithmetic than the definition
// and is faster on a CPU than the chunked form with its triangular solves. Streams (one head of one
// task each) are independent and are divided among the threads. Key and value dimensions are padded
// with zeros to whole vectors; the padding does not change any result.

#pragma once

#include "problem.h"
#include "vectors.h"

namespace {

INLINE const float *at(const View &view, int64_t stream, int64_t heads, int64_t token) {
    return static_cast<const float *>(view.data) + (stream / heads) * view.batch +
           (stream % heads) * view.head + token * view.token;
}

// Loads `count` floats into N vectors; the remaining lanes are zero. The copy goes through a buffer, because
// an array of `vec` whose address is taken would not stay in registers.
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
    const float *alpha = at(p.decay, stream, p.heads, token);
    if (p.gates > 1) return load(to, alpha, p.keys);
    EACH(n) to[n] = vec{} + *alpha;
}

}  // namespace
