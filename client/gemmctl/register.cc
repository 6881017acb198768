// What    gemmctl register and explain: a layer of a checkpoint, held for as long as the command
//         runs.
#include <semaphore.h>

#include <chrono>
#include <csignal>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/gemmctl/command.h"
#include "client/gemmctl/format_text.h"
#include "client/gemmctl/layer_source.h"
#include "client/gemmctl/proto_json.h"
#include "client/gemmctl/quantize_option.h"
#include "client/gemmctl/register_model.h"
#include "client/gemmctl/slice_options.h"
#include "client/gemmctl/table.h"
#include "client/gemmctl/token_counts.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

std::string BlockText(uint64_t block) { return block == 0 ? "all" : absl::StrCat(block); }

const char* ScaleText(v1::ActivationScaleKind kind) {
  switch (kind) {
    case v1::ACTIVATION_SCALE_KIND_STATIC_TENSOR:
      return ", static scale";
    case v1::ACTIVATION_SCALE_KIND_DYNAMIC_TOKEN:
      return ", one scale per token";
    case v1::ACTIVATION_SCALE_KIND_DYNAMIC_GROUP:
      return ", one scale per ";
    default:
      return "";
  }
}

// "int8, static scale, zero points"; "e2m1, one scale per 16 columns in e4m3".
std::string ActivationText(const v1::LayerInfo& info) {
  const v1::ActivationEncoding& encoding = info.encoding();
  const v1::QuantSpec& spec = info.spec();
  const bool own = encoding.has_format();
  const uint64_t group = own ? encoding.group() : spec.activation_group();
  std::string text = absl::StrCat(
      FormatText(own ? encoding.format() : spec.activation(), "as the request has them"),
      ScaleText(own ? encoding.scale() : spec.activation_scale()));
  if (group > 0) absl::StrAppend(&text, group, " columns");
  if (encoding.has_group_scale()) {
    absl::StrAppend(&text, " in ", FormatText(encoding.group_scale(), "float32"));
  }
  return encoding.zero_points() ? text + ", zero points" : text;
}

std::string InfoText(const v1::LayerInfo& info) {
  Table table({"", ""});
  table.Add({"name", info.name()});
  table.Add({"device", info.device()});
  table.Add({"format", SourceText(info)});
  const std::string quantized = QuantizedText(info);
  if (!quantized.empty()) table.Add({"quantized", quantized});
  table.Add({"E x N x K", absl::StrCat(info.experts(), " x ", info.n(), " x ", info.k())});
  table.Add({"weight", FormatText(info.spec().weight(), "none")});
  table.Add({"scale", absl::StrCat(FormatText(info.spec().scale(), "none"), "; one per ",
                                   BlockText(info.spec().scale_block_n()), " rows x ",
                                   BlockText(info.spec().scale_block_k()), " columns")});
  table.Add({"bias", FormatText(info.spec().bias(), "none")});
  table.Add({"activations", ActivationText(info)});
  if (info.not_finite_weights() > 0) {
    table.Add({"not finite",
               absl::StrCat(info.not_finite_weights(), " of its weights are NaN or infinite")});
  }
  if (info.has_input_scale()) table.Add({"input scale", "one factor of x per column"});
  table.Add({"gate/up rows", info.gate_up_interleaved() ? "interleaved" : "as stored"});
  table.Add({"on device", BytesText(info.bytes())});
  table.Add({"digest", info.digest()});
  table.Add({"held by", absl::StrCat(info.references(), " session(s)")});
  table.Add({"state", info.state()});
  return table.Text();
}

sem_t g_release;  // posted by SIGINT and SIGTERM: a handler can reach nothing else

void Release(int) { sem_post(&g_release); }

// From now on SIGINT and SIGTERM release. Until then they end the process, whatever it loads or waits for.
void CatchSignals() {
  sem_init(&g_release, 0, 0);
  struct sigaction action = {};
  action.sa_handler = &Release;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM}) sigaction(number, &action, nullptr);
}

bool ReleasedWithin(std::chrono::nanoseconds wait) {
  const auto until = std::chrono::steady_clock::now().time_since_epoch() + wait;
  const auto seconds = std::chrono::floor<std::chrono::seconds>(until);
  const timespec time = {.tv_sec = seconds.count(), .tv_nsec = std::chrono::nanoseconds(until - seconds).count()};
  return sem_clockwait(&g_release, CLOCK_MONOTONIC, &time) == 0;
}

