#include "kernels/tune/kernel_digest.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/jit/sha256.h"

namespace gemmd {
namespace {

class Stripper {
 public:
  explicit Stripper(absl::string_view text) : text_(text) {}

  std::string Run() {
    while (at_ < text_.size()) Step();
    return std::move(out_);
  }

 private:
  void Step() {
    const absl::string_view rest = text_.substr(at_);
    if (rest.substr(0, 2) == "//") return Skip(rest.find('\n'));
    if (rest.substr(0, 2) == "/*") {
      const size_t end = rest.find("*/");
      return Skip(end == rest.npos ? end : end + 2);
    }
    if (rest[0] == '"') return CopyString();
    if (std::isspace(static_cast<unsigned char>(rest[0])) != 0) return Space(rest[0]);
    out_ += rest[0];
    ++at_;
  }

  void Skip(size_t length) { at_ = length == text_.npos ? text_.size() : at_ + length; }

  void CopyString() {
    do {
      const size_t length = text_[at_] == '\\' ? 2 : 1;
      absl::StrAppend(&out_, text_.substr(at_, length));
      at_ += length;
    } while (at_ < text_.size() && text_[at_] != '"');
    if (at_ < text_.size()) out_ += text_[at_++];
  }

  // A line break is a token of the preprocessor; other space only separates.
  void Space(char space) {
    ++at_;
    const char last = out_.empty() ? '\n' : out_.back();
    if (space == '\n') {
      if (last == ' ') out_.pop_back();
      if (out_.empty() || out_.back() == '\n') return;
      out_ += '\n';
    } else if (last != '\n' && last != ' ') {
      out_ += ' ';
    }
  }

  const absl::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

std::vector<std::string> IncludesOf(absl::string_view stripped) {
  std::vector<std::string> names;
  for (absl::string_view line : absl::StrSplit(stripped, '\n')) {
    if (!absl::ConsumePrefix(&line, "#include ")) continue;
    names.emplace_back(line.substr(1, line.find_last_of("\">") - 1));
  }
  return names;
}

}  // namespace

std::string WithoutComments(absl::string_view text) { return Stripper(text).Run(); }

std::string DigestOfIncluded(absl::Span<const jit::EmbeddedSource> sources,
                             const std::vector<std::string>& roots) {
  std::set<std::string> seen;
  std::vector<std::string> open = roots;
  std::set<std::pair<std::string, std::string>> parts;  // in an order of their own
  while (!open.empty()) {
    const std::string name = std::move(open.back());
    open.pop_back();
    if (!seen.insert(name).second) continue;
    const auto source = std::find_if(sources.begin(), sources.end(),
                                     [&](const auto& one) { return name == one.name; });
    if (source == sources.end()) continue;
    std::string text = WithoutComments({source->text, source->size});
    for (std::string& included : IncludesOf(text)) open.push_back(std::move(included));
    parts.emplace(name, std::move(text));
  }
  jit::Sha256 hash;
  for (const auto& [name, text] : parts) hash.Add(name).Add(text);
  return jit::ToHex(hash.Finish());
}

const std::string& TunedKernelsDigest() {
  static const auto* digest = new std::string(
      DigestOfIncluded(jit::EmbeddedSources(),
                       {"kernels/device/gemm_sm90.cuh", "kernels/device/gemm_sm90_slab.cuh"}));
  return *digest;
}

}  // namespace gemmd
