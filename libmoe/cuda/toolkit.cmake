# The CUDA compiler and what is linked of its toolkit: the static runtime, nothing else. Included by the top CMakeLists.txt
# when MOE_CUDA is ON.
set(CMAKE_CUDA_ARCHITECTURES OFF)  # CMake 3.25 refuses "100f" when it tests the compiler, and passes it on later
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # moe_cudart below, whichever language links
enable_language(CUDA)
set(CMAKE_CUDA_ARCHITECTURES ${MOE_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_STANDARD 20)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.9)
  message(FATAL_ERROR "${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_CUDA_COMPILER_VERSION}; libmoe needs 12.9 or newer")
endif()
# Fails a compilation in which ptxas takes the overlap out of wgmma; outside ccache, which repeats what was printed.
set(CMAKE_CUDA_COMPILER_LAUNCHER sh ${CMAKE_CURRENT_LIST_DIR}/nvcc_check.sh)
if(MOE_CCACHE)
  list(APPEND CMAKE_CUDA_COMPILER_LAUNCHER ${MOE_CCACHE})
endif()
# The objects carry their PTX to the emulator. ccache keeps objects, so that script stands between it and nvcc.
if(MOE_EMULATOR)
  set(keep_ptx ${PROJECT_SOURCE_DIR}/tests/emulator/keep_ptx.sh)
  if(MOE_CCACHE)
    list(PREPEND CMAKE_CUDA_COMPILER_LAUNCHER env CCACHE_PREFIX=${keep_ptx} CCACHE_EXTRAFILES=${keep_ptx})
  else()
    list(APPEND CMAKE_CUDA_COMPILER_LAUNCHER ${keep_ptx})
  endif()
endif()

# Found by hand: FindCUDAToolkit wants libraries that the toolkit's wheels do not have.
find_library(MOE_CUDART cudart_static HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} NO_DEFAULT_PATH REQUIRED)
find_package(Threads REQUIRED)
add_library(moe_cudart INTERFACE)
target_include_directories(moe_cudart SYSTEM INTERFACE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
target_link_libraries(moe_cudart INTERFACE ${MOE_CUDART} ${CMAKE_DL_LIBS} rt Threads::Threads)

# "90a-real;120-virtual" as moe_build_info says it: "sm_90a compute_120".
string(REGEX REPLACE "([0-9]+[af]?)-real" "sm_\\1" MOE_CUDA_ARCHITECTURES_TEXT "${MOE_CUDA_ARCHITECTURES}")
string(REGEX REPLACE "([0-9]+[af]?)-virtual" "compute_\\1" MOE_CUDA_ARCHITECTURES_TEXT "${MOE_CUDA_ARCHITECTURES_TEXT}")
list(JOIN MOE_CUDA_ARCHITECTURES_TEXT " " MOE_CUDA_ARCHITECTURES_TEXT)

set(MOE_CUDA_FLAGS --expt-relaxed-constexpr -Xfatbin=-compress-all --compress-mode=size -Xcompiler=-Wall,-Wextra,-ffp-contract=off)
if(MOE_WERROR)
  list(APPEND MOE_CUDA_FLAGS -Werror=all-warnings -Xcompiler=-Werror)
endif()
