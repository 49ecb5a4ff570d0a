# SPDX-License-Identifier: Apache-2.0
# WebAssembly with Debian's clang-19, lld-19 and wasi-libc. wasm-ld is called directly: the clang driver runs any wasm-opt it
# finds afterwards, and that breaks modules with relaxed SIMD. Only wasi-libc's headers are searched, so that a header that is
# missing there never comes from the machine's own.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)

find_program(COBORD_WASM_CLANG NAMES clang-19 REQUIRED)
find_program(COBORD_WASM_LD NAMES wasm-ld-19 REQUIRED)
set(CMAKE_C_COMPILER ${COBORD_WASM_CLANG})
set(CMAKE_C_COMPILER_TARGET wasm32-wasi)
set(CMAKE_C_COMPILER_WORKS ON) # its check links a program, which needs an archiver that these packages do not have

set(COBORD_WASI_INCLUDE /usr/include/wasm32-wasi CACHE PATH "wasi-libc's headers")
set(COBORD_WASI_LIB /usr/lib/wasm32-wasi CACHE PATH "wasi-libc's libraries")
set(CMAKE_C_FLAGS_INIT "-nostdlibinc -isystem ${COBORD_WASI_INCLUDE} -msimd128 -mbulk-memory -mnontrapping-fptoint")
set(CMAKE_EXECUTABLE_SUFFIX_C .wasm)
set(CMAKE_C_LINK_EXECUTABLE "${COBORD_WASM_LD} <LINK_FLAGS> <OBJECTS> -o <TARGET> <LINK_LIBRARIES>")
