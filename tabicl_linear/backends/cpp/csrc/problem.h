// The arguments of an update rule; the same structures as in backends/cpp/problem.py.

#pragma once

#include <cstdint>

extern "C" {

// An array [batch, token, head, channel] whose channels are contiguous; strides in elements.
struct View {
    const void *data;
    int64_t batch, token, head;
    int64_t lowered;  // elements are bfloat16, otherwise float
};

struct Problem {
    int64_t batch, tokens, heads, keys, values;
    int64_t gates;  // channels of decay: 0 without it, 1 or `keys`
    int64_t chunk;  // tokens in a chunk; unused by rules that go token by token
    View q, k, v;   // q.data is null if nothing is read
    View beta;      // write rates, float; null for rates of one
    View decay;     // float; null without gates
    const float *initial;  // [batch, heads, values, keys]
    int64_t threads;
};

}  // extern "C"
