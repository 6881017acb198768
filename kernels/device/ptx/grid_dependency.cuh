// What    Programmatic dependent launch: kernels that follow each other in a stream overlap.
// Sync    GridDependencyWait returns when every kernel that this one depends on has ended and its writes are
//         visible to the whole grid; at once in a kernel that is not launched so. GridDependencyLaunch lets
//         the next kernel begin when all blocks of this grid have called it or ended; it says nothing about
//         writes: the next kernel's wait is for the end of this grid.
//         Both do nothing before SM90, where no kernel is launched so.
// Source  PTX ISA, griddepcontrol.
#ifndef GEMMD_KERNELS_DEVICE_PTX_GRID_DEPENDENCY_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_GRID_DEPENDENCY_CUH_

namespace gemmd::device::ptx {

__device__ __forceinline__ void GridDependencyWait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void GridDependencyLaunch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_GRID_DEPENDENCY_CUH_
