// Standard scores of the cells of a table; called by backends/cpp/standard_scores.py. They are computed in one
// pass, with a logarithm only for the few values outside the bounds of their column.

#include <cmath>

#include "share.h"
#include "vectors.h"

namespace {

struct Scores {
    const void *x;                                        // [tasks, rows, columns]
    void *out;
    const double *fill, *lower, *upper, *mean, *factor;  // [tasks, columns]
    const double *row_scale;                              // [tasks]
    int64_t tasks, rows, columns, pieces;
    double bound, largest;
    int is_double;
};

template <typename T>
INLINE void score_rows(const Scores &f, int64_t task, int64_t first, int64_t last) {
    const int64_t start = task * f.columns;
    for (int64_t row = first; row < last; ++row) {
        const T *x = static_cast<const T *>(f.x) + (task * f.rows + row) * f.columns;
        T *out = static_cast<T *>(f.out) + (task * f.rows + row) * f.columns;
        for (int64_t i = 0; i < f.columns; ++i) {
            const double lower = f.lower[start + i], upper = f.upper[start + i];
            double value = x[i];
            value = std::isfinite(value) ? std::clamp(value, -f.largest, f.largest) : f.fill[start + i];
            if (value < lower)
                value = std::max(value, lower - std::log1p(std::fabs(value)));
            else if (value > upper)
                value = std::min(value, upper + std::log1p(std::fabs(value)));
            value = (value - f.mean[start + i]) * f.factor[start + i];
            out[i] = T(std::clamp(value, -f.bound, f.bound) * f.row_scale[task]);
        }
    }
}

CLONED void score_piece(const Scores &f, int64_t i) {
    const int64_t task = i / f.pieces, piece = i % f.pieces;
    const int64_t first = f.rows * piece / f.pieces, last = f.rows * (piece + 1) / f.pieces;
    if (f.is_double)
        score_rows<double>(f, task, first, last);
    else
        score_rows<float>(f, task, first, last);
}

}  // namespace

extern "C" {

void tabicl_scores(const Scores *f, int64_t threads) {
    share(f->tasks * f->pieces, threads, [&](int64_t i) { score_piece(*f, i); });
}

}  // extern "C"
