// Normal and uniform numbers with the same bits as those of a PyTorch generator on the CPU, and the random maps of
// the priors; called by backends/cpp/random.py. PyTorch advances the Mersenne twister number by number, which
// takes most of the time of drawing a normal number; here a whole state is advanced at once.
//
// The bits are those of PyTorch's AVX2 code: logarithm, sine and cosine are the polynomials of Cephes, evaluated
// in PyTorch's order (aten/src/ATen/native/cpu/avx_mathfun.h). The caller compares them with PyTorch's before use.

#include "vectors.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

typedef int32_t ints __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t words __attribute__((vector_size(4 * WIDTH)));

constexpr int64_t SIZE = 624, AHEAD = 397, BLOCK = 16, BLOCKS = 2 * WIDTH / BLOCK;
constexpr float UNIT = 1.0f / (1 << 24);

// The first part of the bytes that `torch.Generator.get_state` returns.
struct Saved {
    uint64_t seed;
    int32_t left, seeded;
    uint64_t next, state[SIZE];
};

struct Numbers {
    Saved *saved;
    float *out;          // [rows, columns]
    const float *scale;  // [rows]; null for neither scale nor shift
    const float *shift;  // [rows]
    int64_t rows, columns;
    int is_normal;
};

struct Maps {
    Saved *saved;
    float *weight, *bias, *noise;              // [outputs, inputs], [outputs], [outputs]
    const int64_t *map, *position;             // [outputs]: map of each output, and its place there
    const int64_t *blocks, *heights, *widths;  // [maps]: diagonal blocks and their sizes; null for none
    const float *stds;                         // [maps]: of weights inside blocks
    int64_t outputs, inputs;
    float std, dropout, bound, noise_std;
    int has_dropout, has_unit_noise;
};

template <typename T>
INLINE T twisted(T here, T next, T ahead) {
    const T mixed = (here & 0x80000000u) | (next & 0x7fffffffu);
    return ahead ^ (mixed >> 1) ^ (-(next & 1u) & 0x9908b0dfu);
}

// The tempered output of the twister; PyTorch makes a float of its low 24 bits.
template <typename T>
INLINE T tempered(T y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    y ^= y >> 18;
    return y & 0xffffffu;
}

INLINE words load(const uint32_t *from) {
    words x;
    std::memcpy(&x, from, sizeof(x));
    return x;
}

INLINE void advance(uint32_t *p, int64_t from, int64_t to, int64_t ahead) {
    int64_t i = from;
    for (; i + WIDTH <= to; i += WIDTH) {
        const words x = twisted(load(p + i), load(p + i + 1), load(p + i + ahead));
        std::memcpy(p + i, &x, sizeof(x));
    }
    for (; i < to; ++i) p[i] = twisted(p[i], p[i + 1], p[i + ahead]);
}

struct Twister {
    uint32_t state[SIZE];
    int64_t next, left;

    explicit Twister(const Saved &s) : next(s.next), left(s.left - 1) {
        std::copy_n(s.state, SIZE, state);
    }

    void save(Saved &s) const {
        std::copy_n(state, SIZE, s.state);
        s.next = next;
        s.left = int32_t(left + 1);
    }
};

INLINE void refill(Twister &g) {
    uint32_t *p = g.state;
    advance(p, 0, SIZE - AHEAD, AHEAD);
    advance(p, SIZE - AHEAD, SIZE - 1, AHEAD - SIZE);
    p[SIZE - 1] = twisted(p[SIZE - 1], p[0], p[AHEAD - 1]);
    g.next = 0;
    g.left = SIZE;
}

INLINE void uniform(Twister &g, float *out, int64_t count) {
    while (count) {
        if (!g.left) refill(g);
        const int64_t now = std::min(count, g.left);
        const uint32_t *from = g.state + g.next;
        int64_t i = 0;
        for (; i + WIDTH <= now; i += WIDTH) {
            const ints whole = (ints)tempered(load(from + i));
            const vec x = __builtin_convertvector(whole, vec) * UNIT;
            std::memcpy(out + i, &x, sizeof(x));
        }
        for (; i < now; ++i) out[i] = float(int32_t(tempered(from[i]))) * UNIT;
        out += now;
        count -= now;
        g.next += now;
        g.left -= now;
    }
}

