#include "client/gemmctl/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "client/gemmctl/format_text.h"
#include "core/quant/activations.h"

namespace gemmd::gemmctl {
namespace {

// out[n] = sum over k of x[k] * w[expert, n, k] + bias[expert, n]
std::vector<double> Project(const DenseWeights& layer, int64_t expert, const double* x) {
  std::vector<double> out(static_cast<size_t>(layer.n));
  for (int64_t row = 0; row < layer.n; ++row) {
    const double* w = layer.weights.data() + (expert * layer.n + row) * layer.k;
    double sum = 0;
    for (int64_t k = 0; k < layer.k; ++k) sum += x[k] * w[k];
    out[row] = sum + (layer.bias.empty() ? 0.0 : layer.bias[expert * layer.n + row]);
  }
  return out;
}

std::vector<double> ClampedSwiglu(const MoeReference& moe, const std::vector<double>& gate_up) {
  std::vector<double> hidden(gate_up.size() / 2);
  for (size_t i = 0; i < hidden.size(); ++i) {
    const double gate = std::min(gate_up[2 * i], moe.limit);
    const double up = std::clamp(gate_up[2 * i + 1], -moe.limit, moe.limit);
    hidden[i] = gate / (1 + std::exp(-moe.alpha * gate)) * (up + 1);
  }
  return hidden;
}

NumberFormat ElementOf(const std::string& name) {
  if (name == "e4m3") return kFloat8E4M3;
  return name == "e5m2" ? kFloat8E5M2 : kInt8;
}

// Of column i of a row, in double precision.
double ElementValue(const QuantizedRow& row, const ActivationScaling& scaling, int64_t k, int64_t i) {
  const auto column = static_cast<size_t>(i);
  const auto group = static_cast<size_t>(i / (scaling.group > 0 ? scaling.group : k));
  const double zero = row.zero_points.empty() ? 0 : double{row.zero_points[group]};
  return (double{row.elements[column]} - zero) * row.scales[group];
}

bool SameSpecial(double got, double want) {
  return (std::isnan(got) && std::isnan(want)) || got == want;
}

}  // namespace

std::vector<double> ReferenceGemm(const DenseWeights& layer, int64_t m,
                                  absl::Span<const double> x) {
  std::vector<double> y;
  y.reserve(static_cast<size_t>(m * layer.n));
  for (int64_t row = 0; row < m; ++row) {
    const std::vector<double> out = Project(layer, 0, x.data() + row * layer.k);
    y.insert(y.end(), out.begin(), out.end());
  }
  return y;
}

std::vector<double> ReferenceMoe(const MoeReference& moe, int64_t m, absl::Span<const double> x,
                                 absl::Span<const double> ids, absl::Span<const double> weights) {
  const int64_t n = moe.down->n;
  std::vector<double> y(static_cast<size_t>(m * n), 0.0);
  for (int64_t slot = 0; slot < m * moe.top_k; ++slot) {
    const auto expert = static_cast<int64_t>(ids[slot]);
    if (expert < 0 || expert >= moe.down->experts) continue;
    const int64_t token = slot / moe.top_k;
    const std::vector<double> gate_up =
        Project(*moe.gate_up, expert, x.data() + token * moe.gate_up->k);
    const std::vector<double> out = Project(*moe.down, expert, ClampedSwiglu(moe, gate_up).data());
    for (int64_t i = 0; i < n; ++i) y[token * n + i] += weights[slot] * out[i];
  }
  return y;
}

bool NeedsStaticScale(const v1::QuantSpec& spec, const v1::ExecutionReport& report) {
  return report.activation_used().bits() == 8 &&
         spec.activation_scale() == v1::ACTIVATION_SCALE_KIND_STATIC_TENSOR;
}

absl::StatusOr<std::vector<double>> OperandOf(
    const v1::QuantSpec& spec, const v1::ExecutionReport& report, int64_t k,
    const std::vector<double>& x, const std::optional<ActivationScaling>& static_scale) {
  if (report.activation_used().bits() != 8 || k == 0) return x;
  ActivationScaling scaling;
  scaling.element = ElementOf(FormatText(report.activation_used(), ""));
  scaling.group = static_cast<int64_t>(spec.activation_group());
  if (NeedsStaticScale(spec, report)) {
    if (!static_scale.has_value()) {
      return absl::FailedPreconditionError("x was quantized with the layer's static scale");
    }
    scaling = *static_scale;
  }
  std::vector<double> operand;
  operand.reserve(x.size());
  for (auto row = x.begin(); row != x.end(); row += k) {
    const QuantizedRow quantized = QuantizeActivations(std::vector<float>(row, row + k), scaling);
    for (int64_t i = 0; i < k; ++i) operand.push_back(ElementValue(quantized, scaling, k, i));
  }
  return operand;
}

ErrorReport Compare(absl::Span<const double> got, absl::Span<const double> want, int64_t columns) {
  ErrorReport report;
  double error_square = 0;
  double want_square = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    report.nan += std::isnan(got[i]) ? 1 : 0;
    report.infinite += std::isinf(got[i]) ? 1 : 0;
    const bool special = !std::isfinite(got[i]) || !std::isfinite(want[i]);
    if (special && SameSpecial(got[i], want[i])) continue;
    ++report.compared;
    const double error =
        special ? std::numeric_limits<double>::infinity() : std::fabs(got[i] - want[i]);
    report.bad_special += special ? 1 : 0;
    if (!special) {
      error_square += error * error;
      want_square += want[i] * want[i];
    }
    if (error > report.max_abs || report.compared == 1) {
      report.max_abs = error;
      report.worst_row = columns == 0 ? 0 : static_cast<int64_t>(i) / columns;
      report.worst_column = columns == 0 ? 0 : static_cast<int64_t>(i) % columns;
      report.got = got[i];
      report.want = want[i];
    }
  }
  if (error_square > 0) {
    report.relative_frobenius = want_square > 0 ? std::sqrt(error_square / want_square)
                                                : std::numeric_limits<double>::infinity();
  }
  return report;
}

std::string ErrorReport::Text() const {
  if (compared == 0) return "nothing was compared";
  return absl::StrFormat(
      "relative %.2e over %d numbers, max abs %.3e at [%d, %d]: got %.7g, want %.7g%s",
      relative_frobenius, compared, max_abs, worst_row, worst_column, got, want,
      bad_special == 0 ? "" : absl::StrFormat(", %d NaN or Inf differ", bad_special));
}

}  // namespace gemmd::gemmctl
