#include <unistd.h>

#include <new>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/gemmctl/command.h"
#include "client/gemmctl/request_fields.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

constexpr char kVersion[] = "0.1.0";

// `offline`: without those that are about a daemon.
std::vector<Option> GlobalOptions(bool offline = false) {
  const std::vector<Option> everywhere = {
      {"output", 'o', "FORMAT", "text", "text or json"},
      {"help", 'h', "", "", "print the manual of the tool or of one command"}};
  if (offline) return everywhere;
  return {{"socket", 0, "PATH", "",
           "socket of the daemon; else $GEMMD_SOCKET, $XDG_RUNTIME_DIR/gemmd/gemmd.sock, "
           "/run/gemmd/gemmd.sock"},
          everywhere[0],
          {"timeout", 0, "SECONDS", "10",
           "how long a call to the daemon may take; loading layers and computing with them only when this is "
           "given. Compiling (prewarm), measuring (tune) and cache verify, export and import take what they "
           "take: for these it limits how long the daemon may need to answer at all"},
          everywhere[1]};
}

constexpr char kExitCodes[] =
    "  0   done\n"
    "  1   the daemon answered with an error, or a comparison or check did not hold\n"
    "  2   wrong usage\n"
    "  69  no daemon listens at the address\n"
    "  77  the daemon, or the mode of its socket, does not allow this to the caller\n"
    "  130 ended by Ctrl-C, as the shell tells it; 'register --hold' ends with 0 once it holds\n";

constexpr char kOfflineExitCodes[] =
    "  0   done\n"
    "  1   it failed, or the checkpoint has problems\n"
    "  2   wrong usage\n"
    "  130 ended by Ctrl-C, as the shell tells it\n";

std::string ToolHelp() {
  std::string text =
      "NAME\n  gemmctl - look at, try and operate the GEMM daemon of this node\n\n"
      "SYNOPSIS\n  gemmctl [global options] COMMAND [options]\n\nCOMMANDS\n";
  for (const Command& command : Commands()) {
    absl::StrAppend(&text, "  ", command.name, std::string(10 - command.name.size(), ' '),
                    command.summary, "\n");
  }
  absl::StrAppend(
      &text, "\nGLOBAL OPTIONS\n", OptionsHelp(GlobalOptions()),
      "      --version           print the version of this tool\n",
      "\nThe tool never starts a daemon. 'gemmctl COMMAND --help' explains one command.\n",
      "\nENVIRONMENT\n  GEMMD_SOCKET, XDG_RUNTIME_DIR   see --socket\n\nEXIT CODES\n", kExitCodes);
  return text;
}

std::string CommandHelp(const Command& command) {
  return absl::StrCat("NAME\n  gemmctl ", command.name, " - ", command.summary,
                      "\n\nSYNOPSIS\n  gemmctl ", command.name, " [options]",
                      command.synopsis.empty() ? "" : " ", command.synopsis, "\n\nDESCRIPTION\n",
                      command.description, "\n\nOPTIONS\n", OptionsHelp(command.options),
                      OptionsHelp(GlobalOptions(command.offline)), "\nEXAMPLES\n", command.examples,
                      "\n\nEXIT CODES\n", command.offline ? kOfflineExitCodes : kExitCodes);
}

bool TakesValue(const std::string& word) {
  return word == "--socket" || word == "-o" || word == "--output" || word == "--timeout";
}

// Index of the command in `words`: the first one that is neither an option nor a global option's
// value.
size_t CommandIndex(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (TakesValue(words[i])) {
      ++i;
    } else if (!absl::StartsWith(words[i], "-")) {
      return i;
    }
  }
  return words.size();
}

int Usage(std::FILE* err, const std::string& message) {
  std::fprintf(err, "gemmctl: %s\nTry 'gemmctl --help'.\n", PrintableLines(message).c_str());
  return kUsage;
}

absl::StatusOr<Context> MakeContext(const Arguments& arguments, std::FILE* out, std::FILE* err) {
  Context context;
  context.out = out;
  context.err = err;
  context.socket = arguments.Text("socket");
  const std::string output = arguments.Text("output");
  if (output != "text" && output != "json") {
    return BadArgument(absl::StrCat("--output '", output, "' is neither text nor json"));
  }
  context.json = output == "json";
  GEMMD_ASSIGN_OR_RETURN(const double seconds, arguments.Number("timeout", 0.001, 86400));
  context.timeout = absl::Seconds(seconds);
  if (arguments.Given("timeout")) context.long_timeout = context.timeout;
  context.progress_bar = isatty(fileno(err)) == 1;
  return context;
}

