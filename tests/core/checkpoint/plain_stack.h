// What    Experts in one tensor that is not quantized, of random weights, and where their elements lie in the file.
#ifndef GEMMD_TESTS_CORE_CHECKPOINT_PLAIN_STACK_H_
#define GEMMD_TESTS_CORE_CHECKPOINT_PLAIN_STACK_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "core/quant/reference.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd::plain_stack {

inline constexpr char kLayer[] = "model.layers.0.mlp.experts.";
inline constexpr int64_t kExperts = 4;
inline constexpr int64_t kHidden = 40;
inline constexpr int64_t kInner = 12;
inline constexpr char kSizes[] =
    R"("num_local_experts": 4, "hidden_size": 40, "intermediate_size": 12)";

inline std::string Config(const std::string& type, const std::string& more = "") {
  return absl::StrCat(R"({"model_type": ")", type, R"(", )", kSizes, more, "}");
}

inline NumberFormat FormatOf(const std::string& dtype) {
  return dtype == "F32" ? kFloat32 : dtype == "F16" ? kFloat16 : kBFloat16;
}

// Finite numbers of every sign and many exponents.
inline RawTensor RandomTensor(const std::string& dtype, const std::vector<int64_t>& shape,
                              std::mt19937& random) {
  RawTensor tensor{dtype, shape, ""};
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  const int bytes = FormatOf(dtype).bits / 8;
  while (static_cast<int64_t>(tensor.bytes.size()) < count * bytes) {
    const auto bits = static_cast<uint32_t>(random());
    if (!std::isfinite(DecodeNumber(FormatOf(dtype), bytes == 2 ? bits & 0xffff : bits))) continue;
    tensor.bytes.append(reinterpret_cast<const char*>(&bits), static_cast<size_t>(bytes));
  }
  return tensor;
}

inline double At(const RawTensor& tensor, int64_t index) {
  const int bytes = FormatOf(tensor.dtype).bits / 8;
  uint32_t bits = 0;
  std::memcpy(&bits, tensor.bytes.data() + index * bytes, static_cast<size_t>(bytes));
  return DecodeNumber(FormatOf(tensor.dtype), bits);
}

// One layer's stack on disk.
class Stack {
 public:
  Stack(const std::string& config, RawTensors tensors, const std::string& prefix = kLayer) {
    WriteFile(directory_.path() / "config.json", config);
    for (const auto& [name, tensor] : tensors) tensors_[prefix + name] = tensor;
    WriteTensors(directory_.path() / "model.safetensors", tensors_);
  }
  absl::StatusOr<CheckpointLayer> Read(const std::string& name, const SliceRequest& slice = {},
                                       const QuantizeOnRead* quantize = nullptr) const {
    return ReadLayer(directory_.path(), name, nullptr, {}, slice, quantize);
  }
  std::vector<std::string> List() const { return *ListModules(directory_.path()); }

 private:
  TemporaryDirectory directory_;
  RawTensors tensors_;
};

// Where element [expert, n, k] of the layer lies in the file.
using Place = std::function<int64_t(int64_t expert, int64_t n, int64_t k)>;
inline Place Rows(int64_t n, int64_t k) {
  return [n, k](int64_t expert, int64_t row, int64_t column) {
    return (expert * n + row) * k + column;
  };
}
inline Place Columns(int64_t n, int64_t k) {
  return [n, k](int64_t expert, int64_t row, int64_t column) {
    return (expert * k + column) * n + row;
  };
}

inline void ExpectWeights(const StandardTensor& tensor, const LayerShape& shape,
                          const RawTensor& stored, const Place& place) {
  ASSERT_EQ(tensor.shape, shape);
  ASSERT_TRUE(Validate(tensor).ok()) << Validate(tensor);
  std::vector<double> row(static_cast<size_t>(shape.k));
  for (int64_t expert = 0; expert < shape.experts; ++expert) {
    for (int64_t n = 0; n < shape.n; ++n) {
      DequantizeRow(tensor, expert, n, absl::MakeSpan(row));
      for (int64_t k = 0; k < shape.k; ++k) {
        ASSERT_EQ(row[static_cast<size_t>(k)], At(stored, place(expert, n, k)))
            << expert << " " << n << " " << k;
      }
    }
  }
}

inline std::string BytesOf(const Buffer& buffer) {
  return std::string(reinterpret_cast<const char*>(buffer.data()), buffer.size());
}

class PlainExpertsTest : public ::testing::Test {
 protected:
  PlainExpertsTest() : random_(seed_) {}
  RawTensor Random(const std::vector<int64_t>& shape, const std::string& dtype = "BF16") {
    return RandomTensor(dtype, shape, random_);
  }

  // gate_up_proj and down_proj as gpt-oss holds them.
  RawTensors GptOss() {
    return {{"gate_up_proj", Random({kExperts, kHidden, 2 * kInner})},
            {"gate_up_proj_bias", Random({kExperts, 2 * kInner})},
            {"down_proj", Random({kExperts, kInner, kHidden})},
            {"down_proj_bias", Random({kExperts, kHidden})}};
  }
  static absl::Status Refused(const std::string& config, const RawTensors& tensors,
                              const std::string& name) {
    return Stack(config, tensors).Read(kLayer + name).status();
  }

  const uint32_t seed_ = std::random_device()();
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__, absl::StrCat("seed ", seed_)};
  std::mt19937 random_;
};

}  // namespace gemmd::plain_stack

#endif  // GEMMD_TESTS_CORE_CHECKPOINT_PLAIN_STACK_H_
