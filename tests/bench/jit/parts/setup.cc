#include "tests/bench/jit/parts/setup.h"

#include <stdlib.h>

#include <iostream>
#include <utility>

#include "kernels/base/status.h"

namespace gemmd::jit_bench {

void Log::Add(Measurement row) {
  std::cerr << Describe(row, cores_) << "\n";
  rows_.push_back(std::move(row));
  keep_(rows_);
}

void Log::Add(Measurement row, const absl::StatusOr<bench::Summary>& value) {
  if (value.ok()) {
    row.value = *value;
  } else {
    row.reason = std::string(value.status().message());
  }
  Add(std::move(row));
}

absl::StatusOr<bench::Summary> Sample(int samples,
                                      const std::function<absl::StatusOr<double>()>& measure) {
  std::vector<double> values;
  for (int i = 0; i < samples; ++i) {
    GEMMD_ASSIGN_OR_RETURN(const double value, measure());
    values.push_back(value);
  }
  return bench::Summarize(std::move(values));
}

ScratchDirectory::ScratchDirectory(const std::filesystem::path& parent) {
  std::string pattern = (parent / "gemmd_jit_bench_XXXXXX").string();
  if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code error;
  if (!path_.empty()) std::filesystem::remove_all(path_, error);
}

}  // namespace gemmd::jit_bench
