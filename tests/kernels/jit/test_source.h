// What    A small kernel to compile, shared by the tests and the probe process.
#ifndef GEMMD_TESTS_KERNELS_JIT_TEST_SOURCE_H_
#define GEMMD_TESTS_KERNELS_JIT_TEST_SOURCE_H_

#include <string>

#include "kernels/jit/compiler.h"

namespace gemmd::jit {

inline KernelSource ScaleKernel(int factor, const std::string& architecture = "sm_90a") {
  return {
      "namespace test {\n"
      "template <int kFactor> __global__ void Scale(float* p) { p[threadIdx.x] *= kFactor; }\n"
      "}\n",
      "test::Scale<" + std::to_string(factor) + ">", architecture};
}

}  // namespace gemmd::jit

#endif  // GEMMD_TESTS_KERNELS_JIT_TEST_SOURCE_H_
