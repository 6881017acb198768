// What    Numbers of tokens on the command line, the same wherever there is --m: "16", "1-64", "1,8,64-256".
// Units   Rows of x.
// Errors  InvalidArgument BAD_ARGUMENT, naming option, part and what is possible.
// Threads Pure functions.
#ifndef GEMMD_CLIENT_GEMMCTL_TOKEN_COUNTS_H_
#define GEMMD_CLIENT_GEMMCTL_TOKEN_COUNTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/gemmctl/arguments.h"

namespace gemmd::gemmctl {

struct TokenRange {
  int64_t first = 0;
  int64_t last = 0;  // included

  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

struct TokenBounds {
  int64_t least = 1;
  int64_t most = int64_t{1} << 40;
  int64_t most_counts = 1024;  // of TokenCounts
};

// Ascending; ranges that overlap or touch are one.
absl::StatusOr<std::vector<TokenRange>> TokenRanges(const Arguments& arguments, const std::string& option,
                                                    const TokenBounds& bounds);

// Every number of the ranges once, ascending.
absl::StatusOr<std::vector<int64_t>> TokenCounts(const Arguments& arguments, const std::string& option,
                                                 const TokenBounds& bounds);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_TOKEN_COUNTS_H_