// Until Ctrl-C or SIGTERM. Unavailable NOT_RUNNING: the daemon ended first, and what it held is gone.
absl::Status WaitFor(const Context& context, const client::Session& session, const char* what) {
  CatchSignals();
  std::fflush(context.out);
  std::fprintf(context.err, "holding the %s; Ctrl-C releases %s\n", what,
               what == std::string("layer") ? "it" : "them");
  while (!ReleasedWithin(std::chrono::milliseconds(200))) {
    if (session.connected()) continue;
    return Error(absl::StatusCode::kUnavailable, "NOT_RUNNING",
                 absl::StrCat("the daemon ended the session; the ", what,
                              what == std::string("layer") ? " is" : " are", " not held any more"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RunRegister(const Context& context, const Arguments& arguments) {
  const bool hold = arguments.Has("hold") || arguments.Has("keep");
  if (arguments.Has("all")) {
    GEMMD_ASSIGN_OR_RETURN(const v1::RegisterModelRequest request, ModelRequest(arguments));
    GEMMD_ASSIGN_OR_RETURN(client::Session session, context.OpenSession("gemmctl register"));
    GEMMD_ASSIGN_OR_RETURN(const client::Model model, RegisterAll(context, request, session));
    if (hold) GEMMD_RETURN_IF_ERROR(WaitFor(context, session, "layers"));
    return model.failures.empty() ? kDone : kFailed;
  }
  GEMMD_RETURN_IF_ERROR(CheckOneModule(arguments));
  GEMMD_ASSIGN_OR_RETURN(const v1::LayerSlice slice, SliceOf(arguments));
  GEMMD_RETURN_IF_ERROR(CheckSource(arguments));
  GEMMD_ASSIGN_OR_RETURN(client::Session session, context.OpenSession("gemmctl register"));
  GEMMD_ASSIGN_OR_RETURN(LayerSource source, FindSource(arguments, session));
  source.slice = slice;
  GEMMD_ASSIGN_OR_RETURN(const client::Layer layer,
                         RegisterWithProgress(context, session, source, source.device));
  TellNotes(context, layer);
  if (context.json) {
    context.PrintJson(LayerJson(layer));
  } else {
    context.Print(InfoText(layer.info()));
  }
  if (hold) GEMMD_RETURN_IF_ERROR(WaitFor(context, session, "layer"));
  return kDone;
}

absl::StatusOr<int> RunExplain(const Context& context, const Arguments& arguments) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<int64_t> m, TokenCounts(arguments, "m", {.least = 0}));
  GEMMD_RETURN_IF_ERROR(CheckSource(arguments));
  GEMMD_ASSIGN_OR_RETURN(client::Session session, context.OpenSession("gemmctl explain"));
  GEMMD_ASSIGN_OR_RETURN(const LayerSource source, FindSource(arguments, session));
  GEMMD_ASSIGN_OR_RETURN(
      const client::Layer layer,
      session.RegisterCheckpoint(source.Checkpoint(), source.device, source.name));
  TellNotes(context, layer);
  GEMMD_ASSIGN_OR_RETURN(const v1::ExplainLayerResponse response, session.Explain(layer, m));
  if (context.json) {
    context.PrintJson({{"layer", LayerJson(layer)}, {"choices", ToJson(response)["choices"]}});
    return kDone;
  }
  context.Print(absl::StrCat(layer.info().name(), " on ", source.device_text, "\n\n"));
  Table table({"M", "KERNEL", "ROWS", "CHOSEN BY", "ACTIVATIONS", "WHY"});
  for (const v1::KernelChoice& choice : response.choices()) {
    const auto field = [&choice](const char* name) {
      const auto found = choice.config().find(name);
      return found == choice.config().end() ? std::string("-") : found->second;
    };
    table.Add({absl::StrCat(choice.m()), choice.kernel(), field("rows"), field("chosen_by"),
               FormatText(choice.activation_used(), "as given"),
               choice.reason().empty() ? "-" : choice.reason()});
  }
  context.Print(table.Text());
  std::map<std::string, std::string> before;  // said once for neighbours that share it
  for (const v1::KernelChoice& choice : response.choices()) {
    const std::map<std::string, std::string> sorted(choice.config().begin(), choice.config().end());
    if (sorted == before) continue;
    before = sorted;
    context.Print(absl::StrCat("\nM = ", choice.m(), "\n"));
    Table fields({"", ""});
    for (const auto& [name, value] : sorted) fields.Add({"  " + name, value});
    context.Print(fields.Text());
  }
  return kDone;
}

}  // namespace

Command RegisterCommand() {
  std::vector<Option> options = LayerOptions();
  for (Option& option : SliceOptions()) options.push_back(std::move(option));
  for (Option& option : ModelOptions()) options.push_back(std::move(option));
  options.push_back({"hold", 0, "", "",
                     "keep the layer until Ctrl-C or SIGTERM (while it is being loaded, they cancel); exit 69 when the "
                     "daemon ends first"});
  options.push_back({"keep", 0, "", "", "the same as --hold"});
  return {
      .name = "register",
      .synopsis = "PATH MODULE | PATH --all",
      .summary = "load a layer of a checkpoint, or all of them, and describe it",
      .description =
          "  PATH is a folder below one of the daemon's checkpoint roots, with config.json and\n"
          "  model.safetensors (or its index). The daemon reads and packs the module; progress "
          "goes to\n"
          "  stderr. A layer lives as long as a session holds it: without --hold it is described "
          "and\n"
          "  released again, with --hold other clients find it loaded. With --rows, --columns and "
          "--experts\n"
          "  only that part of the module is loaded, as one rank of tensor or expert parallelism "
          "does.\n"
          "\n"
          "  With --all every quantized module is loaded, those of --modules without those of "
          "--exclude; a\n"
          "  module that cannot be read fails the command, and nothing stays loaded. With "
          "--keep-going the\n"
          "  others are loaded, the failures listed, and the exit status is 1. --tp cuts modules "
          "along "
          "N or K\n"
          "  by their names, --experts stacks of experts. A pattern of --exclude that leaves "
          "nothing out is told, and\n"
          "  so are parts that --fuse cannot join because others do not exist. With --fuse it fails when a "
          "layer\n"
          "  lacks one of q, k, v, o, gate, up or down that the model's other layers have, when experts or "
          "whole layers are missing.\n"
          "\n"
          "  When the daemon is restarted while it loads, the next one is waited for and loads "
          "everything "
          "anew.\n"
          "  What is held already ends with the daemon, and so does the command.\n"
          "\n"
          "  With --quantize the daemon quantizes unquantized weights and holds only the result, which "
          "is the same\n"
          "  for everybody who asks for the same. With --all it concerns every module: --exclude what "
          "shall not be\n"
          "  loaded quantized, such as embeddings, lm_head and routers.\n"
          "\n" +
          QuantizeHelp(),
      .options = options,
      .examples =
          "  gemmctl register /models/llama model.layers.0.mlp.down_proj\n"
          "  gemmctl register /models/llama model.layers.0.mlp.down_proj --device cpu --hold\n"
          "  gemmctl register /models/llama model.layers.0.mlp.down_proj --columns 1/4\n"
          "  gemmctl register /models/llama model.layers.0.self_attn.qkv_proj --rows 3/8 "
          "--row-parts 4096,1024x2,1024x2\n"
          "  gemmctl register /models/llama --all --fuse --tp 0/4 --hold\n"
          "  gemmctl register /models/llama-bf16 model.layers.0.mlp.down_proj --quantize int4,group=128\n"
          "  gemmctl register /models/llama-bf16 --all --quantize fp8-block --exclude '*embed_tokens,lm_head'\n"
          "  gemmctl register /models/llama --all --modules 'model.layers.0.*' --keep-going -o "
          "json",
      .most_positional = 2,
      .run = RunRegister};
}

Command ExplainCommand() {
  std::vector<Option> options = LayerOptions();
  options.push_back({"m", 0, "LIST", "1,8,16,32,64,128,256,512,1024,2048,4096",
                     "numbers of tokens and ranges of them, such as 1-8,64"});
  return {.name = "explain",
          .synopsis = "PATH MODULE",
          .summary = "which kernel serves a layer at each M, and why",
          .description =
              "  Registers the layer for the time of the command. ROWS are the numbers of tokens "
              "that the same\n"
              "  kernel serves; CHOSEN BY says whether it was measured ('gemmctl tune') and its time, "
              "or what the\n"
              "  model expects; '-' is the generic kernel. ACTIVATIONS is the type that x of "
              "16 and 32 bits\n"
              "  gets for the multiplication; WHY says why it differs from what the layer asks for. The fields of the "
              "rendered\n"
              "  configuration follow, once for numbers of tokens that share them.\n"
              "  --quantize: 'gemmctl register --help' says what SPEC is.",
          .options = options,
          .examples =
              "  gemmctl explain /models/llama model.layers.0.mlp.down_proj --m 1,64\n"
              "  gemmctl explain /models/llama model.layers.0.mlp.down_proj -o json",
          .most_positional = 2,
          .run = RunExplain};
}

}  // namespace gemmd::gemmctl
