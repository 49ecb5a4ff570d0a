# SPDX-License-Identifier: Apache-2.0
# The C library: libcobord.a and libcobord.so.0, and what pkg-config says of it. Both are one object, of src/library and what
# that needs of the rooms, in which only cobord_* can be seen: linking it never meets another library's names.
if(COBORD_SANITIZE OR COBORD_FUZZ OR NOT TARGET cobord_library)
    return() # their runtimes want whole programs; tests/unit/library links the objects as they are
endif()
find_program(COBORD_OBJCOPY NAMES ${CMAKE_OBJCOPY} objcopy llvm-objcopy-19 REQUIRED)

set(parts)
foreach(room base quant knot text model wire cluster api serve host)
    list(APPEND parts $<TARGET_FILE:cobord_${room}_archive>)
endforeach()
set(whole ${CMAKE_BINARY_DIR}/library/cobord.o)
separate_arguments(flags NATIVE_COMMAND "${CMAKE_C_FLAGS}")
if(CMAKE_SYSROOT)
    list(APPEND flags --sysroot=${CMAKE_SYSROOT})
endif()
add_custom_command(OUTPUT ${whole} VERBATIM
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/library
    COMMAND ${CMAKE_C_COMPILER} ${flags} -r -nostdlib -o ${whole} $<TARGET_OBJECTS:cobord_library>
        -Wl,--start-group ${parts} $<TARGET_FILE:cobord_yyjson_archive> -Wl,--end-group
    COMMAND ${COBORD_OBJCOPY} --wildcard --keep-global-symbol=cobord_* ${whole}
    DEPENDS $<TARGET_OBJECTS:cobord_library> ${parts} cobord_yyjson_archive COMMAND_EXPAND_LISTS)
set_source_files_properties(${whole} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)

add_library(cobord_library_static STATIC ${whole})
add_library(cobord_library_shared SHARED ${whole})
foreach(kind static shared)
    set_target_properties(cobord_library_${kind} PROPERTIES OUTPUT_NAME cobord LINKER_LANGUAGE C
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
    target_include_directories(cobord_library_${kind} INTERFACE ${CMAKE_SOURCE_DIR}/include)
    target_link_libraries(cobord_library_${kind} PUBLIC Threads::Threads)
endforeach()
set(map ${CMAKE_SOURCE_DIR}/src/library/cobord.map)
set_target_properties(cobord_library_shared PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    LINK_DEPENDS ${map})
target_link_options(cobord_library_shared PRIVATE -Wl,--version-script=${map} -Wl,-z,defs
    ${COBORD_HARDENED_LINK})
