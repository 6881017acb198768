# cmake -S . -B build/static -C deploy/cmake/static.cmake
set(CMAKE_BUILD_TYPE Release CACHE STRING "")
set(GEMMD_STATIC ON CACHE BOOL "")
