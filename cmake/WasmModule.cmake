# SPDX-License-Identifier: Apache-2.0
# WebAssembly modules of the pure rooms. They have no imports: whatever a room would need from outside fails the build.
#   rooms.wasm   every function of every pure room, nothing left out: shows that they link
#   cobord.wasm  what workers/*.c export, and what that needs (when there is workers/): the rooms, src/serve, libc's malloc
#   kernels_check.wasm  a test
# The last two once more as NAME-relaxed.wasm, with the kernels of *_relaxed.c: an engine without relaxed SIMD refuses a whole
# module for one such instruction. -DCOBORD_WASM_RELAXED=OFF leaves them out.
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
foreach(room IN LISTS COBORD_PURE_ROOMS)
    list(APPEND objects $<TARGET_OBJECTS:cobord_${room}>)
endforeach()
# 256 KiB for the C stack, below everything else so that an overflow traps instead of overwriting data: the server of the API
# has frames of up to 40 KiB, and what it parses nests.
set(link_flags --no-entry --stack-first -z stack-size=262144 --fatal-warnings)
set(libraries ${COBORD_WASI_LIB}/libc.a ${builtins})

option(COBORD_WASM_RELAXED "also the modules with relaxed SIMD" ON)
if(COBORD_WASM_RELAXED)
    # The same objects but for the file that knows which kernels there are.
    file(GLOB relaxed_sources CONFIGURE_DEPENDS src/*/*_relaxed.c)
    set_source_files_properties(${relaxed_sources} PROPERTIES COMPILE_OPTIONS "${SUFFIX_relaxed_FLAGS}")
    add_library(cobord_relaxed OBJECT ${relaxed_sources} src/quant/kernels.c)
    target_include_directories(cobord_relaxed PRIVATE src)
    target_compile_definitions(cobord_relaxed PRIVATE COBORD_RELAXED)
    target_compile_options(cobord_relaxed PRIVATE $<$<CONFIG:RelWithDebInfo>:-O3>)
    target_link_libraries(cobord_relaxed PRIVATE cobord_strict cobord_deps_headers)
    set(relaxed_objects "$<FILTER:${objects},EXCLUDE,/quant/kernels[.]c[.]>" $<TARGET_OBJECTS:cobord_relaxed>)
endif()

function(cobord_link_module name)
    add_executable(${name} ${ARGN} cmake/wasm/no_system.c)
    target_include_directories(${name} PRIVATE src)
    target_link_libraries(${name} PRIVATE cobord_strict cobord_deps_headers ${libraries})
    set_target_properties(${name} PROPERTIES LINK_FLAGS "" LINK_OPTIONS "${link_flags}")
    add_custom_command(TARGET ${name} POST_BUILD VERBATIM
        COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/wasm-imports $<TARGET_FILE:${name}>)
endfunction()

# NAME.wasm and NAME-relaxed.wasm from these linker options and sources.
function(cobord_add_modules name options)
    cobord_link_module(${name} ${objects} ${ARGN})
    target_link_options(${name} PRIVATE ${options})
    if(COBORD_WASM_RELAXED)
        cobord_link_module(${name}-relaxed ${relaxed_objects} ${ARGN})
        target_link_options(${name}-relaxed PRIVATE ${options})
    endif()
endfunction()

cobord_link_module(rooms ${objects} cmake/wasm/no_malloc.c)
target_link_options(rooms PRIVATE --no-gc-sections --export-all)

file(GLOB worker_sources CONFIGURE_DEPENDS workers/*.c)
# The module is to stay below 1 MiB. Scalar kernels are there to be compared with.
set_source_files_properties(${worker_sources} src/quant/kernels_scalar.c src/model/ops_scalar.c
    PROPERTIES COMPILE_OPTIONS -Os)
if(worker_sources)
    # 124 MiB: what is left of a worker's 128 MB (122 MiB) is JavaScript's, and budgets below it are the plan's to keep.
    cobord_add_modules(cobord "--strip-all;--max-memory=130023424" ${worker_sources} $<TARGET_OBJECTS:cobord_serve>)
endif()

# The kernels beside the reference: tests/system/wasm_test.py runs it under Node.
cobord_add_modules(kernels_check --strip-debug tests/wasm/kernels_check.c cmake/wasm/no_malloc.c)
