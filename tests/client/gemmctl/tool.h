// What    One run of gemmctl inside this process, with what it printed.
#ifndef GEMMD_TESTS_CLIENT_GEMMCTL_TOOL_H_
#define GEMMD_TESTS_CLIENT_GEMMCTL_TOOL_H_

#include <cstdio>
#include <string>
#include <vector>

#include "client/gemmctl/command.h"

namespace gemmd::gemmctl {

struct ToolRun {
  int code = -1;
  std::string out;
  std::string err;
};

inline std::string Drain(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

inline ToolRun Tool(const std::vector<std::string>& words) {
  std::FILE* out = std::tmpfile();
  std::FILE* err = std::tmpfile();
  ToolRun run;
  run.code = RunGemmctl(words, out, err);
  run.out = Drain(out);
  run.err = Drain(err);
  return run;
}

}  // namespace gemmd::gemmctl

#endif  // GEMMD_TESTS_CLIENT_GEMMCTL_TOOL_H_
