#include "tests/bench/device/cublas_control.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd::bench {
namespace {

constexpr uint64_t kWorkspaceBytes = uint64_t{32} << 20;

absl::Status ToStatus(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": cuBLAS status ", static_cast<int>(status)));
}

}  // namespace

// Column-major for cuBLAS: y^T [n, m] = w [n, k] * x^T [k, m]; a is w (transposed), b is x.
struct CublasControl::Plan {
  explicit Plan(const Functions& functions) : functions(functions) {}
  ~Plan() {
    if (description != nullptr) functions.destroy_description(description);
    for (cublasLtMatrixLayout_t layout : {a, b, c}) {
      if (layout != nullptr) functions.destroy_layout(layout);
    }
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const Functions functions;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

absl::StatusOr<CublasControl::Functions> CublasControl::FindFunctions(const SharedLibrary& lt) {
  Functions f{};
  GEMMD_RETURN_IF_ERROR(lt.Find("cublasLtCreate", f.create));
  GEMMD_RETURN_IF_ERROR(lt.Find("cublasLtDestroy", f.destroy));
  GEMMD_RETURN_IF_ERROR(lt.Find("cublasLtGetVersion", f.get_version));
  GEMMD_RETURN_IF_ERROR(lt.Find("cublasLtMatmulDescCreate", f.create_description));
  GEMMD_RETURN_IF_ERROR(lt.Find("cublasLtMatmulDescDestroy", f.destroy_description));
  GEMMD_RETURN_IF_ERROR(lt.Find("cublasLtMatmulDescSetAttribute", f.set_attribute));
  GEMMD_RETURN_IF_ERROR(lt.Find("cublasLtMatrixLayoutCreate", f.create_layout));
  GEMMD_RETURN_IF_ERROR(lt.Find("cublasLtMatrixLayoutDestroy", f.destroy_layout));
  GEMMD_RETURN_IF_ERROR(lt.Find("cublasLtMatmulPreferenceCreate", f.create_preference));
  GEMMD_RETURN_IF_ERROR(lt.Find("cublasLtMatmulPreferenceDestroy", f.destroy_preference));
  GEMMD_RETURN_IF_ERROR(lt.Find("cublasLtMatmulPreferenceSetAttribute", f.set_preference));
  GEMMD_RETURN_IF_ERROR(lt.Find("cublasLtMatmulAlgoGetHeuristic", f.heuristic));
  GEMMD_RETURN_IF_ERROR(lt.Find("cublasLtMatmul", f.matmul));
  return f;
}

absl::StatusOr<std::unique_ptr<CublasControl>> CublasControl::Load(const cuda::DriverTable& driver,
                                                                   const std::string& library) {
  GEMMD_ASSIGN_OR_RETURN(
      SharedLibrary lt,
      SharedLibrary::Load(library, {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}));
  GEMMD_ASSIGN_OR_RETURN(const Functions functions, FindFunctions(lt));
  GEMMD_ASSIGN_OR_RETURN(cuda::DeviceBuffer workspace,
                         cuda::DeviceBuffer::Create(driver, kWorkspaceBytes));
  GEMMD_ASSIGN_OR_RETURN(cuda::DeviceBuffer scale, cuda::DeviceBuffer::Create(driver, 256));
  const float one = 1;
  GEMMD_CUDA(driver, cuMemcpyHtoD, scale.address(), &one, sizeof(one));
  cublasLtHandle_t handle = nullptr;
  GEMMD_RETURN_IF_ERROR(ToStatus(functions.create(&handle), "cublasLtCreate"));
  return std::unique_ptr<CublasControl>(
      new CublasControl(std::move(lt), functions, handle, std::move(workspace), std::move(scale)));
}

CublasControl::~CublasControl() { functions_.destroy(handle_); }

std::string CublasControl::version() const { return absl::StrCat(functions_.get_version()); }

absl::Status CublasControl::Describe(const CublasProblem& problem, Plan& plan) const {
  const bool is_fp8 = problem.kind == CublasKind::kFloat8Tensor;
  const cudaDataType_t type = is_fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
  const auto m = static_cast<uint64_t>(problem.m), n = static_cast<uint64_t>(problem.n),
             k = static_cast<uint64_t>(problem.k);
  GEMMD_RETURN_IF_ERROR(
      ToStatus(functions_.create_description(&plan.description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate"));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    return ToStatus(functions_.set_attribute(plan.description, attribute, &value, sizeof(value)),
                    "cublasLtMatmulDescSetAttribute");
  };
  GEMMD_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA, cublasOperation_t{CUBLAS_OP_T}));
  if (is_fp8) {
    const uintptr_t scale = scale_.address();
    GEMMD_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1}));
    GEMMD_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scale));
    GEMMD_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scale));
  }
  const auto layout = [&](cublasLtMatrixLayout_t& out, cudaDataType_t of, uint64_t rows,
                          uint64_t columns) {
    return ToStatus(functions_.create_layout(&out, of, rows, columns, static_cast<int64_t>(rows)),
                    "cublasLtMatrixLayoutCreate");
  };
  GEMMD_RETURN_IF_ERROR(layout(plan.a, type, k, n));
  GEMMD_RETURN_IF_ERROR(layout(plan.b, type, k, m));
  return layout(plan.c, CUDA_R_16BF, n, m);
}

absl::Status CublasControl::ChooseAlgorithm(Plan& plan) const {
  cublasLtMatmulPreference_t preference = nullptr;
  GEMMD_RETURN_IF_ERROR(
      ToStatus(functions_.create_preference(&preference), "cublasLtMatmulPreferenceCreate"));
  functions_.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                            sizeof(kWorkspaceBytes));
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = functions_.heuristic(
      handle_, plan.description, plan.a, plan.b, plan.c, plan.c, preference, 1, &result, &found);
  functions_.destroy_preference(preference);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    return absl::UnimplementedError(
        absl::StrCat("cuBLASLt has no algorithm (status ", static_cast<int>(status), ")"));
  }
  plan.algorithm = result.algo;
  return absl::OkStatus();
}

absl::StatusOr<Operation> CublasControl::Prepare(const CublasProblem& problem, CUstream stream) {
  auto plan = std::make_shared<Plan>(functions_);
  GEMMD_RETURN_IF_ERROR(Describe(problem, *plan));
  GEMMD_RETURN_IF_ERROR(ChooseAlgorithm(*plan));
  return Operation([this, plan, problem, stream] {
    const float one = 1, zero = 0;
    auto* const y = reinterpret_cast<void*>(problem.y);
    return ToStatus(
        functions_.matmul(handle_, plan->description, &one, reinterpret_cast<void*>(problem.w),
                          plan->a, reinterpret_cast<void*>(problem.x), plan->b, &zero, y, plan->c,
                          y, plan->c, &plan->algorithm,
                          reinterpret_cast<void*>(workspace_.address()), kWorkspaceBytes, stream),
        "cublasLtMatmul");
  });
}

}  // namespace gemmd::bench
