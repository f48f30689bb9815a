// Logistic regressions of a few classes in double; called by backends/cpp/logistic.py. They compute the map with
// the smallest penalised loss (Newton's method), the inverse of the loss's curvature (Hessian), and the logits of
// each row under the map fitted to all other rows.
//
// With p the probabilities of a row and x its inputs, the curvature is the sum over rows of
// (diag(p) - p p') (x) x x'. That is symmetric in two classes and in two inputs, so each pair is summed once.

#include <limits>

#include "share.h"
#include "triangular.h"

namespace {

struct Problem {
    const double *x;        // [tasks, rows, width]
    const double *targets;  // [tasks, rows, classes]
    const bool *present;    // [tasks, classes]
    const double *map;      // [tasks, classes, width]: start of the search, or the fitted map
    const double *penalty;  // [width]
    const double *inverse;  // [tasks, classes * width, classes * width]: of the curvature; for `leave_out` only
    double *out;            // [tasks, ...]
    int64_t tasks, rows, classes, width, iterations;
    double enough;
};

struct Task {
    const double *x, *targets, *map, *penalty;
    const bool *present;
    int64_t rows, classes, width, size;

    Task(const Problem &f, int64_t i)
        : x(f.x + i * f.rows * f.width),
          targets(f.targets + i * f.rows * f.classes),
          map(f.map + i * f.classes * f.width),
          penalty(f.penalty),
          present(f.present + i * f.classes),
          rows(f.rows),
          classes(f.classes),
          width(f.width),
          size(f.classes * f.width) {}
};

constexpr int64_t BLOCK = 128;  // rows at a time, which stay in the cache

INLINE int64_t pairs(int64_t count) { return count * (count + 1) / 2; }

// Index of the unordered pair (a, b) among the pairs of numbers below `count`.
INLINE int64_t place(int64_t a, int64_t b, int64_t count) {
    const int64_t lower = std::min(a, b), upper = std::max(a, b);
    return lower * (2 * count - 1 - lower) / 2 + upper;
}

INLINE int64_t padded(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

template <typename T>
Room<T> zeros(int64_t count) {
    Room<T> made = room<T>(count);
    std::fill_n(made.get(), count, T(0));
    return made;
}

INLINE double dot(const double *a, const double *b, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count; ++i) total += a[i] * b[i];
    return total;
}

// Writes the probabilities of a row under a map to `p`; returns the log-loss of the row.
INLINE double predict(const Task &t, const double *map, int64_t row, double *p) {
    double most = -std::numeric_limits<double>::infinity(), total = 0, loss = 0, targets = 0;
    for (int64_t k = 0; k < t.classes; ++k)
        if (t.present[k]) {
            p[k] = dot(t.x + row * t.width, map + k * t.width, t.width);
            if (p[k] > most) most = p[k];
        }
    for (int64_t k = 0; k < t.classes; ++k) {
        const double target = t.targets[row * t.classes + k];
        if (t.present[k]) loss -= target * (p[k] - most), targets += target;
        total += p[k] = t.present[k] ? std::exp(p[k] - most) : 0.0;
    }
    for (int64_t k = 0; k < t.classes; ++k) p[k] /= total;
    return loss + targets * std::log(total);
}

// Writes the probabilities of all rows to `p`; returns the penalised loss of a map.
INLINE double loss_of(const Task &t, const double *map, double *p) {
    double loss = 0;
    for (int64_t row = 0; row < t.rows; ++row) loss += predict(t, map, row, p + row * t.classes);
    for (int64_t i = 0; i < t.size; ++i) {
        const double away = map[i] - t.map[i];
        loss += t.penalty[i % t.width] * away * away / 2;
    }
    return loss;
}

// The curvature of the loss of a task as a Cholesky factor, and memory to compute it.
template <int M, int N>
struct Curvature {
    static constexpr int64_t wide = N * LANES<double>;
    const Task &t;
    const int64_t step, panels;                   // padded pairs of classes; panels of pairs of inputs
    Room<double> weights, products, sums, panel;  // [row][step], [panel][row][wide], [step][panel][wide]
    std::vector<double> gram;
    Stripes<double, M> factor;

