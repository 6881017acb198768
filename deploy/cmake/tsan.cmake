# cmake -S . -B build/tsan -C deploy/cmake/tsan.cmake
set(CMAKE_BUILD_TYPE Debug CACHE STRING "")
set(GEMMD_SANITIZER thread CACHE STRING "")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1" CACHE STRING "")
