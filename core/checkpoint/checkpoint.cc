#include "core/checkpoint/checkpoint.h"

#include <new>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/checkpoint/composite.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/model_facts.h"
#include "core/checkpoint/module_names.h"
#include "core/checkpoint/module_tensors.h"
#include "core/checkpoint/plain_experts.h"
#include "core/checkpoint/plain_modules.h"
#include "core/checkpoint/reader.h"
#include "core/checkpoint/reader_parts.h"
#include "core/checkpoint/rotations.h"
#include "core/checkpoint/stack_biases.h"
#include "core/quant/combine.h"

namespace gemmd {
namespace {

// What a reader says of its scheme: in the config's words, which name neither file nor module. What it says of
// tensors names both already.
absl::Status AboutScheme(const CheckpointFiles& files, const std::string& module,
                         const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  const bool about_files = reason == "BAD_CHECKPOINT" || reason == "UNSUPPORTED_FORMAT";
  if (!about_files || absl::StrContains(status.message(), ": module ")) return status;
  return Annotate(status, absl::StrCat(files.config_file(), ": module ", module));
}

// Scales of a quantized key-value cache, which some exporters put beside the projections.
void IgnoreCacheScales(ModuleTensors& tensors) {
  tensors.Ignore(".k_scale");
  tensors.Ignore(".v_scale");
}

bool IsPlainLinear(const ModuleTensors& tensors) {
  const TensorInfo* weight = tensors.Find(".weight");
  return weight != nullptr && weight->shape.size() == 2;
}

// What is read, and how.
struct Reading {
  const CheckpointFiles& files;
  const CheckpointReader* reader = nullptr;  // null: the checkpoint is not quantized
  LayerQuantizer* quantizer = nullptr;       // null: weights come as they are
  const ReadingOptions& options;
};

// Weights that config and tensors agree not to be quantized.
absl::StatusOr<StandardTensor> ReadPlain(const CheckpointFiles& files, ModuleTensors& tensors) {
  if (IsConv1D(files.model_facts(), tensors.module())) {
    return UnsupportedFormat(absl::StrCat(files.config_file(), ": module ", tensors.module(),
                                          ": a Conv1D of such a model, whose weight is stored as [K, N]; expected [N, K]"));
  }
  if (!IsPlainStack(tensors)) return ReadUnquantized(tensors);
  absl::StatusOr<StandardTensor> stack = ReadPlainStack(files, tensors);
  if (!stack.ok()) return AboutScheme(files, tensors.module(), stack.status());
  return stack;
}

// What the config says of the module by the name that it has in the part for text, where that fits its tensors and what it
// says of the stored name did not. Otherwise `as_stored`.
absl::StatusOr<StandardTensor> ReadByNameInTextPart(const Reading& reading, bool is_plain, ModuleTensors& tensors,
                                                    absl::StatusOr<StandardTensor> as_stored) {
  const CheckpointFiles& files = reading.files;
  const std::string stored = tensors.module();
  const std::optional<std::string> name = NameInTextPart(stored);
  if (!files.config_is_of_text() || !name || ReasonOf(as_stored.status()) != "BAD_CHECKPOINT") return as_stored;
  absl::StatusOr<ModuleTensors> again = ModuleTensors::Open(files, stored, tensors.progress());
  if (!again.ok()) return as_stored;
  ModuleTensors renamed = std::move(*again).Renamed(*name);
  IgnoreCacheScales(renamed);
  absl::StatusOr<StandardTensor> tensor = reading.reader->read(files.quantization_config(), reading.options, renamed);
  if (!tensor.ok() && (!is_plain || ReasonOf(tensor.status()) != "MODULE_NOT_FOUND")) return as_stored;
  tensors = std::move(renamed).Renamed(stored);
  return tensor;
}

absl::StatusOr<StandardTensor> ReadWeights(const Reading& reading, ModuleTensors& tensors,
                                           std::string& format) {
  const auto& [files, reader, quantizer, options] = reading;
  const bool is_plain = IsPlainLinear(tensors) || IsPlainStack(tensors);
  if (reader != nullptr) {
    format = reader->quant_method;
    const absl::Status rotations = RejectRotations(files.quantization_config());
    if (!rotations.ok()) return AboutScheme(files, tensors.module(), rotations);
    auto tensor = ReadByNameInTextPart(reading, is_plain, tensors,
                                       reader->read(files.quantization_config(), options, tensors));
    if (ReasonOf(tensor.status()) != "MODULE_NOT_FOUND" || !is_plain) {
      if (!tensor.ok()) return AboutScheme(files, tensors.module(), tensor.status());
      return tensor;
    }
  } else if (!is_plain) {
    return UnsupportedFormat(
        absl::StrCat(files.config_file(), ": module ", tensors.module(),
                     ": there is no quantization_config, and it holds neither a plain .weight "
                     "[N, K] nor a stack of experts"));
  }
  format = "unquantized";
  return ReadPlain(files, tensors);
}

// A module with tensors of its own.
absl::StatusOr<CheckpointLayer> ReadModule(const Reading& reading, ModuleTensors& tensors) {
  IgnoreCacheScales(tensors);
  GEMMD_RETURN_IF_ERROR(CheckStackBias(reading.files, tensors));
  CheckpointLayer layer;
  GEMMD_ASSIGN_OR_RETURN(layer.tensor, ReadWeights(reading, tensors, layer.format));
  GEMMD_RETURN_IF_ERROR(tensors.RejectOthers());
  const absl::Status valid = Validate(layer.tensor);
  if (!valid.ok()) return tensors.Bad(valid.message());
  if (reading.quantizer == nullptr) return layer;
  GEMMD_RETURN_IF_ERROR(reading.quantizer->Apply(tensors.WhereWeightsAre(), tensors.bytes_total(), layer.tensor));
  return layer;
}

// Replaces a layer that was read whole by the part that `slice` says.
absl::Status CutOut(const SliceRequest& slice, StandardTensor& tensor) {
  if (slice.whole()) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(tensor, Slice(tensor, slice));
  return absl::OkStatus();
}

// Reports the parts of a module as one whole.
class PartProgress {
 public:
  explicit PartProgress(const ProgressFunction& whole) : whole_(whole) {}
  ProgressFunction ForParts() {
    return [this](uint64_t done, uint64_t) {
      return whole_ == nullptr || whole_(finished_ + done, total_);
    };
  }
  void Expect(const ModuleTensors& part) { total_ += part.bytes_total(); }
  void Finish(const ModuleTensors& part) { finished_ += part.bytes_total(); }

