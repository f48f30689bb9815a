// Shares work out among OpenMP threads, which are PyTorch's own if PyTorch was built with OpenMP.

#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include <pthread.h>

// Set in a child process that was forked after threads had been started here. Threads do not survive a fork,
// and OpenMP would wait for them forever, so the child computes on one thread.
inline std::atomic<bool> threads_lost{false};

inline bool may_use_threads() {
    static const int registered =
        pthread_atfork(nullptr, nullptr, [] { threads_lost.store(true); });
    return registered == 0 && !threads_lost.load();
}

// Runs work(i) for every i < count on at most `threads` threads. Returns false if memory ran out.
template <typename Work>
bool share(int64_t count, int64_t threads, const Work &work) {
    std::atomic<bool> failed{false};
    const bool several = threads > 1 && count > 1 && may_use_threads();
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (several)
    for (int64_t i = 0; i < count; ++i) {
        try {
            work(i);
        } catch (const std::bad_alloc &) {
            failed = true;
        }
    }
    return !failed;
}
