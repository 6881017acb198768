// A compiler that does what a test's program says: CRASH, HANG, REJECT, or a "cubin" that echoes it behind an ELF
// header; EMPTY, GARBAGE and ANOTHER make it none, no cubin, and one for another architecture. Its log
// is "the log" and the options it was given, a line each.
// FAKE_NVRTC_VERSION (for example 12.9) is what it says it is, FAKE_NVRTC_SLOW the seconds until it says so;
// FAKE_NVRTC_NEVER_LOADS makes loading it hang;
// FAKE_NVRTC_NO_HANG lets HANG pass; FAKE_NVRTC_NEWEST is the last architecture that it knows, 120 by default.
// FAKE_NVRTC_DIR is a folder where two files say more, each by a text that programs have in them:
//   hold    they wait as long as the file is there      reject  they are rejected
#include <nvrtc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/kernels/jit/cubin_header.h"

struct _nvrtcProgram {
  std::string source;
  std::string log = {};
  std::string cubin = {};
};

namespace {

constexpr int kArchitectures[] = {75, 80, 86, 89, 90, 100, 120};

[[gnu::constructor]] void Load() {
  while (std::getenv("FAKE_NVRTC_NEVER_LOADS") != nullptr) pause();
}

int NumberOfArchitectures() {
  const char* newest = std::getenv("FAKE_NVRTC_NEWEST");
  const int last = newest == nullptr ? 120 : std::atoi(newest);
  return static_cast<int>(std::upper_bound(std::begin(kArchitectures), std::end(kArchitectures), last) -
                          std::begin(kArchitectures));
}

// Whether the file `name` exists and its text is in `source`.
bool IsMeant(const std::string& source, const char* name) {
  const char* directory = std::getenv("FAKE_NVRTC_DIR");
  if (directory == nullptr) return false;
  std::ifstream file(std::string(directory) + "/" + name);
  if (!file) return false;
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return source.find(text) != std::string::npos;
}

// `option`: "--gpu-architecture=sm_90a", or another.
std::string CubinOf(const std::string& source, const std::string& option) {
  int number = 0;
  if (std::sscanf(option.c_str(), "--gpu-architecture=sm_%d", &number) != 1) return "";
  if (source == "EMPTY") return "";
  if (source == "GARBAGE") return std::string(64, 'g');
  return gemmd::jit::FakeCubin(source == "ANOTHER" ? 75 : number, source);
}

}  // namespace

extern "C" {

nvrtcResult nvrtcVersion(int* major, int* minor) {
  if (const char* seconds = std::getenv("FAKE_NVRTC_SLOW"))
    sleep(static_cast<unsigned>(std::atoi(seconds)));
  const char* version = std::getenv("FAKE_NVRTC_VERSION");
  return version != nullptr && std::sscanf(version, "%d.%d", major, minor) == 2
             ? NVRTC_SUCCESS
             : NVRTC_ERROR_INVALID_INPUT;
}
nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  *count = NumberOfArchitectures();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int* architectures) {
  std::copy_n(std::begin(kArchitectures), NumberOfArchitectures(), architectures);
  return NVRTC_SUCCESS;
}
const char* nvrtcGetErrorString(nvrtcResult) { return "an error of the fake"; }
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int,
                               const char* const*, const char* const*) {
  *program = new _nvrtcProgram{source};
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcAddNameExpression(nvrtcProgram, const char*) { return NVRTC_SUCCESS; }
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  program->log = "the log\n";
  for (int i = 0; i < count; ++i) {
    program->log += std::string(options[i]) + "\n";
    program->cubin += CubinOf(program->source, options[i]);
  }
  if (program->source == "CRASH") {
    signal(SIGSEGV, SIG_DFL);  // a sanitizer would catch it
    raise(SIGSEGV);
  }
  while (program->source == "HANG" && std::getenv("FAKE_NVRTC_NO_HANG") == nullptr) pause();
  while (IsMeant(program->source, "hold")) usleep(2000);
  const bool rejects = program->source == "REJECT" || IsMeant(program->source, "reject");
  return rejects ? NVRTC_ERROR_COMPILATION : NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
  *size = program->log.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetLoweredName(nvrtcProgram, const char* expression, const char** name) {
  *name = expression;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
  *size = program->cubin.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  std::memcpy(cubin, program->cubin.data(), program->cubin.size());
  return NVRTC_SUCCESS;
}

}  // extern "C"
