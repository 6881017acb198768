// What    Several units of work at a time, on threads of the caller's own.
#ifndef GEMMD_TESTS_E2E_PARALLEL_H_
#define GEMMD_TESTS_E2E_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace gemmd::e2e {

// Calls function(i) once for every i below `count`, from at most `threads` threads; returns after the last call.
template <typename Function>
void ForEachInParallel(size_t count, size_t threads, Function function) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) function(i);
  };
  std::vector<std::thread> workers;
  for (size_t t = 1; t < std::min(threads, count); ++t) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
}

}  // namespace gemmd::e2e

#endif  // GEMMD_TESTS_E2E_PARALLEL_H_
