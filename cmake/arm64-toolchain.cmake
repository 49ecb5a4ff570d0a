# SPDX-License-Identifier: Apache-2.0
# 64-bit ARM Linux from another Linux: Debian's aarch64-linux-gnu-gcc, arm64 libraries from
# scripts/arm64-sysroot (or the folder COBORD_ARM64_SYSROOT), and qemu-aarch64, where it is installed, to
# run what was built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

if(DEFINED ENV{COBORD_ARM64_SYSROOT})
    set(COBORD_ARM64_SYSROOT $ENV{COBORD_ARM64_SYSROOT} CACHE PATH "arm64 libraries and headers")
endif()
if(NOT COBORD_ARM64_SYSROOT)
    execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/../scripts/arm64-sysroot
        OUTPUT_VARIABLE sysroot OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE result)
    if(NOT result EQUAL 0)
        message(FATAL_ERROR "scripts/arm64-sysroot failed; its message is above.")
    endif()
    set(COBORD_ARM64_SYSROOT ${sysroot} CACHE PATH "arm64 libraries and headers")
endif()
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES COBORD_ARM64_SYSROOT)
set(CMAKE_SYSROOT ${COBORD_ARM64_SYSROOT})

find_program(COBORD_ARM64_GCC NAMES aarch64-linux-gnu-gcc aarch64-linux-gnu-gcc-12)
if(NOT COBORD_ARM64_GCC)
    message(FATAL_ERROR "aarch64-linux-gnu-gcc is missing; run scripts/prepare arm64")
endif()
set(CMAKE_C_COMPILER ${COBORD_ARM64_GCC})
find_program(COBORD_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(COBORD_QEMU)
    set(CMAKE_CROSSCOMPILING_EMULATOR ${COBORD_QEMU} -L ${CMAKE_SYSROOT})
endif()

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR}
    ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
