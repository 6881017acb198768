#include "tests/bench/jit/parts/flags.h"

#include <algorithm>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gemmd::jit_bench {
namespace {

absl::Status Bad(const std::string& text, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' ", why));
}

const Flag* FindFlag(const std::vector<Flag>& flags, const std::string& name) {
  const auto found = std::find_if(flags.begin(), flags.end(),
                                  [&name](const Flag& flag) { return flag.name == name; });
  return found == flags.end() ? nullptr : &*found;
}

}  // namespace

Setter Integer(int64_t least, int& out) {
  return [least, &out](const std::string& text) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(text, &value) || value < least ||
        value > std::numeric_limits<int>::max()) {
      return Bad(text, absl::StrCat("is no integer of at least ", least));
    }
    out = static_cast<int>(value);
    return absl::OkStatus();
  };
}

Setter Text(std::string& out) {
  return [&out](const std::string& text) {
    out = text;
    return absl::OkStatus();
  };
}

Setter List(std::vector<std::string>& out) {
  return [&out](const std::string& text) {
    out = absl::StrSplit(text, ',', absl::SkipEmpty());
    return out.empty() ? Bad(text, "is an empty list") : absl::OkStatus();
  };
}

Setter Seconds(absl::Duration& out) {
  return [&out](const std::string& text) {
    double seconds = 0;
    if (!absl::SimpleAtod(text, &seconds) || !(seconds > 0)) {
      return Bad(text, "is no positive number of seconds");
    }
    out = absl::Seconds(seconds);
    return absl::OkStatus();
  };
}

Setter Switch(bool& out) {
  return [&out](const std::string&) {
    out = true;
    return absl::OkStatus();
  };
}

absl::Status ParseFlags(const std::vector<std::string>& arguments, const std::vector<Flag>& flags,
                        std::vector<std::string>* rest) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const bool is_flag = argument.rfind("--", 0) == 0;
    if (!is_flag && rest != nullptr) {
      rest->push_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const Flag* flag = is_flag ? FindFlag(flags, argument.substr(2, equals - 2)) : nullptr;
    if (flag == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("unknown argument ", argument));
    }
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (!flag->value.empty() && ++i < arguments.size()) {
      value = arguments[i];
    }
    if (flag->value.empty() != value.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", flag->name, flag->value.empty() ? " takes no value" : " needs a value"));
    }
    if (absl::Status status = flag->set(value); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag->name, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

std::string DescribeFlags(const std::vector<Flag>& flags) {
  constexpr size_t kColumn = 20;
  std::string text;
  for (const Flag& flag : flags) {
    const std::string left =
        flag.value.empty() ? flag.name : absl::StrCat(flag.name, "=", flag.value);
    const size_t space = left.size() < kColumn ? kColumn - left.size() : 1;
    absl::StrAppend(&text, "  --", left, std::string(space, ' '), flag.help, "\n");
  }
  return text;
}

}  // namespace gemmd::jit_bench
