// Shares work out among OpenMP threads, which are PyTorch's own if PyTorch was built with OpenMP.

#pragma once

#include <atomic>
#include <cstdint>
#include <new>

// Runs work(i) for every i < count, on at most `threads` threads. False if memory ran out.
template <typename Work>
bool share(int64_t count, int64_t threads, const Work &work) {
    std::atomic<bool> failed{false};
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1 && count > 1)
    for (int64_t i = 0; i < count; ++i) {
        try {
            work(i);
        } catch (const std::bad_alloc &) {
            failed = true;
        }
    }
    return !failed;
}
