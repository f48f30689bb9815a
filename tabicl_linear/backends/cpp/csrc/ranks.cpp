// Ranks of floats within their rows, and counts of boundaries below them; called by backends/cpp/random.py. Rows
// are sorted by the bytes of their bits (radix sort), which is faster than by comparisons.

#include "vectors.h"

namespace {

constexpr int BYTES = 4, VALUES = 256;

struct Ranks {
    const float *values;
    float *out;
    int64_t rows, columns;
};

struct Bins {
    const float *values, *boundaries;  // [rows, columns], [rows, most]
    float *out;
    const int64_t *number;  // [rows]: boundaries that count, the first ones; null for all
    int64_t rows, columns, most;
};

struct Entry {
    uint32_t key, place;
};

// Maps floats to whole numbers in the same order; NaN counts as infinity, and -0 equals 0.
INLINE uint32_t key_of(float x) {
    if (x != x) x = __builtin_inff();
    if (x == 0) x = 0;
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

INLINE void sort(Entry *&from, Entry *&to, int64_t count, int64_t counts[BYTES][VALUES]) {
    for (int byte = 0; byte < BYTES; ++byte) {
        int64_t *starts = counts[byte], total = 0;
        if (starts[from->key >> 8 * byte & 255] == count) continue;  // the same in all
        for (int value = 0; value < VALUES; ++value) {
            const int64_t own = starts[value];
            starts[value] = total;
            total += own;
        }
        for (int64_t i = 0; i < count; ++i) to[starts[from[i].key >> 8 * byte & 255]++] = from[i];
        std::swap(from, to);
    }
}

INLINE void rank(const float *x, float *out, int64_t count, Entry *from, Entry *to) {
    int64_t counts[BYTES][VALUES] = {};
    for (int64_t i = 0; i < count; ++i) {
        from[i] = {key_of(x[i]), uint32_t(i)};
        for (int byte = 0; byte < BYTES; ++byte) ++counts[byte][from[i].key >> 8 * byte & 255];
    }
    sort(from, to, count, counts);
    int64_t at_most = count;
    for (int64_t i = count - 1; i >= 0; --i) {
        if (i + 1 < count && from[i].key != from[i + 1].key) at_most = i + 1;
        const float value = x[from[i].place];
        out[from[i].place] = value == value ? float(at_most) : 0.0f;
    }
}

CLONED void count_below(const Bins &f) {
    typedef int32_t ints __attribute__((vector_size(4 * WIDTH)));
    for (int64_t row = 0; row < f.rows; ++row) {
        const float *values = f.values + row * f.columns, *boundaries = f.boundaries + row * f.most;
        float *out = f.out + row * f.columns;
        const int64_t number = f.number ? f.number[row] : f.most;
        int64_t i = 0;
        for (; i + WIDTH <= f.columns; i += WIDTH) {
            const vec value = *reinterpret_cast<const loose *>(values + i);
            ints below = {};
            for (int64_t j = 0; j < number; ++j) below -= value > boundaries[j];
            *reinterpret_cast<loose *>(out + i) = __builtin_convertvector(below, vec);
        }
        for (; i < f.columns; ++i) {
            out[i] = 0;
            for (int64_t j = 0; j < number; ++j) out[i] += values[i] > boundaries[j];
        }
    }
}

}  // namespace

extern "C" {

// How many boundaries of a row lie below each of its values; comparisons with NaN are false.
void tabicl_count_below(const Bins *f) { count_below(*f); }

// How many values of a row are at most as large as each of them, NaN being the largest; 0 for NaN.
// False if memory ran out.
bool tabicl_ranks(const Ranks *f) {
    if (!f->columns) return true;
    try {
        std::vector<Entry> room(2 * f->columns);
        for (int64_t row = 0; row < f->rows; ++row) {
            const int64_t start = row * f->columns;
            rank(f->values + start, f->out + start, f->columns, room.data(), room.data() + f->columns);
        }
        return true;
    } catch (const std::bad_alloc &) {
        return false;
    }
}

}  // extern "C"
