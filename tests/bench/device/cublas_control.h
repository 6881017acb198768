// What    y = x * w^T with cuBLASLt, as a control of the harness: bf16, and e4m3 with one scale per
//         tensor and fast accumulation. The first algorithm of cuBLASLt's own heuristic, 32 MiB of
//         workspace.
// Shapes  x [m, k], w [n, k], y bf16 [m, n], row-major and dense.
// Errors  Unavailable: the library cannot be loaded. Unimplemented: it has no algorithm.
// Threads One thread, with the context current.
// Source  cuBLAS library reference, "Using the cuBLASLt API".
#ifndef GEMMD_TESTS_BENCH_DEVICE_CUBLAS_CONTROL_H_
#define GEMMD_TESTS_BENCH_DEVICE_CUBLAS_CONTROL_H_

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/memory.h"
#include "tests/bench/device/sampler.h"
#include "tests/bench/device/shared_library.h"

namespace gemmd::bench {

enum class CublasKind { kBFloat16, kFloat8Tensor };

struct CublasProblem {
  CublasKind kind = CublasKind::kBFloat16;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  uintptr_t x = 0;
  uintptr_t w = 0;
  uintptr_t y = 0;
};

class CublasControl {
 public:
  static absl::StatusOr<std::unique_ptr<CublasControl>> Load(const cuda::DriverTable& driver,
                                                             const std::string& library);
  ~CublasControl();
  CublasControl(const CublasControl&) = delete;
  CublasControl& operator=(const CublasControl&) = delete;

  // The operation lives no longer than this object.
  absl::StatusOr<Operation> Prepare(const CublasProblem& problem, CUstream stream);

  std::string version() const;

 private:
  struct Functions {
    decltype(&::cublasLtCreate) create;
    decltype(&::cublasLtDestroy) destroy;
    decltype(&::cublasLtGetVersion) get_version;
    decltype(&::cublasLtMatmulDescCreate) create_description;
    decltype(&::cublasLtMatmulDescDestroy) destroy_description;
    decltype(&::cublasLtMatmulDescSetAttribute) set_attribute;
    decltype(&::cublasLtMatrixLayoutCreate) create_layout;
    decltype(&::cublasLtMatrixLayoutDestroy) destroy_layout;
    decltype(&::cublasLtMatmulPreferenceCreate) create_preference;
    decltype(&::cublasLtMatmulPreferenceDestroy) destroy_preference;
    decltype(&::cublasLtMatmulPreferenceSetAttribute) set_preference;
    decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic;
    decltype(&::cublasLtMatmul) matmul;
  };
  struct Plan;  // descriptors and algorithm of one problem

  CublasControl(SharedLibrary library, const Functions& functions, cublasLtHandle_t handle,
                cuda::DeviceBuffer workspace, cuda::DeviceBuffer scale)
      : library_(std::move(library)),
        functions_(functions),
        handle_(handle),
        workspace_(std::move(workspace)),
        scale_(std::move(scale)) {}
  static absl::StatusOr<Functions> FindFunctions(const SharedLibrary& library);
  absl::Status Describe(const CublasProblem& problem, Plan& plan) const;
  absl::Status ChooseAlgorithm(Plan& plan) const;

  const SharedLibrary library_;
  const Functions functions_;
  cublasLtHandle_t handle_;
  cuda::DeviceBuffer workspace_;
  cuda::DeviceBuffer scale_;  // float32 1.0
};

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_DEVICE_CUBLAS_CONTROL_H_
