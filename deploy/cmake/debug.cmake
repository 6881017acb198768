# cmake -S . -B build/debug -C deploy/cmake/debug.cmake
set(CMAKE_BUILD_TYPE Debug CACHE STRING "")
