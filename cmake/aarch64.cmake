# Cross-compiles for 64-bit ARM under Linux with Debian's compiler (g++-aarch64-linux-gnu), and runs programs with qemu-user.
# The environment variable QEMU_CPU names the processor that is emulated; without it, it has every extension.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# gcc notes that its older versions passed pairs of doubles otherwise: nothing here was built by them.
set(CMAKE_CXX_FLAGS_INIT -Wno-psabi)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
# Dependencies are headers, which the compiler finds in /usr/include as that of this machine does.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
# Debian keeps the description of fmt among the files of its own architecture.
file(GLOB fmt_DIR /usr/lib/*-linux-gnu/cmake/fmt)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
