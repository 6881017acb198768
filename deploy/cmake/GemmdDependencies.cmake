# Third-party libraries, each behind one interface target, so that GEMMD_STATIC is decided here only.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
find_program(GEMMD_PROTOC protoc REQUIRED)
find_program(GEMMD_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)

# Debian's gRPC CMake package offers shared libraries only, so both kinds of link go through pkg-config.
pkg_check_modules(GRPC REQUIRED grpc++ protobuf)
set(gemmd_absl_modules absl_status absl_statusor absl_strings absl_str_format absl_time absl_span
    absl_flat_hash_map absl_cleanup absl_flags absl_flags_parse absl_flags_usage absl_log_severity)
pkg_check_modules(GEMMD_ABSL REQUIRED ${gemmd_absl_modules})

add_library(gemmd_absl INTERFACE)
add_library(gemmd_grpc INTERFACE)
target_link_libraries(gemmd_absl INTERFACE Threads::Threads)
target_link_libraries(gemmd_grpc INTERFACE gemmd_absl)
if(GEMMD_STATIC)
  # One link group of archives: pkg-config --static names them, in an order that needs the group.
  function(gemmd_static_archives out)
    execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --static --libs-only-l ${ARGN}
                    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(flags UNIX_COMMAND "${flags}")
    list(REMOVE_DUPLICATES flags)
    set(items)
    foreach(flag IN LISTS flags)
      string(REGEX REPLACE "^-l" "" library "${flag}")
      find_library(GEMMD_STATIC_${library} NAMES lib${library}.a)
      if(GEMMD_STATIC_${library})
        list(APPEND items ${GEMMD_STATIC_${library}})
      else()
        list(APPEND items ${flag})
      endif()
    endforeach()
    set(${out} -Wl,--start-group ${items} -Wl,--end-group PARENT_SCOPE)
  endfunction()
  gemmd_static_archives(gemmd_absl_archives ${gemmd_absl_modules})
  gemmd_static_archives(gemmd_grpc_archives grpc++ protobuf ${gemmd_absl_modules})
  target_link_libraries(gemmd_absl INTERFACE ${gemmd_absl_archives})
  find_library(GEMMD_GRPC_REFLECTION NAMES libgrpc++_reflection.a REQUIRED)
  target_link_libraries(gemmd_grpc INTERFACE
    -Wl,--whole-archive ${GEMMD_GRPC_REFLECTION} -Wl,--no-whole-archive ${gemmd_grpc_archives})
  find_library(GEMMD_BLAS NAMES libopenblas.a PATH_SUFFIXES openblas-pthread REQUIRED)
  find_library(GEMMD_YAML NAMES libyaml-cpp.a REQUIRED)
  find_library(GEMMD_CRYPTO NAMES libcrypto.a REQUIRED)
else()
  target_link_libraries(gemmd_absl INTERFACE ${GEMMD_ABSL_LINK_LIBRARIES})
  target_link_libraries(gemmd_grpc INTERFACE ${GRPC_LINK_LIBRARIES} grpc++_reflection)
  find_library(GEMMD_BLAS NAMES openblas PATH_SUFFIXES openblas-pthread REQUIRED)
  find_library(GEMMD_YAML NAMES yaml-cpp REQUIRED)
  find_library(GEMMD_CRYPTO NAMES crypto REQUIRED)
endif()

add_library(gemmd_blas INTERFACE)
target_include_directories(gemmd_blas SYSTEM INTERFACE /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread
                                                       /usr/include/x86_64-linux-gnu/openblas-pthread)
target_link_libraries(gemmd_blas INTERFACE ${GEMMD_BLAS} Threads::Threads)

# Debian ships no static spdlog; header-only works for both kinds of link.
find_package(spdlog REQUIRED)
add_library(gemmd_spdlog INTERFACE)
target_link_libraries(gemmd_spdlog INTERFACE spdlog::spdlog_header_only)
find_package(fmt REQUIRED)

# prometheus-cpp and cpp-httplib exist as shared libraries only; a static build finds them in lib/ beside the program.
find_package(prometheus-cpp REQUIRED CONFIG)
pkg_check_modules(GEMMD_HTTPLIB REQUIRED cpp-httplib)
add_library(gemmd_httplib INTERFACE)
target_compile_options(gemmd_httplib INTERFACE ${GEMMD_HTTPLIB_CFLAGS_OTHER})  # they shape its classes
target_link_libraries(gemmd_httplib INTERFACE ${GEMMD_HTTPLIB_LINK_LIBRARIES})
set(CMAKE_BUILD_RPATH "$ORIGIN/../lib;$ORIGIN/lib")
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/lib")

# CUDA headers: a Toolkit, or the wheels that deploy/install-deps put into .cuda/. Nothing of CUDA is
# linked: libcuda and NVRTC are loaded at run time.
find_path(GEMMD_CUDA_INCLUDE NAMES cuda.h
  PATHS ${PROJECT_SOURCE_DIR}/.cuda/include $ENV{CUDA_HOME}/include /usr/local/cuda/include
  NO_DEFAULT_PATH)
if(NOT GEMMD_CUDA_INCLUDE)
  message(FATAL_ERROR "cuda.h not found: run deploy/install-deps, or set CUDA_HOME")
endif()
add_library(gemmd_cuda_headers INTERFACE)
target_include_directories(gemmd_cuda_headers SYSTEM INTERFACE ${GEMMD_CUDA_INCLUDE})
target_link_libraries(gemmd_cuda_headers INTERFACE ${CMAKE_DL_LIBS})