INLINE vec root(vec x) {
#if defined(__x86_64__)
    union {
        vec whole;
        __m128 parts[WIDTH / 4];
    } a = {x};
    _Pragma("GCC unroll 4") for (int i = 0; i < WIDTH / 4; ++i) a.parts[i] = _mm_sqrt_ps(a.parts[i]);
    return a.whole;
#else
    for (int i = 0; i < WIDTH; ++i) x[i] = __builtin_sqrtf(x[i]);
    return x;
#endif
}

// The compiler fuses products and sums where the processor can, as in PyTorch.
INLINE vec logarithm(vec x) {
    const ints bits = (ints)x, one = (ints)(vec{} + 1.0f);
    vec e = __builtin_convertvector((ints)((words)bits >> 23) - 0x7f, vec) + 1.0f;
    x = (vec)((bits & ~0x7f800000) | 0x3f000000);
    const ints small = x < 0.707106781186547524f;
    const vec more = (vec)((ints)x & small);
    e = e - (vec)(one & small);
    x = x - 1.0f + more;
    const vec z = x * x;
    vec y = vec{} + 7.0376836292E-2f;
    y = y * x - 1.1514610310E-1f;
    y = y * x + 1.1676998740E-1f;
    y = y * x - 1.2420140846E-1f;
    y = y * x + 1.4249322787E-1f;
    y = y * x - 1.6668057665E-1f;
    y = y * x + 2.0000714765E-1f;
    y = y * x - 2.4999993993E-1f;
    y = y * x + 3.3333331174E-1f;
    y = y * x;
    y = y * z;
    const vec tail = e * -2.12194440e-4f;
    y = y + tail;
    y = y - z * 0.5f;
    return x + y + e * 0.693359375f;
}

INLINE void sine_and_cosine(vec x, vec &sine, vec &cosine) {
    const ints j = (__builtin_convertvector(x * 1.27323954473516f, ints) + 1) & ~1;
    const vec turns = __builtin_convertvector(j, vec);
    x = x + turns * -0.78515625f;
    x = x + turns * -2.4187564849853515625e-4f;
    x = x + turns * -3.77489497744594108e-8f;
    const vec z = x * x;
    vec even = vec{} + 2.443315711809948E-005f, odd = vec{} - 1.9515295891E-4f;
    even = even * z - 1.388731625493765E-003f;
    even = even * z + 4.166664568298827E-002f;
    even = even * z * z - z * 0.5f + 1.0f;
    odd = odd * z + 8.3321608736E-3f;
    odd = odd * z - 1.6666654611E-1f;
    odd = odd * z * x + x;
    const ints near = (j & 2) == 0;
    sine = (vec)((((ints)odd & near) | ((ints)even & ~near)) ^ ((j & 4) << 29));
    cosine = (vec)((((ints)even & near) | ((ints)odd & ~near)) ^ ((~(j - 2) & 4) << 29));
}

// Eight numbers of each of `BLOCKS` blocks, as many as a vector holds.
INLINE vec gathered(const float *blocks) {
    vec x;
    for (int64_t i = 0; i < BLOCKS; ++i)
        std::memcpy(reinterpret_cast<char *>(&x) + i * sizeof(eight), blocks + i * BLOCK, sizeof(eight));
    return x;
}

INLINE void scatter(vec x, float *blocks) {
    for (int64_t i = 0; i < BLOCKS; ++i)
        std::memcpy(blocks + i * BLOCK, reinterpret_cast<const char *>(&x) + i * sizeof(eight), sizeof(eight));
}

// Box and Muller: the first half of a block gives radii, the second angles.
INLINE void transform(float *blocks) {
    const vec radius = root(-2.0f * logarithm(1.0f - gathered(blocks)));
    vec sine, cosine;
    sine_and_cosine(6.283185307179586f * gathered(blocks + BLOCK / 2), sine, cosine);
    scatter(radius * cosine + 0.0f, blocks);
    scatter(radius * sine + 0.0f, blocks + BLOCK / 2);
}

