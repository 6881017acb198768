// What    Command lines of the programs in this folder: --name=value, --name value, --switch.
//           const std::vector<Flag> flags = {{"samples", "N", "of each median", Integer(1, samples)}};
// Errors  InvalidArgument: an unknown argument, or a value that its flag cannot take; names both.
// Threads Pure functions; setters write to what they were made with.
#ifndef GEMMD_TESTS_BENCH_JIT_PARTS_FLAGS_H_
#define GEMMD_TESTS_BENCH_JIT_PARTS_FLAGS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace gemmd::jit_bench {

using Setter = std::function<absl::Status(const std::string&)>;

struct Flag {
  std::string name;
  std::string value;  // its word in the help; empty: a switch
  std::string help;
  Setter set;
};

Setter Integer(int64_t least, int& out);
Setter Text(std::string& out);
Setter List(std::vector<std::string>& out);  // comma-separated
Setter Seconds(absl::Duration& out);
Setter Switch(bool& out);

// What is no flag goes to `rest`; null: there may be nothing else.
absl::Status ParseFlags(const std::vector<std::string>& arguments, const std::vector<Flag>& flags,
                        std::vector<std::string>* rest = nullptr);

// The OPTIONS section of a manual.
std::string DescribeFlags(const std::vector<Flag>& flags);

}  // namespace gemmd::jit_bench

#endif  // GEMMD_TESTS_BENCH_JIT_PARTS_FLAGS_H_
