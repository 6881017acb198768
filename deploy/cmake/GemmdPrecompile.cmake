# Precompiled headers: the libraries' headers are most of what the compiler reads, gRPC's and the generated ones
# above all. Sources include what they use all the same: GEMMD_PRECOMPILE=OFF builds them so, which also
# suits a ccache that several trees share.
option(GEMMD_PRECOMPILE "Precompile the headers of gRPC, Protocol Buffers, abseil and GoogleTest" ON)

set(gemmd_plain_headers <algorithm> <cstdint> <filesystem> <functional> <map> <memory> <optional> <string> <vector>
    <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/time/time.h>)
set(gemmd_test_headers <gmock/gmock.h> <gtest/gtest.h>)

# gemmd_precompiled(NAME EXECUTABLE|LIBRARY LINKS library... HEADERS header...): what others reuse. Programs are compiled
# with other options than libraries.
function(gemmd_precompiled name kind)
  cmake_parse_arguments(ARG "" "" "LINKS;HEADERS" ${ARGN})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled/${name}.cc CONTENT "int main() { return 0; }\n")
  if(kind STREQUAL "EXECUTABLE")
    add_executable(${name} EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/precompiled/${name}.cc)
  else()
    add_library(${name} STATIC EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/precompiled/${name}.cc)
  endif()
  target_link_libraries(${name} PRIVATE gemmd_options ${ARG_LINKS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  if(GEMMD_CCACHE)
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER
                          "${PROJECT_SOURCE_DIR}/deploy/cmake/compile_header;${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
endfunction()

# gemmd_reuse_precompiled(NAME library|test LINKS...): the precompiled headers that suit what NAME links.
function(gemmd_reuse_precompiled name kind)
  if(NOT GEMMD_PRECOMPILE)
    return()
  endif()
  if("${ARGN}" MATCHES "gemmd_(proto|server|client|gemmctl)")
    target_precompile_headers(${name} REUSE_FROM gemmd_precompiled_grpc_${kind})
  else()
    target_precompile_headers(${name} REUSE_FROM gemmd_precompiled_${kind})
  endif()
endfunction()
