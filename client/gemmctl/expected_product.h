// What    The product that --expected weights should give, computed here in double precision. What the weights leave
//         out (bias, factors of x, a static activation scale) lies in the checkpoint only and is read from there, by
//         whoever runs this tool.
// Shapes  weights [N, K], x [M, K], y [M, N].
// Errors  As ReadLayer, when the layer has one of these and its files cannot be read here.
// Threads Pure functions of the files.
#ifndef GEMMD_CLIENT_GEMMCTL_EXPECTED_PRODUCT_H_
#define GEMMD_CLIENT_GEMMCTL_EXPECTED_PRODUCT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/gemmctl/layer_source.h"
#include "gemmd/v1/layer.pb.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::gemmctl {

// `report`, of the answer that is compared, tells what the product took as x.
absl::StatusOr<std::vector<double>> ExpectedProduct(const LayerSource& source,
                                                    const v1::LayerInfo& layer,
                                                    const v1::ExecutionReport& report,
                                                    std::vector<double> weights,
                                                    std::vector<double> x);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_EXPECTED_PRODUCT_H_
