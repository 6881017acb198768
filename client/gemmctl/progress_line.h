// What    Progress of work on files, on stderr: nothing during the first second, then one line a second,
//         redrawn in place on a terminal, whatever the output is.
// Threads One thread.
#ifndef GEMMD_CLIENT_GEMMCTL_PROGRESS_LINE_H_
#define GEMMD_CLIENT_GEMMCTL_PROGRESS_LINE_H_

#include <string>

#include "absl/time/time.h"
#include "client/gemmctl/command.h"

namespace gemmd::gemmctl {

class ProgressLine {
 public:
  explicit ProgressLine(const Context& context, absl::Duration pause = absl::Seconds(1));
  ~ProgressLine();  // wipes what it drew
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Whether the next Show prints: the text need not be made before.
  bool due() const;
  void Show(const std::string& text);

 private:
  const Context& context_;
  const absl::Duration pause_;
  absl::Time next_;
  bool drawn_ = false;
};

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_PROGRESS_LINE_H_
