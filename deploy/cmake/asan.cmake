# cmake -S . -B build/asan -C deploy/cmake/asan.cmake
set(CMAKE_BUILD_TYPE Debug CACHE STRING "")
set(GEMMD_SANITIZER address CACHE STRING "")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1" CACHE STRING "")
