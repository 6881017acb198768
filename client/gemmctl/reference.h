// What    GEMM and MoE in double precision from dequantized weights, and the distance of a result
//         to it.
// Shapes  weights [E, N, K] row-major, bias [E, N] or empty; x [M, K].
// Threads Pure functions.
#ifndef GEMMD_CLIENT_GEMMCTL_REFERENCE_H_
#define GEMMD_CLIENT_GEMMCTL_REFERENCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/quant/activations.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::gemmctl {

struct DenseWeights {
  int64_t experts = 1;
  int64_t n = 0;
  int64_t k = 0;
  std::vector<double> weights;
  std::vector<double> bias;
};

// y[M, N] = x[M, K] * w[N, K]^T + bias, with expert 0.
std::vector<double> ReferenceGemm(const DenseWeights& layer, int64_t m, absl::Span<const double> x);

// x [M, K] of 16 or 32 bits as the product took it, whose reply is `report`: codes times scales where it
// quantized x (core/quant/activations.h), else x itself. A static scale lies in the layer, and its
// description leaves it out: `static_scale`, or FailedPrecondition.
absl::StatusOr<std::vector<double>> OperandOf(
    const v1::QuantSpec& spec, const v1::ExecutionReport& report, int64_t k,
    const std::vector<double>& x, const std::optional<ActivationScaling>& static_scale = {});

// Whether OperandOf needs `static_scale`.
bool NeedsStaticScale(const v1::QuantSpec& spec, const v1::ExecutionReport& report);

// gpt-oss block: rows of gate_up alternate gate, up; activation SWIGLU_CLAMPED. Ids outside [0, E)
// add nothing.
struct MoeReference {
  const DenseWeights* gate_up = nullptr;
  const DenseWeights* down = nullptr;
  int64_t top_k = 1;
  double alpha = 1.702;
  double limit = 7.0;
};
std::vector<double> ReferenceMoe(const MoeReference& moe, int64_t m, absl::Span<const double> x,
                                 absl::Span<const double> ids, absl::Span<const double> weights);

struct ErrorReport {
  int64_t compared = 0;  // elements; those that are the same NaN or infinity on both sides are not among them
  double relative_frobenius =
      0;  // |got - want| / |want| of these; 0 when both are 0, infinity when want is 0
  double max_abs = 0;
  int64_t worst_row = 0;
  int64_t worst_column = 0;
  double got = 0;  // at the worst element
  double want = 0;
  int64_t bad_special = 0;  // elements where exactly one side is NaN, or infinities differ
  int64_t nan = 0;          // elements of `got`
  int64_t infinite = 0;

  bool Within(double bound) const { return bad_special == 0 && relative_frobenius <= bound; }
  std::string Text() const;
};

ErrorReport Compare(absl::Span<const double> got, absl::Span<const double> want, int64_t columns);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_REFERENCE_H_
