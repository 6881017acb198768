#include "kernels/cuda/launch.h"

#include "kernels/base/status.h"

namespace gemmd::cuda {
namespace {

bool HasCluster(const Dim3& cluster) { return cluster.x * cluster.y * cluster.z > 1; }

unsigned FillAttributes(const LaunchGrid& grid, CUlaunchAttribute (&attributes)[2]) {
  unsigned count = 0;
  if (HasCluster(grid.cluster)) {
    CUlaunchAttribute& attribute = attributes[count++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = grid.cluster.x;
    attribute.value.clusterDim.y = grid.cluster.y;
    attribute.value.clusterDim.z = grid.cluster.z;
  }
  if (grid.overlaps_previous) {
    CUlaunchAttribute& attribute = attributes[count++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
  return count;
}

}  // namespace

absl::Status LaunchKernel(const DriverTable& driver, CUkernel kernel, const LaunchGrid& grid,
                          CUstream stream, void** params) {
  CUlaunchAttribute attributes[2] = {};
  CUlaunchConfig config{};
  config.gridDimX = grid.grid.x;
  config.gridDimY = grid.grid.y;
  config.gridDimZ = grid.grid.z;
  config.blockDimX = grid.block.x;
  config.blockDimY = grid.block.y;
  config.blockDimZ = grid.block.z;
  config.sharedMemBytes = grid.dynamic_shared_bytes;
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = FillAttributes(grid, attributes);
  // The driver takes a CUkernel where a CUfunction is expected.
  GEMMD_CUDA(driver, cuLaunchKernelEx, &config, reinterpret_cast<CUfunction>(kernel), params,
             nullptr);
  return absl::OkStatus();
}

}  // namespace gemmd::cuda
