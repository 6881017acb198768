#include "client/gemmctl/arguments.h"

#include <getopt.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

constexpr int kFirstLong = 1000;  // above every letter
constexpr size_t kHelpColumn = 26;
constexpr size_t kWidth = 100;

struct GetoptTable {
  std::string letters = ":";  // a missing value is reported as ':'
  std::vector<option> longs;
};

GetoptTable MakeTable(const std::vector<Option>& options) {
  GetoptTable table;
  for (size_t i = 0; i < options.size(); ++i) {
    const int argument = options[i].value.empty() ? no_argument : required_argument;
    table.longs.push_back(
        {options[i].name.c_str(), argument, nullptr, kFirstLong + static_cast<int>(i)});
    if (options[i].letter == 0) continue;
    table.letters += options[i].letter;
    if (argument == required_argument) table.letters += ':';
  }
  table.longs.push_back({nullptr, 0, nullptr, 0});
  return table;
}

const Option* Find(const std::vector<Option>& options, int found) {
  for (size_t i = 0; i < options.size(); ++i) {
    if (found == kFirstLong + static_cast<int>(i) || (found == options[i].letter && found != 0)) {
      return &options[i];
    }
  }
  return nullptr;
}

std::string Wrapped(const std::string& text, size_t column) {
  std::string wrapped;
  size_t at = column;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (at + word.size() + 1 > kWidth && at > column) {
      absl::StrAppend(&wrapped, "\n", std::string(column, ' '));
      at = column;
    }
    absl::StrAppend(&wrapped, at == column ? "" : " ", word);
    at += word.size() + (at == column ? 0 : 1);
  }
  return wrapped;
}

}  // namespace

absl::Status BadArgument(const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_ARGUMENT", message);
}

absl::StatusOr<Arguments> Arguments::Parse(const std::vector<Option>& options,
                                           const std::vector<std::string>& words) {
  std::vector<std::string> storage = words;
  std::vector<char*> argv = {const_cast<char*>("gemmctl")};
  for (std::string& word : storage) argv.push_back(word.data());
  argv.push_back(nullptr);
  const GetoptTable table = MakeTable(options);
  Arguments parsed;
  for (const Option& option : options) {
    if (!option.default_value.empty()) parsed.values_[option.name] = option.default_value;
  }
  optind = 0;  // glibc: start anew
  opterr = 0;
  const int argc = static_cast<int>(argv.size()) - 1;
  while (true) {
    const int found =
        getopt_long(argc, argv.data(), table.letters.c_str(), table.longs.data(), nullptr);
    if (found == -1) break;
    const std::string word = argv[optind - 1] == nullptr ? "" : argv[optind - 1];
    if (found == '?') return BadArgument(absl::StrCat("unknown option ", word));
    if (found == ':') return BadArgument(absl::StrCat("option ", word, " needs a value"));
    const Option* option = Find(options, found);
    parsed.values_[option->name] = optarg == nullptr ? "true" : optarg;
    parsed.given_.insert(option->name);
  }
  for (int i = optind; i < argc; ++i) parsed.positional_.push_back(argv[i]);
  return parsed;
}

std::string Arguments::Text(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? "" : found->second;
}

absl::StatusOr<int64_t> Arguments::Integer(const std::string& name, int64_t least,
                                           int64_t most) const {
  int64_t value = 0;
  if (!absl::SimpleAtoi(Text(name), &value) || value < least || value > most) {
    return BadArgument(
        absl::StrCat("--", name, " '", Text(name), "' is no integer from ", least, " to ", most));
  }
  return value;
}

absl::StatusOr<double> Arguments::Number(const std::string& name, double least, double most) const {
  double value = 0;
  if (!absl::SimpleAtod(Text(name), &value) || !(value >= least && value <= most)) {
    return BadArgument(
        absl::StrCat("--", name, " '", Text(name), "' is no number from ", least, " to ", most));
  }
  return value;
}

absl::StatusOr<std::vector<int64_t>> Arguments::Integers(const std::string& name, int64_t least,
                                                         int64_t most) const {
  std::vector<int64_t> values;
  for (absl::string_view part : absl::StrSplit(Text(name), ',')) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(part, &value) || value < least || value > most) {
      return BadArgument(
          absl::StrCat("--", name, ": '", part, "' is no integer from ", least, " to ", most));
    }
    values.push_back(value);
  }
  return values;
}

std::string OptionsHelp(const std::vector<Option>& options) {
  std::string text;
  for (const Option& option : options) {
    std::string left =
        option.letter == 0 ? "      " : absl::StrCat("  -", std::string(1, option.letter), ", ");
    absl::StrAppend(&left, "--", option.name, option.value.empty() ? "" : " ", option.value);
    const std::string right =
        option.default_value.empty()
            ? option.help
            : absl::StrCat(option.help, " (default: ", option.default_value, ")");
    if (left.size() + 2 > kHelpColumn) {
      absl::StrAppend(&left, "\n", std::string(kHelpColumn, ' '));
    } else {
      left.resize(kHelpColumn, ' ');
    }
    absl::StrAppend(&text, left, Wrapped(right, kHelpColumn), "\n");
  }
  return text;
}

}  // namespace gemmd::gemmctl
