// What    The checkpoint readers, from files to the standard representation. Input: 4 bytes
//         little-endian length of config.json, config.json, model.safetensors.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/model_plan.h"
#include "core/checkpoint/reading_notes.h"
#include "core/quant/reference.h"
#include "tests/fuzz/checkpoint_seeds.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

// The files live in memory where the machine offers that.
class Workspace {
 public:
  Workspace() {
    std::error_code error;
    const bool has_memory = std::filesystem::is_directory("/dev/shm", error);
    std::string name = has_memory ? "/dev/shm/gemmd_fuzz_XXXXXX" : "/tmp/gemmd_fuzz_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Workspace() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  void Write(const char* name, const uint8_t* data, size_t size) const {
    std::ofstream stream(path_ / name, std::ios::binary);
    stream.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  }

 private:
  std::filesystem::path path_;
};

// What a reader accepts must be a valid layer whose rows can be read.
void Check(const gemmd::StandardTensor& tensor) {
  const absl::Status valid = gemmd::Validate(tensor);
  if (!valid.ok()) {
    std::fprintf(stderr, "accepted, but not valid: %s\n", valid.ToString().c_str());
    std::abort();
  }
  std::vector<float> row(tensor.shape.k);
  gemmd::DequantizeRowFloat32(tensor, 0, 0, absl::MakeSpan(row));
  gemmd::DequantizeRowFloat32(tensor, tensor.shape.experts - 1, tensor.shape.n - 1,
                              absl::MakeSpan(row));
}

// Names that may be put together from `module` and its neighbours.
std::vector<std::string> Composites(const std::string& module) {
  const std::string parent = module.substr(0, module.rfind('.') + 1);
  std::vector<std::string> names = {parent + "qkv_proj", parent + "gate_up_proj"};
  const size_t experts = module.find("experts.");
  if (experts != std::string::npos) {
    const std::string stack = module.substr(0, experts + std::strlen("experts."));
    names.push_back(stack + "gate_up_proj");
    names.push_back(stack + "down_proj");
  }
  return names;
}

constexpr gemmd::AxisSlice kSecondHalf{.rank = 1, .size = 2, .range = {}};

// What a rank would register of the model, joined; reading it may still be refused.
void CheckPlan(const gemmd::Checkpoint& checkpoint) {
  gemmd::ModelSelection selection;
  selection.fuse = true;
  selection.tensor = kSecondHalf;
  selection.experts.range = {0, 1};
  const auto plan = gemmd::PlanModel(checkpoint, selection);
  if (!plan.ok()) return;
  gemmd::ReadingNotes(checkpoint, plan->modules);
  constexpr gemmd::ReadingOptions kFieldMasked{gemmd::GptqZeroPoints::kFieldMasked};
  for (size_t i = 0; i < std::min<size_t>(plan->modules.size(), 3); ++i) {
    const gemmd::PlannedModule& planned = plan->modules[i];
    const auto layer = checkpoint.ReadLayer(planned.module, nullptr, planned.slice, nullptr, kFieldMasked);
    if (layer.ok()) Check(layer->tensor);
  }
}

}  // namespace

namespace gemmd {

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const auto& directory : SeedCheckpoints()) {
    const std::string config = ReadWhole(directory / "config.json");
    const std::string model = ReadWhole(directory / "model.safetensors");
    const auto length = static_cast<uint32_t>(config.size());
    seeds.push_back(std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + config +
                    model);
  }
  return seeds;
}

}  // namespace gemmd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Workspace workspace;
  uint32_t length;
  if (size < sizeof(length)) return 0;
  std::memcpy(&length, data, sizeof(length));
  data += sizeof(length);
  size -= sizeof(length);
  const size_t config_size = std::min<size_t>(length, size);
  workspace.Write("config.json", data, config_size);
  workspace.Write("model.safetensors", data + config_size, size - config_size);
  const auto checkpoint = gemmd::Checkpoint::Open(workspace.path());
  if (!checkpoint.ok()) return 0;
  const auto modules = (*checkpoint)->ListModules();
  if (!modules.ok()) return 0;
  for (size_t i = 0; i < std::min<size_t>(modules->size(), 4); ++i) {
    const auto layer = (*checkpoint)->ReadLayer((*modules)[i]);
    if (!layer.ok()) continue;
    Check(layer->tensor);
    const auto part = gemmd::Slice(layer->tensor,
                                   gemmd::SliceRequest{{}, kSecondHalf, kSecondHalf, {}});
    if (part.ok()) Check(*part);
  }
  CheckPlan(**checkpoint);
  if (modules->empty()) return 0;
  for (const std::string& name : Composites(modules->front())) {
    const auto layer = (*checkpoint)->ReadLayer(name);
    if (layer.ok()) Check(layer->tensor);
  }
  return 0;
}
