// Trees grown from the root on columns of small whole numbers, the number of leaves that two rows share and of
// rows that two leaves share, sums of the rows of each leaf, and the leaves that rows fall into; called by
// backends/cpp/tree_growth.py. A node visits only its own rows. It sums targets by number for one column at a
// time, and a bit map tells which numbers occur, so that a node of few rows looks at few numbers.

#include "share.h"
#include "vectors.h"

namespace {

constexpr int NUMBERS = 256, WORD = 64;

struct Tree {
    const uint8_t *numbers;  // [columns, rows]
    const double *targets;   // [rows, outputs]
    const uint8_t *allowed;  // [inner nodes, columns]
    int32_t *columns;        // [inner nodes]: what a node asks about; -1 for a leaf
    int32_t *cuts;           // [inner nodes, 2]: largest number before the cut, smallest after it
    int32_t *nodes;          // [rows]: the node in which a row ends
    int64_t rows, num_columns, outputs, depth, fewest;
    double least;
};

// The best question of a node so far.
struct Question {
    double gain;
    int32_t column, before, after;
};

// Sums of the targets of rows by one of their numbers.
struct Sums {
    std::vector<double> at, left;
    std::vector<int32_t> counts;
    uint64_t occurs[NUMBERS / WORD] = {};

    explicit Sums(int64_t outputs)
        : at(NUMBERS * outputs), left(outputs), counts(NUMBERS) {}
};

INLINE double squares(const double *x, int64_t count) {
    double total = 0;
    for (int64_t k = 0; k < count; ++k) total += x[k] * x[k];
    return total;
}

INLINE double squares_of_rest(const double *all, const double *x, int64_t count) {
    double total = 0;
    for (int64_t k = 0; k < count; ++k) total += (all[k] - x[k]) * (all[k] - x[k]);
    return total;
}

INLINE void add(double *to, const double *x, int64_t count) {
    for (int64_t k = 0; k < count; ++k) to[k] += x[k];
}

template <int64_t fixed>
INLINE void gather(const Tree &f, Sums &s, const uint8_t *column, const int32_t *rows, int64_t count) {
    const int64_t outputs = fixed ? fixed : f.outputs;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t row = rows[i], number = column[row];
        s.occurs[number / WORD] |= uint64_t{1} << number % WORD;
        ++s.counts[number];
        add(&s.at[number * outputs], f.targets + row * outputs, outputs);
    }
}

// Tries all cuts of a column in ascending order, and resets the sums.
template <int64_t fixed>
INLINE void scan(const Tree &f, Sums &s, const double *all, int64_t count, int32_t column,
                 Question &best) {
    const int64_t outputs = fixed ? fixed : f.outputs;
    std::fill_n(s.left.data(), outputs, 0.0);
    int64_t seen = 0;
    int32_t last = -1;
    for (int word = 0; word < NUMBERS / WORD; ++word) {
        for (uint64_t bits = s.occurs[word]; bits; bits &= bits - 1) {
            const int32_t number = word * WORD + __builtin_ctzll(bits);
            if (seen >= f.fewest && count - seen >= f.fewest) {
                const double gain = squares(s.left.data(), outputs) / seen +
                                    squares_of_rest(all, s.left.data(), outputs) / (count - seen);
                if (gain > best.gain) best = {gain, column, last, number};
            }
            double *here = &s.at[number * outputs];
            add(s.left.data(), here, outputs);
            seen += s.counts[number];
            std::fill_n(here, outputs, 0.0);
            s.counts[number] = 0;
            last = number;
        }
        s.occurs[word] = 0;
    }
}

// Asks one question in each inner node, from the root down: node i is followed by 2 i + 1 and 2 i + 2.
template <int64_t fixed>
INLINE void grow(const Tree &f) {
    const int64_t outputs = fixed ? fixed : f.outputs;
    const int64_t inner = (int64_t{1} << f.depth) - 1;
    std::vector<int64_t> first(2 * inner + 1), last(2 * inner + 1);
    std::vector<int32_t> rows(f.rows), others(f.rows);
    std::vector<double> all(outputs);
    Sums sums(outputs);
    for (int64_t i = 0; i < f.rows; ++i) rows[i] = i, f.nodes[i] = 0;
    last[0] = f.rows;
    for (int64_t node = 0; node < inner; ++node) {
        int32_t *own = rows.data() + first[node];
        const int64_t count = last[node] - first[node];
        std::fill(all.begin(), all.end(), 0.0);
        for (int64_t i = 0; i < count; ++i) add(all.data(), f.targets + own[i] * outputs, outputs);
        Question best{squares(all.data(), outputs) / (count ? count : 1) + f.least, -1, 0, 0};
        if (count >= 2 * f.fewest)
            for (int64_t c = 0; c < f.num_columns; ++c)
                if (f.allowed[node * f.num_columns + c]) {
                    gather<fixed>(f, sums, f.numbers + c * f.rows, own, count);
                    scan<fixed>(f, sums, all.data(), count, c, best);
                }
        f.columns[node] = best.column, f.cuts[2 * node] = best.before;
        f.cuts[2 * node + 1] = best.after;
        if (best.column < 0) continue;
        const uint8_t *column = f.numbers + best.column * f.rows;
        int64_t before = 0, after = 0;
        for (int64_t i = 0; i < count; ++i) {
            const bool is_after = column[own[i]] > best.before;
            f.nodes[own[i]] = 2 * node + 1 + is_after;
            (is_after ? others[after++] : own[before++]) = own[i];
        }
        std::copy_n(others.begin(), after, own + before);
        first[2 * node + 1] = first[node], last[2 * node + 1] = first[node] + before;
        first[2 * node + 2] = first[node] + before, last[2 * node + 2] = last[node];
    }
}

