# Unity builds: the compiler reads several sources of a target as one, so what their headers' templates cost (JSON,
# matchers, std::function, gRPC's services) is paid once a batch. Sources are correct by themselves all the same:
# GEMMD_UNITY=OFF builds them so, and suits work on a few files. What a batch needs of its sources: no two of them
# declare the same name in an anonymous namespace.
option(GEMMD_UNITY "Compile the sources of a target in batches" ${GEMMD_PRECOMPILE})
set(gemmd_unity_batch 10)  # more saves little, and leaves a machine of many cores idle

# gemmd_unite(NAME): its sources in batches of nearly one size.
function(gemmd_unite name)
  if(NOT GEMMD_UNITY)
    return()
  endif()
  get_target_property(sources ${name} SOURCES)
  list(LENGTH sources count)
  math(EXPR batches "(${count} + ${gemmd_unity_batch} - 1) / ${gemmd_unity_batch}")
  math(EXPR size "(${count} + ${batches} - 1) / ${batches}")
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
endfunction()
