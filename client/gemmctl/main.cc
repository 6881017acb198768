#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "client/gemmctl/command.h"

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond a limit of file sizes is an error like that of a full disk
  const int code =
      gemmd::gemmctl::RunGemmctl(std::vector<std::string>(argv + 1, argv + argc), stdout, stderr);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::fputs("gemmctl: the output could not be written\n", stderr);
  return code == 0 ? 1 : code;
}
