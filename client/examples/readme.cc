// The C++ examples of README.md and client/README.md. tests/style/readme_test.py compares: each
// document shows the part below its name, word for word.
// -- README.md --
#include "client/session.h"
#include "kernels/base/status.h"

using namespace gemmd;

// y [M, N] = x [M, K] * down_proj^T, both bfloat16 in cudaMalloc memory.
absl::Status DownProjection(const void* x_pointer, const void* y_pointer, int64_t m) {
  GEMMD_ASSIGN_OR_RETURN(client::Session session, client::Session::Open({.name = "worker 0"}));
  GEMMD_ASSIGN_OR_RETURN(client::Layer layer, session.RegisterCheckpoint(
                                                  "/models/llama", "model.layers.0.mlp.down_proj"));
  const int64_t n = layer.info().n(), k = layer.info().k();
  GEMMD_ASSIGN_OR_RETURN(client::Region x, session.RegisterCuda(x_pointer, 2 * m * k));
  GEMMD_ASSIGN_OR_RETURN(client::Region y, session.RegisterCuda(y_pointer, 2 * m * n));
  client::Gemm gemm{.layer = &layer};
  gemm.x = {.region = &x, .dtype = v1::DATA_TYPE_BFLOAT16, .rows = m, .columns = k};
  gemm.y = {.region = &y, .dtype = v1::DATA_TYPE_BFLOAT16, .rows = m, .columns = n};
  return session.Run(gemm).status();  // y is complete
}

// -- client/README.md --
absl::Status HostGemm(const std::string& checkpoint, const std::string& module, int64_t m) {
  GEMMD_ASSIGN_OR_RETURN(client::Session session, client::Session::Open({.name = "example"}));
  GEMMD_ASSIGN_OR_RETURN(client::Layer layer,
                         session.RegisterCheckpoint(checkpoint, module, "cpu"));
  const int64_t n = layer.info().n(), k = layer.info().k();
  GEMMD_ASSIGN_OR_RETURN(client::Region memory, session.AllocateHost(2 * m * (n + k)));
  // bfloat16 x [M, K] goes to memory.data(); y [M, N] follows it.
  const uint64_t x_bytes = 2 * m * k;
  client::Gemm gemm{.layer = &layer};
  gemm.x = {.region = &memory, .rows = m, .columns = k};  // bfloat16 is the default
  gemm.y = {.region = &memory, .byte_offset = x_bytes, .rows = m, .columns = n};
  return session.Run(gemm).status();  // y is complete
}
