# Without a GPU gemmd_bench ends with 69 and says why; CUDA_VISIBLE_DEVICES hides one that is there.
set(ENV{CUDA_VISIBLE_DEVICES} "-1")
execute_process(COMMAND ${BENCH} --suite=${SUITE} --m=1 RESULT_VARIABLE code ERROR_VARIABLE error OUTPUT_QUIET)
if(NOT code EQUAL 69 OR NOT error MATCHES "no GPU")
  message(FATAL_ERROR "exit ${code}, expected 69 with the words 'no GPU': ${error}")
endif()
