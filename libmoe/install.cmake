# What `cmake --install` puts down of the library: headers, libraries, a CMake package (moe::moe, moe::moe_static), a pkg-config
# file and the licences. The tree may be moved: nothing in it has its path, unless the folder of libraries was given absolutely.
include(CMakePackageConfigHelpers)

set(installed_targets moe)
if(MOE_STATIC_LIBRARY)
  list(APPEND installed_targets moe_static)
endif()
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moe)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/moe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS ${installed_targets} EXPORT moe)
install(EXPORT moe NAMESPACE moe:: FILE moeTargets.cmake DESTINATION ${package_dir})

file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/moeConfig.cmake
"include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(\${CMAKE_CURRENT_LIST_DIR}/moeTargets.cmake)
")
# While the major version is 0 every minor version is an ABI of its own.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/moeConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/moeConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/moeConfigVersion.cmake
        DESTINATION ${package_dir})

set(moe_private_libraries "-lstdc++ -lm -pthread")
if(MOE_CUDA)
  set(moe_private_libraries "-lcudart_static -ldl -lrt ${moe_private_libraries}")
endif()
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR} OR IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
  set(pc_libdir ${CMAKE_INSTALL_FULL_LIBDIR})
  set(pc_includedir ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
  file(RELATIVE_PATH up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" up ${up})
  set(pc_prefix "\${pcfiledir}/${up}")
  set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(moe.pc.in moe.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/moe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libmoe)
