# SPDX-License-Identifier: Apache-2.0
# Debian packages by CPack (`make deb`): cobord, libcobord0, libcobord-dev. dpkg-shlibdeps finds what they depend
# on; deploy/debian/ has what Debian wants to be told. They are made of the same build as `make install`.
set(debian ${CMAKE_SOURCE_DIR}/deploy/debian)
set(made ${CMAKE_BINARY_DIR}/debian)

# ---- Files of packages alone

find_program(COBORD_GZIP gzip)
configure_file(${debian}/changelog.in ${made}/changelog)
if(COBORD_GZIP)
    execute_process(COMMAND ${COBORD_GZIP} -9nf ${made}/changelog)
endif()
function(cobord_debian_files component package)
    install(FILES ${debian}/copyright ${made}/changelog.gz DESTINATION share/doc/${package}
        COMPONENT ${component} EXCLUDE_FROM_ALL)
    if(EXISTS ${debian}/${package}.lintian-overrides)
        install(FILES ${debian}/${package}.lintian-overrides DESTINATION share/lintian/overrides RENAME ${package}
            COMPONENT ${component} EXCLUDE_FROM_ALL)
    endif()
endfunction()
cobord_debian_files(program_debian cobord)
install(FILES ${deploy}/systemd/cobord.default DESTINATION /etc/default RENAME cobord
    COMPONENT program_debian EXCLUDE_FROM_ALL)
if(TARGET written)
    add_custom_command(OUTPUT ${made}/cobord.1.gz DEPENDS ${CMAKE_BINARY_DIR}/written/cobord.1
        COMMAND ${COBORD_GZIP} -9nc ${CMAKE_BINARY_DIR}/written/cobord.1 > ${made}/cobord.1.gz VERBATIM)
    add_custom_target(written_small ALL DEPENDS ${made}/cobord.1.gz)
    add_dependencies(package-parts written_small)
    install(FILES ${made}/cobord.1.gz DESTINATION share/man/man1 COMPONENT program_debian EXCLUDE_FROM_ALL)
endif()

# ---- The packages

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME cobord)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "Cobord maintainers <maintainers@cobord.example>")
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
if(COBORD_ARCH STREQUAL arm)
    set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
endif()
# dpkg-shlibdeps knows this machine's libraries only: for another one these are Debian 12's, which the sysroot is of.
set(find_depends ON)
if(CMAKE_CROSSCOMPILING)
    set(find_depends OFF)
    set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS
        "libc6 (>= 2.36), libcurl3-gnutls, libedit2, libgnutls30, libhiredis0.14, libmicrohttpd12, libsqlite3-0")
    set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS "libc6 (>= 2.36)")
endif()

set(CPACK_COMPONENTS_ALL program program_debian)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME cobord)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ${find_depends})
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS ca-certificates)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA
    ${debian}/conffiles ${debian}/postinst ${debian}/prerm ${debian}/postrm)
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "runs large language models as many small workers
Cobord runs a large language model as many small workers, none of which ever
holds more than a slice of it: in one process of a fixed size, or as processes
of their own on one machine or on many. The text is the same, bit for bit,
however many there are, also when some of them die on the way.
.
It answers OpenAI's and Ollama's API over HTTP.")

set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "runs large language models as many small workers - library
Cobord runs a large language model within a fixed amount of memory. This
library opens a model, tokenizes and generates for programs in C.")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "runs large language models as many small workers - development
Cobord runs a large language model within a fixed amount of memory. Here are
the header, the static library and an example for programs in C.")
if(TARGET cobord_library_shared)
    list(APPEND CPACK_COMPONENTS_ALL library library_debian development development_debian)
    set(name libcobord${PROJECT_VERSION_MAJOR})
    cobord_debian_files(library_debian ${name})
    cobord_debian_files(development_debian libcobord-dev)
    set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${name})
    set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
    set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ${find_depends})
    set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
    set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
    set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${debian}/triggers)
    set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libcobord-dev)
    set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
    set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${name} (= ${PROJECT_VERSION}), libc6-dev")
endif()

include(CPack)
foreach(part program library development)
    cpack_add_component_group(${part})
    foreach(component ${part} ${part}_debian)
        if(component IN_LIST CPACK_COMPONENTS_ALL)
            cpack_add_component(${component} GROUP ${part})
        endif()
    endforeach()
endforeach()
