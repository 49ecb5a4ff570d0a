# SPDX-License-Identifier: Apache-2.0
# yyjson and xxHash come as pinned, hash-checked source (scripts/fetch-deps); the rest are system packages (scripts/prepare).
execute_process(
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/scripts/fetch-deps
    OUTPUT_VARIABLE COBORD_DEPS OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE result)
if(NOT result EQUAL 0)
    message(FATAL_ERROR "scripts/fetch-deps failed; its message is above. Run scripts/prepare, then try again.")
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    scripts/fetch-deps scripts/deps.txt)

add_library(cobord_yyjson OBJECT ${COBORD_DEPS}/yyjson/yyjson.c)
target_include_directories(cobord_yyjson SYSTEM PUBLIC ${COBORD_DEPS}/yyjson)
target_compile_options(cobord_yyjson PRIVATE -w -ffp-contract=off)
target_link_libraries(cobord_yyjson PRIVATE cobord_hardened)
# Files and stdio stay with the host: the pure rooms hand it bytes. No incremental reader either.
target_compile_definitions(cobord_yyjson PRIVATE NDEBUG)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL wasm32)
    # A module is to stay below 1 MiB: its functions are not forced into each other either.
    target_compile_options(cobord_yyjson PRIVATE $<$<CONFIG:RelWithDebInfo>:-Os>)
    target_compile_definitions(cobord_yyjson PRIVATE yyjson_inline=__inline__)
endif()

add_library(cobord_deps_headers INTERFACE)
target_include_directories(cobord_deps_headers SYSTEM INTERFACE ${COBORD_DEPS}/yyjson ${COBORD_DEPS}/xxhash)

if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL wasm32)
    find_package(Threads REQUIRED)
    find_package(PkgConfig REQUIRED)
    pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)
    pkg_check_modules(GNUTLS REQUIRED IMPORTED_TARGET gnutls)
    pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
    pkg_check_modules(EDIT REQUIRED IMPORTED_TARGET libedit)
    pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
    pkg_check_modules(HIREDIS REQUIRED IMPORTED_TARGET hiredis)
    add_library(cobord_system INTERFACE)
    target_link_libraries(cobord_system INTERFACE
        PkgConfig::CURL PkgConfig::GNUTLS PkgConfig::MICROHTTPD PkgConfig::EDIT PkgConfig::SQLITE
        PkgConfig::HIREDIS Threads::Threads)
endif()