 private:
  const ProgressFunction& whole_;
  uint64_t finished_ = 0;
  uint64_t total_ = 0;
};

// Of a layer's experts one by one, or of all of them: the slice of one of its parts, and what is cut after the
// parts are joined.
struct PartSlices {
  SliceRequest part;    // experts of stacks, rows by rank, columns
  SliceRequest joined;  // rows by range
};

PartSlices SplitSlice(const SliceRequest& slice, bool of_stacks) {
  PartSlices split;
  if (of_stacks) split.part.experts = slice.experts;
  split.part.columns = slice.columns;
  (slice.rows.size > 0 ? split.part : split.joined).rows = slice.rows;
  return split;
}

// What the caller says of part `index` must be what is stored.
absl::StatusOr<RowPart> PartOfRequest(const SliceRequest& slice, const std::string& part,
                                      size_t index, size_t count, int64_t n) {
  if (slice.row_parts.empty()) return RowPart{.rows = n};
  if (slice.row_parts.size() == count && slice.row_parts[index].rows == n) {
    return slice.row_parts[index];
  }
  return Error(
      absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH",
      absl::StrCat("slice.row_parts: the module is stored in ", count, " parts, and ", part,
                   " has ", n, " rows; the request has ", slice.row_parts.size(), " parts",
                   index < slice.row_parts.size()
                       ? absl::StrCat(", and ", slice.row_parts[index].rows, " rows here")
                       : ""));
}

// Whether a stack has as many experts as config.json counts; not of experts that every token goes through.
absl::Status CheckExperts(const CheckpointFiles& files, const std::string& module,
                          int64_t experts) {
  if (!IsStackName(module)) return absl::OkStatus();
  const std::string prefix = SplitModule(module).first;
  const bool below = IsOfRoutedExperts(prefix);
  return CheckExpertCount(files.model_facts(), below ? prefix.substr(0, prefix.size() - 1) : module,
                          experts);
}

// What is wrong with the ranks for all `parts`, where `cut` says it of the last of `known`; reads those that follow.
absl::Status AboutAllParts(const Reading& reading, std::vector<ModuleTensors>& parts, const SliceRequest& slice,
                           std::vector<RowPart> known, const absl::Status& cut) {
  if (slice.rows.size <= 1) return cut;
  for (size_t i = known.size(); i < parts.size(); ++i) {
    const auto read = ReadModule(reading, parts[i]);
    if (!read.ok()) return cut;
    const auto rows = PartOfRequest(slice, parts[i].module(), i, parts.size(), read->tensor.shape.n);
    if (!rows.ok()) return cut;
    known.push_back(*rows);
  }
  const absl::Status all = CheckRowParts(slice.rows, known);
  return all.ok() ? cut : all;
}

// Rows of `parts` below each other, each cut as `slice` says.
absl::StatusOr<CheckpointLayer> ReadRows(const Reading& reading, const std::string& module,
                                         std::vector<ModuleTensors>& parts,
                                         const SliceRequest& slice, PartProgress& progress) {
  CheckpointLayer layer;
  std::vector<StandardTensor> tensors;
  std::vector<std::string> names;
  std::vector<RowPart> known;
  PartSlices slices = SplitSlice(slice, IsStackName(parts[0].module()));
  LayerShape first;
  for (size_t i = 0; i < parts.size(); ++i) {
    GEMMD_ASSIGN_OR_RETURN(CheckpointLayer read, ReadModule(reading, parts[i]));
    progress.Finish(parts[i]);
    GEMMD_RETURN_IF_ERROR(CheckExperts(reading.files, parts[i].module(), read.tensor.shape.experts));
    if (!layer.format.empty() && layer.format != read.format) {
      return UnsupportedFormat(
          absl::StrCat("module ", module, ": its parts are ", layer.format, " (", parts[0].module(), ") and ",
                       read.format, " (", parts[i].module(), ")"));
    }
    layer.format = read.format;
    names.push_back(parts[i].module());
    if (i == 0) first = read.tensor.shape;
    GEMMD_RETURN_IF_ERROR(CheckSameK(module, parts[0].module(), first.k, parts[i].module(),
                                     read.tensor.shape.k));
    GEMMD_RETURN_IF_ERROR(CheckSameN(module, parts[0].module(), first.n, parts[i].module(),
                                     read.tensor.shape.n));
    GEMMD_ASSIGN_OR_RETURN(const RowPart rows, PartOfRequest(slice, parts[i].module(), i,
                                                             parts.size(), read.tensor.shape.n));
    known.push_back(rows);
    if (slice.rows.size > 1) slices.part.row_parts = {rows};
    const absl::Status cut = CutOut(slices.part, read.tensor);
    if (!cut.ok()) return AboutAllParts(reading, parts, slice, std::move(known), cut);
    tensors.push_back(std::move(read.tensor));
  }
  auto combined = ConcatenateRows(std::move(tensors));
  if (!combined.ok()) return CannotJoin(module, combined.status(), names);
  layer.tensor = *std::move(combined);
  GEMMD_RETURN_IF_ERROR(CutOut(slices.joined, layer.tensor));
  return layer;
}

absl::StatusOr<CheckpointLayer> ReadComposite(const Reading& reading, const std::string& module,
                                              const PartNames& names,
                                              const SliceRequest& slice,
                                              const ProgressFunction& progress) {
  PartProgress part_progress(progress);
  GEMMD_ASSIGN_OR_RETURN(const Range range, PartsOf(slice.experts, names));
  std::vector<std::vector<ModuleTensors>> experts;
  for (int64_t expert = range.begin; expert < range.end; ++expert) {
    experts.emplace_back();
    for (const std::string& part : names[static_cast<size_t>(expert)]) {
      GEMMD_ASSIGN_OR_RETURN(ModuleTensors tensors,
                             ModuleTensors::Open(reading.files, part, part_progress.ForParts()));
      part_progress.Expect(tensors);
      experts.back().push_back(std::move(tensors));
    }
  }
  CheckpointLayer layer;
  std::vector<StandardTensor> tensors;
  for (std::vector<ModuleTensors>& rows : experts) {
    GEMMD_ASSIGN_OR_RETURN(CheckpointLayer read,
                           ReadRows(reading, module, rows, slice, part_progress));
    if (!layer.format.empty() && layer.format != read.format) {
      return UnsupportedFormat(absl::StrCat("module ", module, ": its experts are ", layer.format,
                                            " and ", read.format));
    }
    layer.format = read.format;
    tensors.push_back(std::move(read.tensor));
    GEMMD_RETURN_IF_ERROR(CheckSameSize(module, tensors[0].shape,
                                        range.begin + static_cast<int64_t>(tensors.size()) - 1,
                                        tensors.back().shape));
  }
  auto combined = StackExperts(std::move(tensors));
  if (!combined.ok()) return CannotJoin(module, combined.status());
  layer.tensor = *std::move(combined);
  const absl::Status valid = Validate(layer.tensor);
  if (!valid.ok()) return BadCheckpoint(absl::StrCat("module ", module, ": ", valid.message()));
  return layer;
}

// Without a count in config.json nothing tells whether the last experts are in a file that cannot be read.
absl::Status CheckNoneHidden(const CheckpointFiles& files, const std::string& module) {
  if (files.hidden_files().empty() || !IsStackName(module)) return absl::OkStatus();
  if (!files.model_facts().expert_counts.empty()) return absl::OkStatus();
  return BadCheckpoint(absl::StrCat(files.hidden_files().front().status.message(), ": module ",
                                    module, ": more of its experts may be in this file"));
}

// A module with tensors of its own, cut.
absl::StatusOr<CheckpointLayer> ReadSlice(const Reading& reading, SliceRequest slice,
                                          ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(CheckpointLayer layer, ReadModule(reading, tensors));
  GEMMD_RETURN_IF_ERROR(CheckExperts(reading.files, tensors.module(), layer.tensor.shape.experts));
  const bool by_rank = slice.rows.size > 1;
  if (by_rank && slice.row_parts.empty() && !layer.tensor.gate_up_interleaved) {
    GEMMD_ASSIGN_OR_RETURN(slice.row_parts, FusedRowParts(tensors.module(), layer.tensor.shape.n));
  }
  GEMMD_RETURN_IF_ERROR(CutOut(slice, layer.tensor));
  return layer;
}

absl::StatusOr<CheckpointLayer> Read(const Reading& reading, const std::string& module,
                                     const ProgressFunction& progress, const SliceRequest& slice) {
  const CheckpointFiles& files = reading.files;
  auto tensors = ModuleTensors::Open(files, module, progress);
  if (tensors.ok()) return ReadSlice(reading, slice, *tensors);
  if (ReasonOf(tensors.status()) != "MODULE_NOT_FOUND") return tensors.status();
  GEMMD_ASSIGN_OR_RETURN(const std::optional<PartNames> parts, FindParts(files.index(), module));
  if (!parts) return tensors.status();
  if (!AreStacks(*parts)) {
    GEMMD_RETURN_IF_ERROR(CheckNoneHidden(files, module));
    GEMMD_RETURN_IF_ERROR(CheckExperts(files, module, static_cast<int64_t>(parts->size())));
  }
  return ReadComposite(reading, module, *parts, slice, progress);
}

}  // namespace

Checkpoint::Checkpoint(std::unique_ptr<const CheckpointFiles> files) : files_(std::move(files)) {}

Checkpoint::~Checkpoint() = default;

absl::StatusOr<std::shared_ptr<const Checkpoint>> Checkpoint::Open(
    const std::filesystem::path& directory, const std::vector<std::filesystem::path>& roots) {
  GEMMD_ASSIGN_OR_RETURN(std::unique_ptr<CheckpointFiles> files,
                         CheckpointFiles::Open(directory, roots));
  return std::shared_ptr<const Checkpoint>(new Checkpoint(std::move(files)));
}

absl::StatusOr<CheckpointLayer> Checkpoint::ReadLayer(const std::string& module,
                                                      const ProgressFunction& progress,
                                                      const SliceRequest& slice,
                                                      const QuantizeOnRead* quantize,
                                                      const ReadingOptions& options) const {
  try {
    return ReadAndQuantize(module, progress, slice, quantize, options);
  } catch (const std::bad_alloc&) {  // of what is made of the tensors
    return Error(absl::StatusCode::kResourceExhausted, "HOST_MEMORY",
                 absl::StrCat("module ", module, ": the machine has no memory to convert its tensors of ",
                              BytesOf(module, slice), " bytes"));
  }
}

absl::StatusOr<CheckpointLayer> Checkpoint::ReadAndQuantize(const std::string& module,
                                                            const ProgressFunction& progress,
                                                            const SliceRequest& slice,
                                                            const QuantizeOnRead* quantize,
                                                            const ReadingOptions& options) const {
  GEMMD_ASSIGN_OR_RETURN(const CheckpointReader* const reader, ReaderOf(*files_));
  if (quantize == nullptr) return Read({*files_, reader, nullptr, options}, module, progress, slice);
  LayerQuantizer quantizer(*quantize, BytesOf(module, slice));
  GEMMD_ASSIGN_OR_RETURN(CheckpointLayer layer,
                         Read({*files_, reader, &quantizer, options}, module, progress, slice));
  layer.quantized = quantizer.result();
  return layer;
}

uint64_t Checkpoint::BytesOf(const std::string& module, const SliceRequest& slice) const {
  const auto tensors = ModuleTensors::Open(*files_, module, nullptr);
  if (tensors.ok()) return tensors->bytes_total();
  const auto parts = FindParts(files_->index(), module);
  if (!parts.ok() || !*parts) return 0;
  const auto range = PartsOf(slice.experts, **parts);
  if (!range.ok()) return 0;
  uint64_t total = 0;
  for (int64_t expert = range->begin; expert < range->end; ++expert) {
    for (const std::string& part : (**parts)[static_cast<size_t>(expert)]) {
      const auto of_part = ModuleTensors::Open(*files_, part, nullptr);
      if (of_part.ok()) total += of_part->bytes_total();
    }
  }
  return total;
}

absl::StatusOr<std::vector<std::string>> Checkpoint::ListModules() const {
  GEMMD_ASSIGN_OR_RETURN(const CheckpointReader* const reader, ReaderOf(*files_));
  if (reader == nullptr) return ListLinears(*files_);
  std::set<std::string> modules;
  for (const auto& [name, shard] : files_->index()) {
    for (const char* marker : reader->markers) {
      absl::string_view module = name;
      if (!absl::ConsumeSuffix(&module, marker)) continue;
      modules.emplace(module);
      break;  // markers come longest first
    }
  }
  return std::vector<std::string>(modules.begin(), modules.end());
}

absl::StatusOr<CheckpointLayer> ReadLayer(const std::filesystem::path& directory,
                                          const std::string& module,
                                          const ProgressFunction& progress,
                                          const std::vector<std::filesystem::path>& roots,
                                          const SliceRequest& slice, const QuantizeOnRead* quantize,
                                          const ReadingOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(directory, roots));
  return checkpoint->ReadLayer(module, progress, slice, quantize, options);
}

absl::StatusOr<std::vector<std::string>> ListModules(
    const std::filesystem::path& directory, const std::vector<std::filesystem::path>& roots) {
  GEMMD_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(directory, roots));
  return checkpoint->ListModules();
}

}  // namespace gemmd
