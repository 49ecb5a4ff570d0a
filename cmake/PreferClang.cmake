# SPDX-License-Identifier: Apache-2.0
# clang-19 when it is installed and nobody asked for another compiler: it makes faster kernels than gcc 12. Same bits from both.
if(NOT CMAKE_C_COMPILER AND NOT CMAKE_TOOLCHAIN_FILE AND NOT DEFINED ENV{CC})
    find_program(COBORD_CLANG clang-19)
    if(COBORD_CLANG)
        set(CMAKE_C_COMPILER ${COBORD_CLANG})
    endif()
endif()