absl::StatusOr<int> RunOne(const Command& command, const std::vector<std::string>& words,
                           std::FILE* out, std::FILE* err) {
  std::vector<Option> options = command.options;
  for (const Option& option : GlobalOptions()) options.push_back(option);
  GEMMD_ASSIGN_OR_RETURN(const Arguments arguments, Arguments::Parse(options, words));
  GEMMD_ASSIGN_OR_RETURN(const Context context, MakeContext(arguments, out, err));
  if (arguments.Has("help")) {
    context.Print(CommandHelp(command));
    return kDone;
  }
  if (arguments.positional().size() > command.most_positional) {
    return BadArgument(absl::StrCat(command.name, " takes at most ", command.most_positional,
                                    " arguments; '", arguments.positional().back(),
                                    "' is one more"));
  }
  return command.run(context, arguments);
}

// What takes more memory than there is ends the command, not the process.
absl::StatusOr<int> RunInMemory(const Command& command, const std::vector<std::string>& words, std::FILE* out,
                                std::FILE* err) {
  try {
    return RunOne(command, words, out, err);
  } catch (const std::bad_alloc&) {
    return Error(absl::StatusCode::kResourceExhausted, "HOST_MEMORY", "the machine has no memory for this");
  }
}

}  // namespace

absl::StatusOr<client::Session> Context::OpenSession(const std::string& name) const {
  client::SessionOptions options;
  options.address = socket;
  options.name = name;
  options.attempt_timeout = timeout;
  options.call_timeout = timeout;
  options.load_timeout = long_timeout.value_or(options.load_timeout);
  options.on_reconnect = [name, to = err, wait = options.reconnect_timeout, bar = progress_bar] {
    std::fprintf(to, "%s%s: the daemon ended the session; waiting up to %s for the next one\n",
                 bar ? "\r\x1b[K" : "", name.c_str(), absl::FormatDuration(wait).c_str());
    std::fflush(to);
  };
  return client::Session::Open(options);
}

std::vector<Command> Commands() {
  return {StatusCommand(),   DevicesCommand(), LayersCommand(),  SessionsCommand(),
          RegisterCommand(), RunCommand(),     BenchCommand(),   ExplainCommand(),
          PrewarmCommand(),  TuneCommand(),    CacheCommand(),   InspectCommand(),
          ExportCommand(),   MetricsCommand(), DoctorCommand(),  ConfigCommand(),
          DrainCommand()};
}

int ExitCode(const absl::Status& status) {
  if (status.ok()) return kDone;
  if (ReasonOf(status) == "BAD_ARGUMENT" || ReasonOf(status) == "BAD_ADDRESS") return kUsage;
  if (ReasonOf(status) == "NOT_RUNNING") return kNotRunning;
  if (status.code() == absl::StatusCode::kPermissionDenied) return kNotAllowed;
  return kFailed;
}

int RunGemmctl(const std::vector<std::string>& words, std::FILE* out, std::FILE* err) {
  const size_t at = CommandIndex(words);
  std::vector<std::string> rest = words;
  if (at == words.size()) {
    const auto arguments = Arguments::Parse({{"version", 'V', "", "", ""},
                                             {"help", 'h', "", "", ""},
                                             {"socket", 0, "X", "", ""},
                                             {"output", 'o', "X", "", ""},
                                             {"timeout", 0, "X", "", ""}},
                                            words);
    if (!arguments.ok()) return Usage(err, std::string(arguments.status().message()));
    if (arguments->Has("version"))
      return std::fprintf(out, "gemmctl %s\n", kVersion) > 0 ? kDone : kFailed;
    if (!arguments->Has("help")) return Usage(err, "a command is missing");
    std::fputs(ToolHelp().c_str(), out);
    return kDone;
  }
  std::string name = words[at];
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(at));
  if (name == "help") {  // gemmctl help [COMMAND]
    if (rest.empty()) return RunGemmctl({"--help"}, out, err);
    return RunGemmctl({rest[0], "--help"}, out, err);
  }
  for (const Command& command : Commands()) {
    if (command.name != name) continue;
    const absl::StatusOr<int> code = RunInMemory(command, rest, out, err);
    if (code.ok()) return *code;
    const std::string reason = ReasonOf(code.status());
    std::fprintf(err, "gemmctl %s: %s%s\n", name.c_str(),
                 PrintableLines(MessageForOptions(code.status())).c_str(),
                 reason.empty() ? "" : (" [" + Printable(reason) + "]").c_str());
    return ExitCode(code.status());
  }
  return Usage(err, absl::StrCat("unknown command '", name, "'"));
}

}  // namespace gemmd::gemmctl
