# libmoe.a: one object in which every name but the functions of moe.h is local, so that a program may have its own fmt, its own
# nlohmann_json, or another library with a namespace moe. Its objects are those of libmoe.so but for api/, which is compiled again:
# with MOE_STATIC the functions are hidden, and a shared library that links libmoe.a does not export them.
set(api_sources ${sources})
list(FILTER api_sources INCLUDE REGEX "^api/")
add_library(moe_static_api OBJECT ${api_sources})
moe_compile_settings(moe_static_api)
target_compile_definitions(moe_static_api PRIVATE MOE_STATIC)
target_link_libraries(moe_static_api PRIVATE ${cudart})
set(static_objects
  $<FILTER:$<TARGET_OBJECTS:moe_objects>,EXCLUDE,/api/[^/]*$> $<TARGET_OBJECTS:moe_static_api> ${family_objects})

# --force-group-allocation: inline functions become plain local ones, or the linker would drop ours for the program's own.
set(static_object ${CMAKE_CURRENT_BINARY_DIR}/libmoe.o)
add_custom_command(
  OUTPUT ${static_object}
  COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${static_object} ${static_objects}
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=moe_* ${static_object}
  DEPENDS ${static_objects}
  COMMENT "Linking libmoe.a into one object with local names"
  COMMAND_EXPAND_LISTS VERBATIM)

add_library(moe_static STATIC ${static_object})
add_library(moe::moe_static ALIAS moe_static)
# To who links it, a C library: the C++ runtime is named instead of left to the language.
set_target_properties(moe_static PROPERTIES OUTPUT_NAME moe LINKER_LANGUAGE C)
target_compile_definitions(moe_static INTERFACE MOE_STATIC)
target_include_directories(moe_static INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(moe_static INTERFACE $<BUILD_INTERFACE:${cudart}>)
if(MOE_CUDA)  # who links the installed libmoe.a brings libcudart_static.a
  foreach(library cudart_static ${CMAKE_DL_LIBS} rt)
    target_link_libraries(moe_static INTERFACE $<INSTALL_INTERFACE:${library}>)
  endforeach()
endif()
target_link_libraries(moe_static INTERFACE stdc++ m Threads::Threads)