CLONED void grow_any(const Tree &f) { f.outputs == 1 ? grow<1>(f) : grow<0>(f); }

struct Shared {
    const uint8_t *leaves;  // [trees, padded rows]
    float *out;             // [rows, rows]
    int64_t trees, rows, padded;
};

typedef uint8_t bytes __attribute__((vector_size(WORD)));

CLONED void shared_of_row(const Shared &f, int64_t row) {
    for (int64_t j = 0; j < f.rows; j += WORD) {
        bytes total = {};
        for (int64_t t = 0; t < f.trees; ++t) {
            bytes leaves;
            std::memcpy(&leaves, f.leaves + t * f.padded + j, WORD);
            total -= (bytes)(leaves == f.leaves[t * f.padded + row]);
        }
        const int64_t count = std::min<int64_t>(WORD, f.rows - j);
        for (int64_t i = 0; i < count; ++i) f.out[row * f.rows + j + i] = total[i];
    }
}

struct Pairs {
    const int32_t *leaves;  // [trees, rows]: numbers of leaves, consecutive over all trees
    const int32_t *first, *last;  // [trees]: lowest and highest of these numbers
    int32_t *counts;              // [leaves, leaves]: for a leaf and one of the same or a later tree
    int64_t trees, rows, num_leaves;
};

// Counts pairs of one tree and itself or a later one, in a table that stays in the cache and is then added.
CLONED void pairs_of_tree(const Pairs &f, int64_t tree) {
    const int32_t *own = f.leaves + tree * f.rows;
    const int64_t first = f.first[tree], height = f.last[tree] - first + 1;
    std::vector<int32_t> table;
    for (int64_t other = tree; other < f.trees; ++other) {
        const int32_t *leaves = f.leaves + other * f.rows;
        const int64_t start = f.first[other], width = f.last[other] - start + 1;
        table.assign(height * width, 0);
        for (int64_t i = 0; i < f.rows; ++i) ++table[(own[i] - first) * width + leaves[i] - start];
        for (int64_t a = 0; a < height; ++a) {
            int32_t *to = f.counts + (first + a) * f.num_leaves + start;
            for (int64_t b = 0; b < width; ++b) to[b] += table[a * width + b];
        }
    }
}

struct LeafSums {
    const int32_t *leaves;  // [rows, trees]
    const double *rows;     // [rows, width]
    double *sums;           // [leaves, width]
    int64_t count, trees, width;
};

constexpr int64_t TOGETHER = 4, LANES = MANY_REGISTERS ? 8 : 4;
typedef double anywhere __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

// Sums for a few trees at a time, which stay in the cache while each row is added to those of its leaves.
CLONED void leaf_sums_of_trees(const LeafSums &f, int64_t first) {
    const int64_t last = std::min(f.trees, first + TOGETHER), whole = f.width - f.width % LANES;
    for (int64_t i = 0; i < f.count; ++i) {
        const double *row = f.rows + i * f.width;
        for (int64_t t = first; t < last; ++t) {
            double *sums = f.sums + f.leaves[i * f.trees + t] * f.width;
            for (int64_t c = 0; c < whole; c += LANES)
                *reinterpret_cast<anywhere *>(sums + c) += *reinterpret_cast<const anywhere *>(row + c);
            add(sums + whole, row + whole, f.width - whole);
        }
    }
}

struct Ways {
    const float *rows;         // [rows, columns]
    const int32_t *columns;    // [nodes]: what a node asks about
    const float *thresholds;   // [nodes]
    const int32_t *following;  // [nodes, 2]: after the answers no and yes; a leaf is followed by itself
    const int32_t *leaves;     // [nodes]
    const int32_t *roots;      // [trees]
    int32_t *out;              // [rows, trees]
    int64_t count, num_columns, trees, depth;
};

// All rows of a block take each step together, so that their loads do not wait for each other.
CLONED void ways_of_block(const Ways &f, int64_t block) {
    const int64_t start = block * WORD, count = std::min<int64_t>(WORD, f.count - start);
    const float *rows = f.rows + start * f.num_columns;
    int32_t place[WORD];
    for (int64_t t = 0; t < f.trees; ++t) {
        std::fill_n(place, count, f.roots[t]);
        for (int64_t d = 0; d < f.depth; ++d)
            for (int64_t i = 0; i < count; ++i) {
                const int32_t node = place[i];
                const float cell = rows[i * f.num_columns + f.columns[node]];
                place[i] = f.following[2 * node + (cell <= f.thresholds[node])];
            }
        for (int64_t i = 0; i < count; ++i) f.out[(start + i) * f.trees + t] = f.leaves[place[i]];
    }
}

}  // namespace

extern "C" {

// False if memory ran out.
bool tabicl_tree(const Tree *f) {
    return share(1, 1, [&](int64_t) { grow_any(*f); });
}

void tabicl_shared(const Shared *f, int64_t threads) {
    share(f->rows, threads, [&](int64_t row) { shared_of_row(*f, row); });
}

// False if memory ran out; counts of some trees have been added then.
bool tabicl_pairs(const Pairs *f, int64_t threads) {
    return share(f->trees, threads, [&](int64_t tree) { pairs_of_tree(*f, tree); });
}

void tabicl_leaf_sums(const LeafSums *f, int64_t threads) {
    const int64_t groups = (f->trees + TOGETHER - 1) / TOGETHER;
    share(groups, threads, [&](int64_t group) { leaf_sums_of_trees(*f, group * TOGETHER); });
}

void tabicl_ways(const Ways *f, int64_t threads) {
    share((f->count + WORD - 1) / WORD, threads, [&](int64_t block) { ways_of_block(*f, block); });
}

}  // extern "C"
