#include "client/gemmctl/progress_line.h"

#include <cstdio>

#include "absl/time/clock.h"
#include "client/gemmctl/printable.h"

namespace gemmd::gemmctl {

ProgressLine::ProgressLine(const Context& context, absl::Duration pause)
    : context_(context), pause_(pause), next_(absl::Now() + pause) {}

ProgressLine::~ProgressLine() {
  if (drawn_) std::fputs("\r\x1b[K", context_.err);
}

bool ProgressLine::due() const { return absl::Now() >= next_; }

void ProgressLine::Show(const std::string& text) {
  if (!due()) return;
  next_ = absl::Now() + pause_;
  drawn_ = context_.progress_bar;
  std::fprintf(context_.err, drawn_ ? "\r%s\x1b[K" : "%s\n", Printable(text).c_str());
  std::fflush(context_.err);
}

}  // namespace gemmd::gemmctl
