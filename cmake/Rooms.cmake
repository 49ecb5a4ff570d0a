# SPDX-License-Identifier: Apache-2.0
# src/ROOM/*.c becomes the object library cobord_ROOM. Rooms are listed from the ground up: a file may include only its own
# room and rooms before it (the tidy test checks that). `serve` is not pure, it allocates, but it has no system calls: what links
# it brings its ports (src/serve/machine.h), natively the host, in a module workers/.
set(COBORD_PURE_ROOMS base quant knot text model wire cluster api)
set(COBORD_HOST_ROOMS host library cli)
set(COBORD_ROOMS ${COBORD_PURE_ROOMS} serve)
if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL wasm32)
    list(APPEND COBORD_ROOMS ${COBORD_HOST_ROOMS})
endif()

# Suffix of a file name -> flags. A file whose suffix belongs to another architecture is left out of the build.
set(SUFFIX_avx2_ARCH x86)
set(SUFFIX_avx2_FLAGS -mavx2 -mf16c)
set(SUFFIX_avxvnni_ARCH x86)
set(SUFFIX_avxvnni_FLAGS -mavx2 -mavxvnni -mf16c)
set(SUFFIX_avx512_ARCH x86)
set(SUFFIX_avx512_FLAGS -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mf16c)
set(SUFFIX_neon_ARCH arm)
# gcc 12 spills a third of the sums of a tile when it orders loads before it gives out registers.
set(SUFFIX_neon_FLAGS -march=armv8.2-a+dotprod $<$<C_COMPILER_ID:GNU>:-fno-schedule-insns>)
set(SUFFIX_i8mm_ARCH arm)
set(SUFFIX_i8mm_FLAGS -march=armv8.2-a+dotprod+i8mm $<$<C_COMPILER_ID:GNU>:-fno-schedule-insns>)
set(SUFFIX_simd128_ARCH wasm)
set(SUFFIX_simd128_FLAGS "")
set(SUFFIX_relaxed_ARCH wasm-relaxed) # no build is that: cmake/WasmModule.cmake adds these files to second modules
set(SUFFIX_relaxed_FLAGS -mrelaxed-simd)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(COBORD_ARCH x86)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set(COBORD_ARCH arm)
elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL wasm32)
    set(COBORD_ARCH wasm)
else()
    set(COBORD_ARCH none) # the scalar kernels only
endif()

# ThreadSanitizer watches the scalar kernels, which touch what the others do and are chosen by COBORD_ISA=scalar; the
# others at their usual speed let whole clusters run under it.
set(suffix_sanitized "")
if(COBORD_SANITIZE STREQUAL thread)
    set(suffix_sanitized -fno-sanitize=thread)
endif()

# Leaves the files of this architecture in `list`, with their flags set.
function(cobord_choose_sources list)
    foreach(file IN LISTS ${list})
        get_filename_component(stem ${file} NAME_WE)
        string(REGEX MATCH "_([a-z0-9]+)$" _ ${stem})
        set(suffix ${CMAKE_MATCH_1})
        if(suffix AND DEFINED SUFFIX_${suffix}_ARCH)
            if(NOT SUFFIX_${suffix}_ARCH IN_LIST COBORD_ARCH)
                continue()
            endif()
            set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS
                "${SUFFIX_${suffix}_FLAGS};${suffix_sanitized}")
        endif()
        list(APPEND chosen ${file})
    endforeach()
    set(${list} ${chosen} PARENT_SCOPE)
endfunction()

# What may end up in the library of cmake/Library.cmake: fit for a shared object, and not to be seen outside of it.
function(cobord_hide target)
    if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL wasm32)
        set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
    endif()
endfunction()

# What these compare is hashes, states and ranks, no format: libFuzzer does not hear of it (nor of what quant compares).
if(COBORD_FUZZ)
    foreach(stem IN ITEMS base/hash text/grammar_emit text/grammar_machine text/grammar_mask text/merge)
        set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/src/${stem}.c PROPERTIES
            COMPILE_OPTIONS -fno-sanitize-coverage=trace-cmp)
    endforeach()
endif()

# cobord_ROOM has the objects. cobord_upto_ROOM is what a test of that room links: the room and all before it, as archives, so
# that only what is used is linked.
set(COBORD_BUILT_ROOMS "")
set(below cobord_deps_headers)
foreach(room IN LISTS COBORD_ROOMS)
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/${room}/*.c)
    list(FILTER sources EXCLUDE REGEX "/src/cli/main\\.c$") # the program's own, so that tests can link the verbs
    cobord_choose_sources(sources)
    add_library(cobord_upto_${room} INTERFACE)
    if(sources)
        add_library(cobord_${room} OBJECT ${sources})
        target_include_directories(cobord_${room} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
        target_link_libraries(cobord_${room} PRIVATE cobord_strict cobord_hardened cobord_deps_headers)
        cobord_hide(cobord_${room})
        if(room STREQUAL library)
            target_include_directories(cobord_${room} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/include)
        endif()
        if(room IN_LIST COBORD_HOST_ROOMS)
            target_link_libraries(cobord_${room} PRIVATE cobord_system)
            target_compile_definitions(cobord_${room} PRIVATE _GNU_SOURCE)
        endif()
        if(COBORD_FUZZ AND room STREQUAL quant)
            target_compile_options(cobord_quant PRIVATE -fno-sanitize-coverage=trace-cmp)
        elseif((room STREQUAL quant OR room STREQUAL model) AND NOT COBORD_FUZZ)
            target_compile_options(cobord_${room} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O3>) # kernels and operators
        endif()
        if(CMAKE_SYSTEM_PROCESSOR STREQUAL wasm32 AND NOT room MATCHES "^(base|quant|model)$")
            target_compile_options(cobord_${room} PRIVATE $<$<CONFIG:RelWithDebInfo>:-Os>) # a module is to stay below 1 MiB
        endif()
        if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL wasm32)
            add_library(cobord_${room}_archive STATIC $<TARGET_OBJECTS:cobord_${room}>)
            target_link_libraries(cobord_upto_${room} INTERFACE cobord_${room}_archive)
        endif()
        list(APPEND COBORD_BUILT_ROOMS ${room})
    endif()
    target_link_libraries(cobord_upto_${room} INTERFACE ${below})
    target_include_directories(cobord_upto_${room} INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/src)
    set(below cobord_upto_${room})
endforeach()

if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL wasm32)
    cobord_hide(cobord_yyjson)
    add_library(cobord_yyjson_archive STATIC $<TARGET_OBJECTS:cobord_yyjson>)
    target_link_libraries(cobord_upto_base INTERFACE cobord_yyjson_archive)
    target_link_libraries(cobord_upto_host INTERFACE cobord_system)
    target_include_directories(cobord_upto_library INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/include)
    target_link_libraries(cobord_serve_archive INTERFACE cobord_host_archive) # its ports
    target_link_libraries(cobord_host_archive INTERFACE cobord_serve_archive)
endif()
