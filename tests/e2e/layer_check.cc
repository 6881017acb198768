#include "tests/e2e/layer_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/gemmctl/format_text.h"
#include "client/gemmctl/numbers.h"
#include "client/gemmctl/workspace.h"
#include "core/quant/activations.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"
#include "kernels/contract/number_format.h"
#include "tests/e2e/environment.h"

namespace gemmd::e2e {
namespace {

using client::Layer;
using client::Session;
using gemmctl::Workspace;

bool IsEightBit(v1::DataType type) {
  return type == v1::DATA_TYPE_FLOAT8_E4M3 || type == v1::DATA_TYPE_FLOAT8_E5M2 ||
         type == v1::DATA_TYPE_INT8;
}

// What each element of y may be off, as a part of the sum of |x| |w|; for 8-bit x on a GPU see Judge.
double UnitError(v1::DataType x_type, int64_t k) {
  // Two roundings of the expected weight, two of dequantized x, one of y: 5 * 2^-24.
  const double expected = 0x1p-21;
  if (!OnCuda()) return expected;
  const double sum = static_cast<double>(k) * 0x1p-23;
  if (x_type == v1::DATA_TYPE_FLOAT32) return expected + 0x1p-21 + sum;  // two split operands
  return expected + 0x1p-9 + sum;
}

// x as the daemon gets it: values per element, and the tensors of the request.
struct Input {
  client::Tensor x;
  std::optional<client::Tensor> scale;
  std::vector<double> values;  // [M, K], scales multiplied in
};

// Codes of integers from -7 to 7, which every 8-bit type holds.
std::vector<double> Codes(v1::DataType type, const std::vector<double>& values) {
  std::vector<double> codes;
  for (const double value : values) {
    const double number = std::clamp(std::nearbyint(3 * value), -7.0, 7.0);
    const NumberFormat& format = type == v1::DATA_TYPE_FLOAT8_E4M3 ? kFloat8E4M3 : kFloat8E5M2;
    codes.push_back(type == v1::DATA_TYPE_INT8 ? number
                                               : static_cast<int8_t>(EncodeNumber(format, number)));
  }
  return codes;
}

double ValueOf(v1::DataType type, double code) {
  if (type == v1::DATA_TYPE_INT8) return code;
  const NumberFormat& format = type == v1::DATA_TYPE_FLOAT8_E4M3 ? kFloat8E4M3 : kFloat8E5M2;
  return DecodeNumber(format, static_cast<uint8_t>(static_cast<int8_t>(code)));
}

absl::StatusOr<Input> PutEightBit(Workspace& workspace, v1::DataType type, int64_t m, int64_t k,
                                  int64_t group, const std::vector<double>& normal) {
  Input input;
  const std::vector<double> codes = Codes(type, normal);
  GEMMD_ASSIGN_OR_RETURN(input.x, workspace.Put(v1::DATA_TYPE_INT8, m, k, codes));
  input.x.dtype = type;
  const int64_t width = group > 0 ? group : k;
  const int64_t columns = (k + width - 1) / width;
  std::vector<double> scales;
  for (int64_t i = 0; i < m * columns; ++i) scales.push_back(0.25 * static_cast<double>(1 + i % 3));
  GEMMD_ASSIGN_OR_RETURN(input.scale, workspace.Put(v1::DATA_TYPE_FLOAT32, m, columns, scales));
  for (int64_t i = 0; i < m * k; ++i) {
    input.values.push_back(ValueOf(type, codes[i]) * scales[(i / k) * columns + (i % k) / width]);
  }
  return input;
}

absl::StatusOr<Input> PutX(Workspace& workspace, const v1::LayerInfo& info, v1::DataType type,
                           int64_t m, double factor = 1) {
  std::vector<double> normal = gemmctl::RandomNormal(static_cast<uint64_t>(m), m * info.k());
  for (double& value : normal) value *= factor;
  if (IsEightBit(type)) {
    return PutEightBit(workspace, type, m, info.k(),
                       static_cast<int64_t>(info.spec().activation_group()), normal);
  }
  Input input;
  GEMMD_ASSIGN_OR_RETURN(input.x, workspace.Put(type, m, info.k(), normal));
  GEMMD_ASSIGN_OR_RETURN(input.values, workspace.Get(input.x));
  return input;
}

// One exact element of x W^T + bias, and the sum of magnitudes that bounds its error.
struct Exact {
  double value = 0;
  double magnitude = 0;
};

Exact Dot(const GoldenLayer& golden, const std::vector<double>& x, int64_t expert, int64_t n,
          int64_t row) {
  Exact exact;
  for (int64_t k = 0; k < golden.k; ++k) {
    const double product = x[k] * golden.Weight(expert, row, k);
    exact.value += product;
    exact.magnitude += std::abs(product);
  }
  if (golden.bias.empty()) return exact;
  const double bias = golden.bias[static_cast<size_t>(expert * n + golden.first_row + row)];
  exact.value += bias;
  exact.magnitude += std::abs(bias);
  return exact;
}

// What the product takes for one row of x: multiplied by the input scale, and quantized where the reply says
// so. Elements of 8 bits had both done to them before.
std::vector<double> Operand(const StandardTensor& tensor, const GoldenLayer& golden,
                            const v1::ExecutionReport& report, v1::DataType x_type, int64_t expert,
                            const double* x) {
  std::vector<double> values(x, x + golden.k);
  if (IsEightBit(x_type)) return values;
  for (size_t k = 0; k < golden.input_scale.size(); ++k) values[k] *= golden.input_scale[k];
  const uint32_t bits = report.activation_used().bits();
  if (bits == 0 || bits > 8) return values;
  const ActivationScaling scaling = ScalingOf(tensor, expert);
  const QuantizedRow quantized =
      QuantizeActivations(std::vector<float>(values.begin(), values.end()), scaling);
  const std::vector<float> dequantized = DequantizeActivations(quantized, scaling);
  return std::vector<double>(dequantized.begin(), dequantized.end());
}

// Collects elements of one or more results.
class Judge {
 public:
  Judge(v1::DataType x_type, int64_t k) : unit_(UnitError(x_type, k)) {}

