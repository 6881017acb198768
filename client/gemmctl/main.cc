#include "client/gemmctl/command.h"

int main(int argc, char** argv) {
  return gemmd::gemmctl::RunGemmctl(std::vector<std::string>(argv + 1, argv + argc), stdout,
                                    stderr);
}
