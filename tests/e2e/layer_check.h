// What    One layer on a running daemon against the double-precision product with its exporter's weights.
// Bounds  DESIGN: with 16-bit x the error is at most that of rounding each weight to x's type and summing in
//         float32; with 8-bit x the relative Frobenius error is at most 1e-3; the CPU device is exact but for
//         the one rounding of y to float32. Expected weights carry up to two float32 roundings of their own;
//         elements with an expected weight beyond float32, or a result about as large, are left out.
#ifndef GEMMD_TESTS_E2E_LAYER_CHECK_H_
#define GEMMD_TESTS_E2E_LAYER_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/session.h"
#include "core/quant/standard_tensor.h"
#include "tests/e2e/golden_layer.h"

namespace gemmd::e2e {

struct LayerCheck {
  std::vector<std::string> kernels;  // distinct ones that served
  std::string activation_used;       // as the last reply says
  double error_of_bound = 0;         // largest error over its bound: at most 1 is right
  double relative_error = 0;         // Frobenius
  int64_t compared = 0;              // elements
  bool beyond_float32 = false;       // some weights are, and on a GPU infinite: their experts are not compared
  bool right() const { return compared > 0 && error_of_bound <= 1; }
};

// Types of x to check a layer with: bfloat16, and the 8-bit type that it declares; float32 for experts.
std::vector<v1::DataType> TypesToCheck(const v1::LayerInfo& info);

// A dense layer with 1 and 17 rows, experts with two tokens each. On a GPU a request is repeated until a
// specialised kernel of the layer serves it, at most `patience`. `tensor` says how x is quantized where the
// reply says that it was (core/quant/activations.h); its weights are not looked at.
absl::StatusOr<LayerCheck> CheckLayer(client::Session& session, const client::Layer& layer,
                                      const GoldenLayer& golden, const StandardTensor& tensor,
                                      v1::DataType x_type, absl::Duration patience);

}  // namespace gemmd::e2e

#endif  // GEMMD_TESTS_E2E_LAYER_CHECK_H_
