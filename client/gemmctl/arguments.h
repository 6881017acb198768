// What    Options of one command, described by a table: parsing (getopt_long), defaults, checks and
//         the text of --help come from the same lines.
// Errors  InvalidArgument BAD_ARGUMENT, naming option, value and what is possible.
// Threads getopt_long keeps state of its own: parse from one thread at a time.
#ifndef GEMMD_CLIENT_GEMMCTL_ARGUMENTS_H_
#define GEMMD_CLIENT_GEMMCTL_ARGUMENTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gemmd::gemmctl {

struct Option {
  std::string name;           // without dashes
  char letter = 0;            // 0 = no short form
  std::string value;          // placeholder of its value; empty = a switch
  std::string default_value;  // as if it had been given
  std::string help;
};

class Arguments {
 public:
  static absl::StatusOr<Arguments> Parse(const std::vector<Option>& options,
                                         const std::vector<std::string>& words);

  bool Has(const std::string& name) const {
    return values_.count(name) != 0;
  }  // given or with default
  bool Given(const std::string& name) const { return given_.count(name) != 0; }
  std::string Text(const std::string& name) const;
  absl::StatusOr<int64_t> Integer(const std::string& name, int64_t least, int64_t most) const;
  absl::StatusOr<double> Number(const std::string& name, double least, double most) const;
  absl::StatusOr<std::vector<int64_t>> Integers(const std::string& name, int64_t least,
                                                int64_t most) const;  // comma separated
  const std::vector<std::string>& positional() const { return positional_; }

 private:
  std::map<std::string, std::string> values_;
  std::set<std::string> given_;
  std::vector<std::string> positional_;
};

// "  --name VALUE   help (default: ...)", wrapped at 100 columns.
std::string OptionsHelp(const std::vector<Option>& options);

absl::Status BadArgument(const std::string& message);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_ARGUMENTS_H_
