#include "client/layer.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace gemmd::client {
namespace {

using Slot = v1::RawRef* (v1::TensorSource::*)();

void AddBytes(const std::optional<RegionBytes>& bytes, Slot slot, v1::RegisterLayerRequest& request,
              std::vector<LayerRecord::SourceRegion>* regions) {
  if (!bytes || bytes->region == nullptr || bytes->region->empty()) return;
  v1::RawRef* ref = (request.mutable_tensors()->*slot)();
  ref->set_byte_offset(bytes->byte_offset);
  ref->set_byte_size(bytes->byte_size);
  regions->push_back({bytes->region->record(), [slot](v1::RegisterLayerRequest& into) {
                        return (into.mutable_tensors()->*slot)()->mutable_region();
                      }});
}

}  // namespace

std::string DefaultLayerName(const std::string& module, const std::string& part) {
  constexpr size_t kMostBytes = 256;  // RegisterLayerRequest.name
  std::string name = part.empty() ? module : absl::StrCat(module, " ", part);
  if (name.size() <= kMostBytes) return name;
  uint64_t digest = 0xcbf29ce484222325;  // FNV-1a: the same in every process
  for (const char c : name) digest = (digest ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  const std::string tail = absl::StrCat("~", absl::Hex(digest, absl::kZeroPad16));
  size_t kept = kMostBytes - tail.size();
  while (kept > 0 && (static_cast<uint8_t>(name[kept]) & 0xc0) == 0x80) --kept;  // whole characters
  return name.substr(0, kept) + tail;
}

v1::RegisterLayerRequest TensorsRequest(const LayerTensors& tensors, const std::string& device,
                                        const std::string& name,
                                        std::vector<LayerRecord::SourceRegion>* regions) {
  v1::RegisterLayerRequest request;
  request.set_device(device);
  request.set_name(name);
  v1::TensorSource* source = request.mutable_tensors();
  *source->mutable_spec() = tensors.spec;
  if (tensors.encoding.has_format()) *source->mutable_encoding() = tensors.encoding;
  if (tensors.quantize.has_value()) *source->mutable_quantize() = *tensors.quantize;
  source->set_experts(tensors.experts);
  source->set_n(tensors.n);
  source->set_k(tensors.k);
  AddBytes(tensors.codes, &v1::TensorSource::mutable_codes, request, regions);
  AddBytes(tensors.scales, &v1::TensorSource::mutable_scales, request, regions);
  AddBytes(tensors.zero_points, &v1::TensorSource::mutable_zero_points, request, regions);
  AddBytes(tensors.secondary_scales, &v1::TensorSource::mutable_secondary_scales, request, regions);
  AddBytes(tensors.group_index, &v1::TensorSource::mutable_group_index, request, regions);
  AddBytes(tensors.bias, &v1::TensorSource::mutable_bias, request, regions);
  AddBytes(tensors.activation_scale, &v1::TensorSource::mutable_activation_scale, request, regions);
  AddBytes(tensors.input_scale, &v1::TensorSource::mutable_input_scale, request, regions);
  AddBytes(tensors.activation_zero_point, &v1::TensorSource::mutable_activation_zero_point, request,
           regions);
  AddBytes(tensors.activation_global_scale, &v1::TensorSource::mutable_activation_global_scale,
           request, regions);
  return request;
}

Layer& Layer::operator=(Layer&& other) noexcept {
  if (this == &other) return *this;
  Release();
  session_ = std::move(other.session_);
  record_ = std::move(other.record_);
  return *this;
}

void Layer::Release() {
  if (record_ == nullptr) return;
  session_->Remove(record_);
  record_ = nullptr;
  session_ = nullptr;
}

}  // namespace gemmd::client
