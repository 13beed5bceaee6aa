# The packages of ./dev package: a .tar.gz and a .deb of what `cmake --install` puts down, runtime and development files in one.
include(GNUInstallDirs)

set(machine ${CMAKE_SYSTEM_PROCESSOR})
set(variant "")
if(MOE_CUDA)
  string(REGEX MATCH "^[0-9]+" cuda_major ${CMAKE_CUDA_COMPILER_VERSION})
  set(variant "-cuda${cuda_major}")
endif()

# The notices of what is compiled into the library and the command, as Debian's packages of it have them.
foreach(part libfmt-dev nlohmann-json3-dev libcli11-dev)
  if(EXISTS /usr/share/doc/${part}/copyright)
    install(FILES /usr/share/doc/${part}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libmoe RENAME ${part}.copyright)
  endif()
endforeach()

file(STRINGS ${PROJECT_SOURCE_DIR}/tests/abi/limits.txt glibc REGEX "^glibc ")
string(REGEX REPLACE "^glibc +" "" glibc "${glibc}")

# What is installed was named and built before; the tests need not be.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_NAME libmoe)
set(CPACK_PACKAGE_VENDOR "the authors of libmoe")
set(CPACK_PACKAGE_CONTACT "the authors of libmoe")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Mixture-of-Experts layer of a language model, as a C library")
set(CPACK_PACKAGE_DESCRIPTION
    "Library, headers, CMake package, pkg-config file and the command moe. The library needs nothing but libc and libm.")
set(CPACK_PACKAGE_FILE_NAME libmoe-${PROJECT_VERSION}-linux-${machine}${variant})
set(CPACK_STRIP_FILES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_NAME libmoe${variant})
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${glibc})")
# ldconfig by its trigger, not by scripts; and what packages depend on that link the library.
set(control ${CMAKE_CURRENT_BINARY_DIR}/debian)
file(WRITE ${control}/triggers "activate-noawait ldconfig\n")
file(WRITE ${control}/shlibs
     "libmoe ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} ${CPACK_DEBIAN_PACKAGE_NAME} (>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${control}/triggers ${control}/shlibs)
if(MOE_CUDA)
  set(CPACK_DEBIAN_PACKAGE_PROVIDES libmoe)
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS libmoe)
endif()
include(CPack)