    explicit Curvature(const Task &task)
        : t(task),
          step(padded(pairs(task.classes), M)),
          panels(padded(pairs(task.width), wide) / wide),
          weights(zeros<double>(BLOCK * step)),
          products(zeros<double>(BLOCK * panels * wide)),
          sums(room<double>(step * panels * wide)),
          panel(room<double>(padded(task.size, M) * wide + wide * wide)),
          gram(task.size * task.size),
          factor(task.size) {}
};

template <int M, int N>
INLINE void add_rows(Curvature<M, N> &c, const double *p, int64_t first, int64_t count) {
    const Task &t = c.t;
    for (int64_t r = 0; r < count; ++r) {
        const double *of = p + (first + r) * t.classes, *x = t.x + (first + r) * t.width;
        double *weight = c.weights.get() + r * c.step, *product = c.products.get() + r * c.wide;
        for (int64_t k = 0; k < t.classes; ++k) {
            *weight++ = of[k] * (of[k] - 1);
            for (int64_t l = k + 1; l < t.classes; ++l) *weight++ = of[k] * of[l];
        }
        int64_t q = 0;
        for (int64_t a = 0; a < t.width; ++a)
            for (int64_t b = a; b < t.width; ++b, ++q)
                product[q / c.wide * BLOCK * c.wide + q % c.wide] = x[a] * x[b];
    }
    for (int64_t panel = 0; panel < c.panels; ++panel) {
        const Vec<double> *of = reinterpret_cast<Vec<double> *>(c.products.get()) + panel * BLOCK * N;
        for (int64_t i = 0; i < c.step; i += M) {
            Vec<double> total[M][N];
            double *sums = c.sums.get() + (i * c.panels + panel) * c.wide;
            ROWS(m) std::memcpy(total[m], sums + m * c.panels * c.wide, sizeof(total[m]));
            subtract<double, M, N>(total, c.weights.get() + i, c.step, of, count);
            ROWS(m) std::memcpy(sums + m * c.panels * c.wide, total[m], sizeof(total[m]));
        }
    }
}

// Factorises the curvature at the probabilities `p` of the rows; returns false if it is not positive definite.
template <int M, int N>
INLINE bool factorise_at(Curvature<M, N> &c, const double *p) {
    const Task &t = c.t;
    std::fill_n(c.sums.get(), c.step * c.panels * c.wide, 0.0);
    for (int64_t first = 0; first < t.rows; first += BLOCK)
        add_rows<M, N>(c, p, first, std::min(BLOCK, t.rows - first));
    for (int64_t k = 0; k < t.classes; ++k)
        for (int64_t l = 0; l < t.classes; ++l) {
            const double *sums = c.sums.get() + place(k, l, t.classes) * c.panels * c.wide;
            for (int64_t a = 0; a < t.width; ++a) {
                double *to = c.gram.data() + k * t.width * t.size + l * t.width;
                for (int64_t b = 0; b < a; ++b) to[a * t.size + b] = to[b * t.size + a];
                std::copy_n(sums + place(a, a, t.width), t.width - a, to + a * (t.size + 1));
            }
        }
    for (int64_t i = 0; i < t.size; ++i) c.gram[i * t.size + i] += t.penalty[i % t.width];
    return factorise<M, N>(c.gram.data(), 0.0, t.size, c.factor, c.panel.get());
}

// Replaces a column x by (LL')^-1 x; x is padded with zeros to the end of the last stripe.
template <int M>
INLINE void solve_column(const Stripes<double, M> &factor, double *column) {
    for (int64_t s = 0; s < factor.count; ++s) {
        const double *of = factor.stripe(s);
        double *own = column + s * M;
        for (int64_t p = 0; p < s * M; ++p) ROWS(m) own[m] -= of[p * M + m] * column[p];
        for (int l = 0; l < M; ++l) {
            own[l] *= of[(s * M + l) * M + l];
            for (int m = l + 1; m < M; ++m) own[m] -= of[(s * M + l) * M + m] * own[l];
        }
    }
    for (int64_t s = factor.count - 1; s >= 0; --s) {
        const double *of = factor.stripe(s);
        double *own = column + s * M;
        for (int l = M - 1; l >= 0; --l) {
            for (int m = l + 1; m < M; ++m) own[l] -= of[(s * M + l) * M + m] * own[m];
            own[l] *= of[(s * M + l) * M + l];
        }
        for (int64_t p = 0; p < s * M; ++p) ROWS(m) column[p] -= of[p * M + m] * own[m];
    }
}

// Newton's method, with smaller steps where one does not lower the loss. Ends if the curvature has no factor.
template <int M, int N>
INLINE void search(const Problem &f, int64_t task) {
    const Task t(f, task);
    Curvature<M, N> curvature(t);
    std::vector<double> p(t.rows * t.classes), other(p.size()), best(t.map, t.map + t.size), tried(best);
    std::vector<double> slope(t.size), step(padded(t.size, M));
    double loss = loss_of(t, best.data(), p.data()), part = 1;
    for (int64_t i = 0; i < f.iterations; ++i) {
        if (!factorise_at(curvature, p.data())) break;
        for (int64_t j = 0; j < t.size; ++j) slope[j] = t.penalty[j % t.width] * (best[j] - t.map[j]);
        for (int64_t row = 0; row < t.rows; ++row)
            for (int64_t k = 0; k < t.classes; ++k) {
                const double residual = p[row * t.classes + k] - t.targets[row * t.classes + k];
                for (int64_t a = 0; a < t.width; ++a)
                    slope[k * t.width + a] += residual * t.x[row * t.width + a];
            }
        std::fill(std::copy(slope.begin(), slope.end(), step.begin()), step.end(), 0.0);
        solve_column<M>(curvature.factor, step.data());
        const double gain = dot(slope.data(), step.data(), t.size) / 2;
        for (int64_t j = 0; j < t.size; ++j) tried[j] = best[j] - part * step[j];
        const double found = loss_of(t, tried.data(), other.data());
        part = found < loss ? 1 : part / 4;
        if (found < loss) loss = found, best.swap(tried), p.swap(other);
        if (!(gain > f.enough * (1 + loss))) break;
    }
    std::copy(best.begin(), best.end(), f.out + task * t.size);
}

// The inverse of the curvature: Z'Z for Z = L^-1, whose columns begin with zeros. NaN if there is no inverse.
template <int M, int N>
INLINE void invert(const Problem &f, int64_t task) {
    const Task t(f, task);
    Curvature<M, N> c(t);
    std::vector<double> p(t.rows * t.classes);
    double *out = f.out + task * t.size * t.size;
    loss_of(t, t.map, p.data());
    if (!factorise_at(c, p.data())) {
        std::fill_n(out, t.size * t.size, std::numeric_limits<double>::quiet_NaN());
        return;
    }
    const int64_t rows = c.factor.count * M, count = padded(t.size, c.wide) / c.wide;
    const Room<double> memory = zeros<double>(count * rows * c.wide);
    for (int64_t i = 0; i < t.size; ++i)
        memory[i / c.wide * rows * c.wide + i * c.wide + i % c.wide] = 1;
    Vec<double> *columns = reinterpret_cast<Vec<double> *>(memory.get());
    for (int64_t j = 0; j < count; ++j) {
        Vec<double> *own = columns + j * rows * N;
        const int64_t first = j * c.wide;
        solve_stripes<double, M, N>(c.factor, own, first / M, c.factor.count);
        for (int64_t i = 0; i < std::min(first + c.wide, t.size); i += M) {
            Vec<double> total[M][N] = {};
            const double *of = memory.get() + i / c.wide * rows * c.wide + i % c.wide;
            subtract<double, M, N>(total, of + first * c.wide, c.wide, own + first * N, rows - first);
            double found[M][N * LANES<double>];
            std::memcpy(found, total, sizeof(found));
            for (int64_t m = 0; m < std::min<int64_t>(M, t.size - i); ++m)
                for (int64_t n = 0; n < std::min(c.wide, t.size - first); ++n)
                    out[(i + m) * t.size + first + n] = out[(first + n) * t.size + i + m] = -found[m][n];
        }
    }
}

// Replaces the lower halves of small matrices [i][j], one per lane, by their Cholesky factors.
INLINE void factorise_lanes(Vec<double> *a, int64_t size) {
    for (int64_t j = 0; j < size; ++j) {
        for (int64_t i = j; i < size; ++i)
            for (int64_t m = 0; m < j; ++m) a[i * size + j] -= a[i * size + m] * a[j * size + m];
        Vec<double> root = a[j * size + j];
        for (int64_t lane = 0; lane < LANES<double>; ++lane) root[lane] = std::sqrt(root[lane]);
        for (int64_t i = j + 1; i < size; ++i) a[i * size + j] /= root;
        a[j * size + j] = root;
    }
}

// How the logits of a row with inputs x, probabilities p and targets r change when it is left out of the fit. With
// A = x' H^-1 x for the curvature H, and W = diag(p) - p p', that is A (I - W A)^-1 (p - r), or with A = LL',
// L (I - L'WL)^-1 L' (p - r). Each lane is one row.
INLINE void move(Vec<double> *factor, const Vec<double> *p, Vec<double> *change, int64_t classes,
                 Vec<double> *room) {
    Vec<double> *rest = room, *of = room + classes * classes, *moved = of + classes;
    factorise_lanes(factor, classes);
    for (int64_t a = 0; a < classes; ++a) {
        of[a] = moved[a] = Vec<double>{};
        for (int64_t m = a; m < classes; ++m) {
            of[a] += factor[m * classes + a] * p[m];
            moved[a] += factor[m * classes + a] * change[m];
        }
    }
    for (int64_t a = 0; a < classes; ++a)
        for (int64_t b = 0; b <= a; ++b) {
            Vec<double> total = of[a] * of[b] + (a == b ? 1.0 : 0.0);
            for (int64_t m = a; m < classes; ++m)
                total -= factor[m * classes + a] * p[m] * factor[m * classes + b];
            rest[a * classes + b] = total;
        }
    factorise_lanes(rest, classes);
    for (int64_t a = 0; a < classes; ++a) {
        for (int64_t m = 0; m < a; ++m) moved[a] -= rest[a * classes + m] * moved[m];
        moved[a] /= rest[a * classes + a];
    }
    for (int64_t a = classes - 1; a >= 0; --a) {
        for (int64_t m = a + 1; m < classes; ++m) moved[a] -= rest[m * classes + a] * moved[m];
        moved[a] /= rest[a * classes + a];
    }
    for (int64_t k = 0; k < classes; ++k) {
        change[k] = Vec<double>{};
        for (int64_t a = 0; a <= k; ++a) change[k] += factor[k * classes + a] * moved[a];
    }
}

// The logits of each row under the map fitted without it.
template <int M, int N>
INLINE void leave_out(const Problem &f, int64_t task) {
    const Task t(f, task);
    constexpr int64_t wide = N * LANES<double>;
    const int64_t step = padded(pairs(t.classes), M), inputs = pairs(t.width), square = t.classes * t.classes;
    const double *inverse = f.inverse + task * t.size * t.size;
    // A is linear in the products of two inputs: [pair of inputs][pair of classes].
    const Room<double> linear = zeros<double>(inputs * step), products = zeros<double>(inputs * wide);
    for (int64_t k = 0; k < t.classes; ++k)
        for (int64_t l = k; l < t.classes; ++l)
            for (int64_t a = 0; a < t.width; ++a)
                for (int64_t b = 0; b < t.width; ++b)
                    linear[place(a, b, t.width) * step + place(k, l, t.classes)] -=
                        inverse[(k * t.width + a) * t.size + l * t.width + b];
    const Room<Vec<double>> own = room<Vec<double>>(step * N), factor = room<Vec<double>>(square),
                            spare = room<Vec<double>>(square + 2 * t.classes),
                            p = room<Vec<double>>(t.classes), change = room<Vec<double>>(t.classes);
    std::vector<double> probabilities(wide * t.classes);
    for (int64_t first = 0; first < t.rows; first += wide) {
        const int64_t count = std::min(wide, t.rows - first);
        for (int64_t r = 0; r < count; ++r) {
            const double *x = t.x + (first + r) * t.width;
            int64_t q = 0;
            for (int64_t a = 0; a < t.width; ++a)
                for (int64_t b = a; b < t.width; ++b) products[q++ * wide + r] = x[a] * x[b];
            predict(t, t.map, first + r, probabilities.data() + r * t.classes);
        }
        for (int64_t i = 0; i < step; i += M) {
            Vec<double> total[M][N] = {};
            subtract<double, M, N>(total, linear.get() + i, step,
                                   reinterpret_cast<const Vec<double> *>(products.get()), inputs);
            ROWS(m) EACH(n) own[(i + m) * N + n] = total[m][n];
        }
        for (int64_t n = 0; n * LANES<double> < count; ++n) {
            for (int64_t k = 0; k < t.classes; ++k) {
                for (int64_t l = 0; l <= k; ++l)
                    factor[k * t.classes + l] = own[place(k, l, t.classes) * N + n];
                for (int64_t lane = 0; lane < LANES<double>; ++lane) {
                    const int64_t row = std::min(n * LANES<double> + lane, count - 1);
                    p[k][lane] = probabilities[row * t.classes + k];
                    change[k][lane] = p[k][lane] - t.targets[(first + row) * t.classes + k];
                }
            }
            move(factor.get(), p.get(), change.get(), t.classes, spare.get());
            for (int64_t lane = 0; lane < std::min(LANES<double>, count - n * LANES<double>); ++lane) {
                const int64_t row = first + n * LANES<double> + lane;
                for (int64_t k = 0; k < t.classes; ++k)
                    f.out[(task * t.rows + row) * t.classes + k] =
                        change[k][lane] + dot(t.x + row * t.width, t.map + k * t.width, t.width);
            }
        }
    }
}

#define TASK(name)                                      \
    CLONED void name##_task(const Problem &f, int64_t task) { \
        name<TILE_ROWS, TILE_VECTORS>(f, task);         \
    }
TASK(search)
TASK(invert)
TASK(leave_out)

template <typename Work>
bool for_each_task(const Problem &f, int64_t threads, const Work &work) {
    return share(f.tasks, threads, [&](int64_t task) { work(f, task); });
}

}  // namespace

extern "C" {

// False if memory ran out.
bool tabicl_logistic(const Problem *f, int64_t threads) {
    return for_each_task(*f, threads, search_task);
}

bool tabicl_logistic_inverse(const Problem *f, int64_t threads) {
    return for_each_task(*f, threads, invert_task);
}

bool tabicl_logistic_left_out(const Problem *f, int64_t threads) {
    return for_each_task(*f, threads, leave_out_task);
}

}  // extern "C"
