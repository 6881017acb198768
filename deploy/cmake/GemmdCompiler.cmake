# Warnings, sanitizers and the helper that declares one library per folder.
find_program(GEMMD_CCACHE ccache)
if(GEMMD_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${GEMMD_CCACHE})
  # Else it does not keep what was compiled with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${GEMMD_CCACHE})
endif()

add_library(gemmd_options INTERFACE)
target_compile_options(gemmd_options INTERFACE -Wall -Wextra -Wno-missing-field-initializers)
if(GEMMD_WERROR)
  target_compile_options(gemmd_options INTERFACE -Werror)
endif()
target_include_directories(gemmd_options INTERFACE ${PROJECT_SOURCE_DIR})

if(GEMMD_SANITIZER STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(GEMMD_SANITIZER STREQUAL "thread")
  # gcc warns that TSan does not model atomic_thread_fence; the fences are inside libraries.
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -Wno-tsan)
  add_link_options(-fsanitize=thread)
elseif(NOT GEMMD_SANITIZER STREQUAL "")
  message(FATAL_ERROR "GEMMD_SANITIZER is '${GEMMD_SANITIZER}'; known are address and thread")
endif()

# gemmd_library(NAME [LINKS library...]): every .cc file of the current folder is one static library.
# Sources are globbed so that adding a file needs no second edit.
function(gemmd_library name)
  cmake_parse_arguments(ARG "" "" "LINKS;EXCLUDE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  foreach(excluded IN LISTS ARG_EXCLUDE)
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${excluded})
  endforeach()
  if(sources)
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC gemmd_options ${ARG_LINKS})
    gemmd_reuse_precompiled(${name} library ${ARG_LINKS})
    gemmd_unite(${name})
  else()  # headers only
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE gemmd_options ${ARG_LINKS})
  endif()
endfunction()
