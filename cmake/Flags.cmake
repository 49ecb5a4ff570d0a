# SPDX-License-Identifier: Apache-2.0
# Flags of every file of ours. There is no global -march and no -ffast-math: numbers are the same bits everywhere
# (docs/format/numerics.md), and instruction sets are chosen at run time.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# No NDEBUG anywhere: a broken promise of our own stops the program in release too.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g")
if(COBORD_FUZZ)
    set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -gline-tables-only") # half the time to build, and nearly as fast
endif()

set(werror OFF)
if((CMAKE_C_COMPILER_ID STREQUAL Clang AND CMAKE_C_COMPILER_VERSION MATCHES "^19\\.")
   OR (CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_C_COMPILER_VERSION MATCHES "^12\\."))
    set(werror ON) # the compilers that this tree is kept free of warnings for
endif()
option(COBORD_WERROR "Warnings are errors" ${werror})
set(COBORD_SANITIZE "" CACHE STRING "Value of -fsanitize= for everything, for example address,undefined")
option(COBORD_FUZZ "Build the libFuzzer targets (clang)" OFF)

add_library(cobord_flags INTERFACE)
target_compile_options(cobord_flags INTERFACE
    -ffp-contract=off -fno-math-errno
    -Wall -Wextra -Wformat -Wformat-security -Wshadow -Wpointer-arith -Wvla -Wundef -Wstrict-prototypes
    $<$<BOOL:${COBORD_WERROR}>:-Werror>)
# Rooms and the program; tests are spared the noise about conversions.
add_library(cobord_strict INTERFACE)
target_link_libraries(cobord_strict INTERFACE cobord_flags)
target_compile_options(cobord_strict INTERFACE -Wmissing-prototypes -Wconversion -Wno-sign-conversion)

# What ships notices when a buffer of its own is left, and gives an attacker nothing to jump to; tests/tidy/hardening.py
# reads it from the ELF files. Sanitizers notice more, and want the code as it is. A flag that a compiler does not have
# is left out. A module has none: WebAssembly has no stack to smash and no code in memory.
set(COBORD_HARDENED ON)
if(COBORD_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL Debug OR CMAKE_SYSTEM_PROCESSOR STREQUAL wasm32)
    set(COBORD_HARDENED OFF)
endif()
set(COBORD_FORTIFY 3)
if((CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_C_COMPILER_VERSION VERSION_LESS 12)
   OR (CMAKE_C_COMPILER_ID STREQUAL Clang AND CMAKE_C_COMPILER_VERSION VERSION_LESS 9))
    set(COBORD_FORTIFY 2) # no sizes that are known at run time only
endif()
add_library(cobord_hardened INTERFACE)
if(COBORD_HARDENED)
    include(CheckCCompilerFlag)
    target_compile_options(cobord_hardened INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${COBORD_FORTIFY})
    foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection=full -mbranch-protection=standard)
        string(MAKE_C_IDENTIFIER "COBORD_HAS${flag}" has)
        check_c_compiler_flag("-Werror ${flag}" ${has})
        if(${has})
            target_compile_options(cobord_hardened INTERFACE ${flag})
        endif()
    endforeach()
    set(COBORD_HARDENED_LINK -Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code)
endif()

if(COBORD_SANITIZE)
    add_compile_options(-fsanitize=${COBORD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${COBORD_SANITIZE})
endif()
if(COBORD_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link) # without it libFuzzer sees nothing of what its inputs reach
endif()
