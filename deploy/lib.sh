# Shared by the scripts of this folder; sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# NVRTC of the project-local wheels, where no CUDA Toolkit brings one.
if [ -z "${GEMMD_NVRTC:-}" ] && [ -e "$root/.cuda/lib/libnvrtc.so.13" ]; then
  export GEMMD_NVRTC=$root/.cuda/lib/libnvrtc.so.13
fi

jobs=${GEMMD_JOBS:-$(nproc)}

# configure VARIANT [cmake option...]: build/VARIANT from deploy/cmake/VARIANT.cmake.
configure() {
  local variant=$1
  shift
  cmake -G Ninja -S "$root" -B "$root/build/$variant" -C "$root/deploy/cmake/$variant.cmake" "$@" >/dev/null
}

# build VARIANT [target...]
build() {
  local variant=$1
  shift
  cmake --build "$root/build/$variant" --parallel "$jobs" --target "${@:-all}"
}
