# SPDX-License-Identifier: Apache-2.0
# WebAssembly modules of the pure rooms. Both have no imports: whatever a room would need from outside fails the build.
#   rooms.wasm   every function of every pure room, nothing left out: shows that they link
#   cobord.wasm  what workers/*.c export, and what that needs (when there is workers/)
#   kernels_check.wasm  a test
find_package(Python3 REQUIRED COMPONENTS Interpreter)
execute_process(COMMAND ${CMAKE_C_COMPILER} --target=wasm32-wasi -print-libgcc-file-name
    OUTPUT_VARIABLE builtins OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT EXISTS "${builtins}")
    get_filename_component(folder "${builtins}" DIRECTORY)
    find_file(COBORD_WASM_BUILTINS libclang_rt.builtins-wasm32.a REQUIRED
        PATHS ${folder} ${folder}/../wasi /usr/lib/llvm-19/lib/clang/19/lib/wasi)
    set(builtins ${COBORD_WASM_BUILTINS})
endif()

# xxhash.h does not compile with SIMD on this target.
set_source_files_properties(src/base/hash.c PROPERTIES COMPILE_OPTIONS -mno-simd128)

set(objects $<TARGET_OBJECTS:cobord_yyjson>)
foreach(room IN LISTS COBORD_BUILT_ROOMS)
    list(APPEND objects $<TARGET_OBJECTS:cobord_${room}>)
endforeach()
# 64 KiB for the C stack, below everything else so that an overflow traps instead of overwriting data.
set(link_flags --no-entry --stack-first -z stack-size=65536 --fatal-warnings)
set(libraries ${COBORD_WASI_LIB}/libc.a ${builtins})

function(cobord_add_module name)
    add_executable(${name} ${objects} cmake/wasm/no_system.c ${ARGN})
    target_include_directories(${name} PRIVATE src)
    target_link_libraries(${name} PRIVATE cobord_strict ${libraries})
    set_target_properties(${name} PROPERTIES LINK_FLAGS "" LINK_OPTIONS "${link_flags}")
    add_custom_command(TARGET ${name} POST_BUILD VERBATIM
        COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/wasm-imports $<TARGET_FILE:${name}>)
endfunction()

cobord_add_module(rooms)
target_link_options(rooms PRIVATE --no-gc-sections --export-all)

file(GLOB worker_sources CONFIGURE_DEPENDS workers/*.c)
if(worker_sources)
    cobord_add_module(cobord ${worker_sources})
    # 124 MiB: what is left of a worker's 128 MB (122 MiB) is JavaScript's, and budgets below it are the plan's to keep.
    target_link_options(cobord PRIVATE --strip-debug --max-memory=130023424)
endif()

# The kernels beside the reference: tests/system/wasm_test.py runs it under Node.
cobord_add_module(kernels_check tests/wasm/kernels_check.c)
target_link_options(kernels_check PRIVATE --strip-debug)