INLINE void transform_one(float *block) {
    float blocks[BLOCKS * BLOCK] = {};
    std::copy_n(block, BLOCK, blocks);
    transform(blocks);
    std::copy_n(blocks, BLOCK, block);
}

// `count` is at least BLOCK. As in PyTorch, the last BLOCK numbers are drawn again if it is not a multiple.
INLINE void normal(Twister &g, float *out, int64_t count) {
    uniform(g, out, count);
    int64_t i = 0;
    for (; i + BLOCKS * BLOCK <= count; i += BLOCKS * BLOCK) transform(out + i);
    for (; i + BLOCK <= count; i += BLOCK) transform_one(out + i);
    if (count % BLOCK) {
        uniform(g, out + count - BLOCK, BLOCK);
        transform_one(out + count - BLOCK);
    }
}

// Written with vectors, here and below, because compilers do not vectorise these loops.
INLINE void multiply(float *x, int64_t count, float by) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) *reinterpret_cast<loose *>(x + i) *= by;
    for (; i < count; ++i) x[i] *= by;
}

INLINE void add(float *x, int64_t count, float more) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) *reinterpret_cast<loose *>(x + i) += more;
    for (; i < count; ++i) x[i] += more;
}

// Replaces weights whose uniform number is below the probability by zeros with the weights' signs.
INLINE void keep(float *weight, const float *uniform, int64_t count, float dropout) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) {
        loose &some = *reinterpret_cast<loose *>(weight + i);
        const vec drawn = *reinterpret_cast<const loose *>(uniform + i);
        some *= (vec)((drawn >= dropout) & (ints)(vec{} + 1.0f));
    }
    for (; i < count; ++i) weight[i] *= uniform[i] >= dropout ? 1.0f : 0.0f;
}

CLONED void draw_numbers(const Numbers &f) {
    Twister g(*f.saved);
    if (f.is_normal)
        normal(g, f.out, f.rows * f.columns);
    else
        uniform(g, f.out, f.rows * f.columns);
    for (int64_t row = 0; f.scale && row < f.rows; ++row) {
        // In two steps, so that products are rounded before the sum, as in PyTorch.
        multiply(f.out + row * f.columns, f.columns, f.scale[row]);
        add(f.out + row * f.columns, f.columns, f.shift[row]);
    }
    g.save(*f.saved);
}

// Outputs of a block have the same inputs, and outputs beyond the last block have none.
INLINE void keep_blocks(const Maps &f) {
    for (int64_t row = 0; row < f.outputs; ++row) {
        const int64_t map = f.map[row], block = f.position[row] / f.heights[map];
        const int64_t width = f.widths[map];
        const int64_t begin = block < f.blocks[map] ? block * width : f.inputs;
        const int64_t end = block < f.blocks[map] ? begin + width : f.inputs;
        float *weight = f.weight + row * f.inputs;
        multiply(weight, begin, 0.0f);
        multiply(weight + begin, end - begin, f.stds[map]);
        multiply(weight + end, f.inputs - end, 0.0f);
    }
}

CLONED void draw_maps(const Maps &f, float *room) {
    const int64_t count = f.outputs * f.inputs;
    Twister g(*f.saved);
    normal(g, f.weight, count);
    if (f.blocks) {
        keep_blocks(f);
    } else {
        multiply(f.weight, count, f.std);
        if (f.has_dropout) {
            uniform(g, room, count);
            keep(f.weight, room, count, f.dropout);
        }
    }
    uniform(g, f.bias, f.outputs);
    multiply(f.bias, f.outputs, 2 * f.bound);
    add(f.bias, f.outputs, -f.bound);
    if (f.has_unit_noise) {
        normal(g, f.noise, f.outputs);
        for (int64_t i = 0; i < f.outputs; ++i) f.noise[i] = __builtin_fabsf(f.noise[i]) * f.noise_std;
    } else {
        std::fill_n(f.noise, f.outputs, f.noise_std);
    }
    g.save(*f.saved);
}

}  // namespace

extern "C" {

void tabicl_numbers(const Numbers *f) { draw_numbers(*f); }

// `room` has a number for every weight if there is dropout.
void tabicl_maps(const Maps *f, float *room) { draw_maps(*f, room); }

}  // extern "C"
