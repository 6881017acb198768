// What    The two errors every reader gives, and what their messages have in common.
#ifndef GEMMD_CORE_CHECKPOINT_ERRORS_H_
#define GEMMD_CORE_CHECKPOINT_ERRORS_H_

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status.h"

namespace gemmd {

// The files are damaged, or contradict themselves or their config.
inline absl::Status BadCheckpoint(absl::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_CHECKPOINT", message);
}

// The files may be fine, but no reader here knows this variant.
inline absl::Status UnsupportedFormat(absl::string_view message) {
  return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_FORMAT", message);
}

// A message of a reader without "module M: " in it.
inline std::string WithoutModule(absl::string_view message) {
  constexpr absl::string_view kModule = "module ";
  const size_t inside = message.find(": module ");
  const size_t at = absl::StartsWith(message, kModule)  ? 0
                    : inside == absl::string_view::npos ? inside
                                                        : inside + 2;
  if (at == absl::string_view::npos) return std::string(message);
  const size_t end = message.find(": ", at + kModule.size());
  if (end == absl::string_view::npos) return std::string(message);
  return absl::StrCat(message.substr(0, at), message.substr(end + 2));
}

// What is the same of all modules that fail by one fault: a message of `reason` without their names. That a model is
// quantized already is one fault, in whatever files its modules are.
inline std::string FaultOf(absl::string_view reason, absl::string_view message) {
  constexpr absl::string_view kTensor = ": tensor ";
  const size_t tensor = reason == "ALREADY_QUANTIZED" ? message.find(kTensor) : absl::string_view::npos;
  if (tensor == absl::string_view::npos) return WithoutModule(message);
  const size_t end = message.find(": ", tensor + kTensor.size());
  return end == absl::string_view::npos ? WithoutModule(message) : std::string(message.substr(end + 2));
}

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_ERRORS_H_