  // The product takes 8-bit x, whatever the request brought.
  void JudgeByNorm() { by_norm_ = OnCuda(); }

  void Take(double got, double want, double bound) {
    constexpr double kLargest = 0x1p127;    // half of what float32 holds
    constexpr double kSmallest = 0x1p-149;  // and its smallest step
    if (!(std::abs(want) + bound < kLargest)) return;
    bound += kSmallest;
    ++compared_;
    const double error = std::isfinite(got) ? std::abs(got - want) : HUGE_VAL;
    squares_ += want * want;
    error_squares_ += error * error;
    worst_ = std::max(worst_, error / bound);
  }
  int64_t compared() const { return compared_; }
  double unit() const { return unit_; }
  double relative() const {
    return error_squares_ == 0 ? 0 : std::sqrt(error_squares_) / std::sqrt(squares_);
  }
  double error_of_bound() const { return by_norm_ ? relative() / (1e-3 + unit_) : worst_; }

 private:
  bool by_norm_ = false;
  const double unit_;
  int64_t compared_ = 0;
  double worst_ = 0;
  double squares_ = 0;
  double error_squares_ = 0;
};

bool IsGeneric(const std::string& kernel) { return absl::StartsWith(kernel, "gemm_tf32"); }

void Note(const v1::ExecutionReport& report, LayerCheck& check) {
  check.activation_used = gemmctl::FormatText(report.activation_used(), "as given");
  if (std::find(check.kernels.begin(), check.kernels.end(), report.kernel()) ==
      check.kernels.end()) {
    check.kernels.push_back(report.kernel());
  }
}

// Whether kernels of the layer are being compiled or loaded.
absl::StatusOr<bool> IsCompiling(const Session& session, const Layer& layer, int64_t m) {
  GEMMD_ASSIGN_OR_RETURN(const v1::ExplainLayerResponse explained, session.Explain(layer, {m}));
  for (const v1::KernelChoice& choice : explained.choices()) {
    const auto found = choice.config().find("specialised_kernels");
    if (found == choice.config().end()) continue;
    // "3 of 14 ready, 4 compile, 1 failed: why", as core/exec/cuda_explain.cc says it.
    const std::string before_failures = found->second.substr(0, found->second.find(" failed: "));
    if (absl::StrContains(before_failures, " compile")) return true;
  }
  return false;
}

// Repeats the request until a specialised kernel serves it; the last answer counts. Layers without such
// kernels are done at once. Requests that none of them takes are done when nothing has been compiled for a
// while, at most when `patience` ends.
absl::StatusOr<v1::GemmResponse> RunDense(Session& session, const client::Gemm& gemm,
                                          absl::Duration patience) {
  constexpr absl::Duration kQuiet = absl::Seconds(1);
  const absl::Time deadline = absl::Now() + patience;
  absl::Time busy = absl::Now();
  while (true) {
    const absl::Time asked = absl::Now();
    GEMMD_ASSIGN_OR_RETURN(v1::GemmResponse response, session.Run(gemm));
    if (!IsGeneric(response.report().kernel()) || absl::Now() >= deadline) return response;
    GEMMD_ASSIGN_OR_RETURN(const v1::LayerInfo info, session.Inspect(*gemm.layer));
    if (info.specialised_kernels() == 0 || asked - busy > kQuiet) return response;
    GEMMD_ASSIGN_OR_RETURN(const bool compiling, IsCompiling(session, *gemm.layer, gemm.x.rows));
    if (compiling) busy = absl::Now();
    absl::SleepFor(absl::Milliseconds(50));
  }
}

absl::Status CheckDense(Session& session, const Layer& layer, const GoldenLayer& golden,
                        const StandardTensor& tensor, v1::DataType type, absl::Duration patience,
                        Judge& judge, LayerCheck& check) {
  const v1::LayerInfo info = layer.info();
  for (const int64_t m : {1, 17}) {
    GEMMD_ASSIGN_OR_RETURN(
        Workspace workspace,
        Workspace::Create(session, info.device(), "auto",
                          static_cast<uint64_t>(m * (info.n() + 2 * info.k()) * 4) + 1024));
    GEMMD_ASSIGN_OR_RETURN(const Input input, PutX(workspace, info, type, m));
    client::Gemm gemm{.layer = &layer, .x = input.x, .x_scale = input.scale};
    GEMMD_ASSIGN_OR_RETURN(gemm.y, workspace.Place(v1::DATA_TYPE_FLOAT32, m, info.n()));
    GEMMD_ASSIGN_OR_RETURN(const v1::GemmResponse response, RunDense(session, gemm, patience));
    Note(response.report(), check);
    GEMMD_ASSIGN_OR_RETURN(const std::vector<double> y, workspace.Get(gemm.y));
    if (response.report().activation_used().bits() == 8) judge.JudgeByNorm();
    for (int64_t token = 0; token < m; ++token) {
      const std::vector<double> x = Operand(tensor, golden, response.report(), type, 0,
                                            input.values.data() + token * golden.k);
      for (int64_t row = 0; row < golden.rows; ++row) {
        const Exact exact = Dot(golden, x, 0, info.n(), row);
        judge.Take(y[token * info.n() + golden.first_row + row], exact.value,
                   exact.magnitude * judge.unit());
      }
    }
  }
  return absl::OkStatus();
}

// The identity for every expert, in float32: with it and max(0, x)^2 in between, a MoE request gives back
// the squares of the positive elements of x W^T + bias.
struct Identity {
  client::Region memory;
  Layer layer;
};
absl::StatusOr<Identity> MakeIdentity(Session& session, const std::string& device, int64_t experts,
                                      int64_t n) {
  std::vector<std::byte> codes(static_cast<size_t>(experts * n * n) * sizeof(float));
  constexpr float kOne = 1;
  for (int64_t i = 0; i < experts * n; ++i) {
    std::memcpy(codes.data() + (i * n + i % n) * sizeof(float), &kOne, sizeof(kOne));
  }
  Identity identity;
  GEMMD_ASSIGN_OR_RETURN(identity.memory, session.AllocateInDaemon(device, codes.size()));
  GEMMD_RETURN_IF_ERROR(identity.memory.Write(0, codes));
  client::LayerTensors tensors{.experts = experts, .n = n, .k = n};
  v1::NumberFormat& weight = *tensors.spec.mutable_weight();
  weight.set_kind(v1::NUMBER_KIND_FLOAT);
  weight.set_bits(32);
  weight.set_exponent_bits(8);
  weight.set_mantissa_bits(23);
  weight.set_special(v1::SPECIAL_VALUES_IEEE);
  tensors.codes = {&identity.memory, 0, codes.size()};
  const std::string name = absl::StrCat("identity ", experts, " ", n);  // one content, whoever asks at once
  GEMMD_ASSIGN_OR_RETURN(identity.layer, session.RegisterTensors(tensors, device, name));
  return identity;
}

// 1, or a power of two so small that the squares of x W^T stay numbers: one that does not makes its whole
// token NaN in the second layer.
double SmallEnough(const GoldenLayer& golden) {
  constexpr int kHarmless = 40;
  constexpr int kSmallest = 100;
  double largest = 1;
  for (const double weight : golden.weights) {
    largest = std::max(largest, std::min(std::abs(weight), 0x1p130));
  }
  const int exponent = std::ilogb(largest);
  return exponent < kHarmless ? 1 : std::ldexp(1.0, -std::min(exponent, kSmallest));
}

absl::Status CheckExperts(Session& session, const Layer& layer, const GoldenLayer& golden,
                          const StandardTensor& tensor, Judge& judge, LayerCheck& check) {
  const v1::LayerInfo info = layer.info();
  const int64_t n = info.n();
  const int64_t m = 2 * golden.experts;  // token t goes to expert t mod E
  GEMMD_ASSIGN_OR_RETURN(const Identity identity,
                         MakeIdentity(session, info.device(), golden.experts, n));
  GEMMD_ASSIGN_OR_RETURN(
      Workspace workspace,
      Workspace::Create(session, info.device(), "auto",
                        static_cast<uint64_t>(m * (n + info.k() + 2) * 4) + 2048));
  GEMMD_ASSIGN_OR_RETURN(const Input input,
                         PutX(workspace, info, v1::DATA_TYPE_FLOAT32, m, SmallEnough(golden)));
  std::vector<double> ids;
  for (int64_t token = 0; token < m; ++token) {
    ids.push_back(static_cast<double>(token % golden.experts));
  }
  client::Moe moe{.gate_up = &layer, .down = &identity.layer, .x = input.x};
  moe.activation = v1::ACTIVATION_FUNCTION_RELU_SQUARED;
  GEMMD_ASSIGN_OR_RETURN(moe.topk_ids, workspace.Put(v1::DATA_TYPE_INT32, m, 1, ids));
  GEMMD_ASSIGN_OR_RETURN(moe.topk_weights, workspace.Put(v1::DATA_TYPE_FLOAT32, m, 1,
                                                         std::vector<double>(ids.size(), 1)));
  GEMMD_ASSIGN_OR_RETURN(moe.y, workspace.Place(v1::DATA_TYPE_FLOAT32, m, n));
  GEMMD_ASSIGN_OR_RETURN(const v1::MoeResponse response, session.Run(moe));
  Note(response.gate_up(), check);
  GEMMD_ASSIGN_OR_RETURN(const std::vector<double> y, workspace.Get(moe.y));
  if (response.gate_up().activation_used().bits() == 8) judge.JudgeByNorm();
  for (int64_t token = 0; token < m; ++token) {
    const int64_t expert = token % golden.experts;
    // One infinite value makes its whole token NaN in the second layer.
    if (OnCuda() && golden.IsBeyondFloat32(expert)) {
      check.beyond_float32 = true;
      continue;
    }
    const std::vector<double> x = Operand(tensor, golden, response.gate_up(), v1::DATA_TYPE_FLOAT32,
                                          expert, input.values.data() + token * golden.k);
    for (int64_t row = 0; row < golden.rows; ++row) {
      const Exact exact = Dot(golden, x, expert, n, row);
      const double positive = std::max(exact.value, 0.0);
      // (a + d)^2 - a^2 with |d| at most `off`, and the roundings of the square and of y.
      const double off = exact.magnitude * judge.unit();
      judge.Take(y[token * n + golden.first_row + row], positive * positive,
                 2 * positive * off + off * off + positive * positive * (0x1p-22 + judge.unit()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<v1::DataType> TypesToCheck(const v1::LayerInfo& info) {
  if (info.experts() > 1) return {v1::DATA_TYPE_FLOAT32};
  std::vector<v1::DataType> types = {v1::DATA_TYPE_BFLOAT16};
  const std::string declared = gemmctl::FormatText(
      info.has_encoding() ? info.encoding().format() : info.spec().activation(), "");
  if (declared == "e4m3") types.push_back(v1::DATA_TYPE_FLOAT8_E4M3);
  if (declared == "e5m2") types.push_back(v1::DATA_TYPE_FLOAT8_E5M2);
  if (declared == "int8") types.push_back(v1::DATA_TYPE_INT8);
  return types;
}

absl::StatusOr<LayerCheck> CheckLayer(Session& session, const Layer& layer,
                                      const GoldenLayer& golden, const StandardTensor& tensor,
                                      v1::DataType x_type, absl::Duration patience) {
  const v1::LayerInfo info = layer.info();
  if (info.k() != golden.k || info.experts() != golden.experts ||
      info.n() < golden.first_row + golden.rows) {
    return absl::InternalError(absl::StrCat("the layer is ", info.experts(), " x ", info.n(), " x ",
                                            info.k(), ", the expectation ", golden.experts, " x ",
                                            golden.rows, " x ", golden.k));
  }
  if (info.spec().has_bias() == golden.bias.empty()) {
    return absl::InternalError("layer and expectation differ in having a bias");
  }
  Judge judge(x_type, golden.k);
  LayerCheck check;
  GEMMD_RETURN_IF_ERROR(
      info.experts() > 1
          ? CheckExperts(session, layer, golden, tensor, judge, check)
          : CheckDense(session, layer, golden, tensor, x_type, patience, judge, check));
  check.error_of_bound = judge.error_of_bound();
  check.relative_error = judge.relative();
  check.compared = judge.compared();
  return check;
}

}  // namespace gemmd::e2e
