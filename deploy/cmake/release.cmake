# cmake -S . -B build/release -C deploy/cmake/release.cmake
set(CMAKE_BUILD_TYPE Release CACHE STRING "")
