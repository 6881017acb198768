#include "server/flags.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "server/exit_codes.h"
#include "server/version.h"

namespace gemmd {

// Text that knows whether it was given, so that an empty value differs from no value.
struct FlagText {
  std::optional<std::string> text;
};
bool AbslParseFlag(absl::string_view text, FlagText* flag, std::string*) {
  flag->text = std::string(text);
  return true;
}
std::string AbslUnparseFlag(const FlagText& flag) { return flag.text.value_or(""); }

}  // namespace gemmd

ABSL_FLAG(gemmd::FlagText, config, {},
          "YAML file of settings (GEMMD_CONFIG). Example: deploy/gemmd.yaml.");
ABSL_FLAG(gemmd::FlagText, socket, {},
          "Unix socket for gRPC. Default $XDG_RUNTIME_DIR/gemmd/gemmd.sock; /run/gemmd/gemmd.sock "
          "for root.");
ABSL_FLAG(gemmd::FlagText, session_socket, {},
          "Unix socket for sessions and file descriptors. Default session.sock beside --socket.");
ABSL_FLAG(
    gemmd::FlagText, device, {},
    "auto, cpu or cuda. auto takes every GPU and the CPU; cuda refuses to start without a GPU.");
ABSL_FLAG(gemmd::FlagText, checkpoint_roots, {},
          "Comma-separated directories that checkpoints may be read from. Default none.");
ABSL_FLAG(gemmd::FlagText, gptq_zero_points, {},
          "word or field-masked: how zero points of GPTQ version 1 that wrap are read, where a request does not "
          "choose. word carries into the next zero point, as GPTQModel and AutoRound write; field-masked does not. "
          "Workers are told of such tensors, and so is the log. Default word.");
ABSL_FLAG(gemmd::FlagText, cache_dir, {},
          "Kernel cache. Default $XDG_CACHE_HOME/gemmd; /var/cache/gemmd for root; ~/.cache/gemmd; "
          "without HOME kernels live in memory only.");
ABSL_FLAG(gemmd::FlagText, metrics_address, {},
          "host:port of the Prometheus endpoint; port 0 picks one, empty disables. Default "
          "127.0.0.1:9464.");
ABSL_FLAG(gemmd::FlagText, log_format, {}, "auto, json or text. auto is text on a terminal.");
ABSL_FLAG(gemmd::FlagText, log_level, {}, "trace, debug, info, warn or error. Default info.");
ABSL_FLAG(gemmd::FlagText, drain_deadline, {},
          "How long a signal to end waits for requests in flight, for example 30s. Default 30s.");
ABSL_FLAG(gemmd::FlagText, cpu_threads, {}, "Threads of the CPU device. Default 0: all cores.");
ABSL_FLAG(gemmd::FlagText, compile_workers, {},
          "Kernels compiled at a time, each on one core. Default 0: as many as cores, at most 32.");
ABSL_FLAG(gemmd::FlagText, admin_uids, {},
          "Comma-separated users that may drain the daemon and set its log level, besides root and "
          "its own.");
ABSL_FLAG(bool, check_config, false,
          "Check the configuration, print it with its origins, and exit: with 78 also where a directory "
          "of checkpoint_roots cannot be used, which a daemon only warns of.");
// Abseil defines --help and --version; ours are answered before it parses.

