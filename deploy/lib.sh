# Shared by the scripts of this folder; sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# NVRTC of the project-local wheels, where no CUDA Toolkit brings one. It looks for its libnvrtc-builtins by the
# loader's rules, not beside itself.
use_project_nvrtc() {
  if [ -z "${GEMMD_NVRTC:-}" ] && [ -e "$root/.cuda/lib/libnvrtc.so.13" ]; then
    export GEMMD_NVRTC=$root/.cuda/lib/libnvrtc.so.13
    export LD_LIBRARY_PATH=$root/.cuda/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  fi
}
use_project_nvrtc

# Installs what is missing; the wheels that this may bring serve the rest of the script.
dependencies() { "$root/deploy/install-deps" && use_project_nvrtc; }

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