namespace gemmd {
namespace {

struct NamedFlag {
  const char* name;
  absl::Flag<FlagText>* flag;
};
const NamedFlag kTextFlags[] = {
    {"config", &FLAGS_config},
    {"socket", &FLAGS_socket},
    {"session_socket", &FLAGS_session_socket},
    {"device", &FLAGS_device},
    {"checkpoint_roots", &FLAGS_checkpoint_roots},
    {"gptq_zero_points", &FLAGS_gptq_zero_points},
    {"cache_dir", &FLAGS_cache_dir},
    {"metrics_address", &FLAGS_metrics_address},
    {"log_format", &FLAGS_log_format},
    {"log_level", &FLAGS_log_level},
    {"drain_deadline", &FLAGS_drain_deadline},
    {"cpu_threads", &FLAGS_cpu_threads},
    {"compile_workers", &FLAGS_compile_workers},
    {"admin_uids", &FLAGS_admin_uids},
};

std::string Wrapped(const std::string& text, const std::string& indent) {
  constexpr size_t kWidth = 88;
  std::string out, line = indent;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (line.size() > indent.size() && line.size() + 1 + word.size() > kWidth) {
      out += line + "\n";
      line = indent;
    }
    absl::StrAppend(&line, line.size() > indent.size() ? " " : "", word);
  }
  return out + line + "\n";
}

std::string FlagHelp(const char* name, const char* value) {
  const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  return absl::StrCat("    --", name, value, "\n", Wrapped(flag->Help(), "        "));
}

// Abseil ends the process with code 1 when it cannot parse; this turns that into kExitBadFlag.
bool parsing_flags = false;
void ExitWhileParsing() {
  if (!parsing_flags) return;
  std::cerr.flush();
  std::fflush(nullptr);
  _exit(kExitBadFlag);
}

[[noreturn]] void PrintAndExit(const std::string& text) {
  std::cout << text << std::flush;
  std::exit(std::cout.good() ? 0 : 1);
}

void AnswerInformation(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--") return;
    if (argument.rfind("--=", 0) == 0 || argument.rfind("-=", 0) == 0) {
      std::cerr << "gemmd: '" << argument << "' names no flag; see gemmd --help\n";
      std::exit(kExitBadFlag);
    }
    if (argument == "--help" || argument == "-help" || argument == "-h") PrintAndExit(ManualPage());
    if (argument == "--version" || argument == "-version")
      PrintAndExit("gemmd " + Version() + "\n");
  }
}

}  // namespace

std::string ManualPage() {
  std::string page =
      "NAME\n"
      "    gemmd - quantized GEMMs for the processes of one node\n\n"
      "SYNOPSIS\n"
      "    gemmd [--config=FILE] [--NAME=VALUE ...]\n\n"
      "DESCRIPTION\n";
  page += Wrapped(
      "Owns the node's GPUs and one copy of each quantized layer; worker processes register layers "
      "and submit requests over gRPC on a Unix socket. A setting is taken from the flag, else from "
      "the environment variable GEMMD_<NAME>, else from the file, else from its default. "
      "SIGTERM, SIGINT and SIGHUP drain the daemon and end it: it reads its configuration at the start only. A "
      "second signal ends it at once.",
      "    ");
  page += "\nOPTIONS\n";
  for (const NamedFlag& flag : kTextFlags) page += FlagHelp(flag.name, "=VALUE");
  page += FlagHelp("check_config", "");
  page +=
      "    --version\n        Print the version and exit.\n    --help\n        Print this page and "
      "exit.\n";
  page += "\nFILE SETTINGS\n" +
          Wrapped("Besides the names above (without the dashes), a file may set:", "    ");
  std::string others;
  for (const std::string& name : SettingNames()) {
    if (absl::FindCommandLineFlag(name) == nullptr)
      absl::StrAppend(&others, others.empty() ? "" : ", ", name);
  }
  page += Wrapped(others + ".", "    ");
  page +=
      "\nEXIT STATUS\n"
      "    0   stopped after a drain\n"
      "    2   stray argument\n"
      "    64  unknown flag, or a value it cannot take\n"
      "    69  no usable device\n"
      "    70  a CUDA context was lost, or the daemon could not stop in time\n"
      "    73  cannot create the socket, the metrics endpoint or the cache directory that was set\n"
      "    75  another instance is running\n"
      "    77  permission denied\n"
      "    78  bad configuration file or environment\n";
  return page;
}

CommandLine ParseCommandLine(int argc, char** argv) {
  AnswerInformation(argc, argv);
  std::atexit(ExitWhileParsing);
  parsing_flags = true;
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  parsing_flags = false;
  if (arguments.size() > 1) {
    std::cerr << "gemmd: unexpected argument '" << arguments[1] << "'; see gemmd --help\n";
    std::exit(kExitUsage);
  }
  CommandLine command;
  for (const NamedFlag& named : kTextFlags) {
    const FlagText value = absl::GetFlag(*named.flag);
    if (value.text.has_value()) command.values[named.name] = *value.text;
  }
  command.check_config = absl::GetFlag(FLAGS_check_config);
  return command;
}

}  // namespace gemmd
