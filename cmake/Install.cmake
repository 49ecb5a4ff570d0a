# SPDX-License-Identifier: Apache-2.0
# What `make install` and the packages consist of, in three parts: the program, the library, what is needed to
# build with it. The folder of libraries and the paths in written files follow from the prefix of the moment of
# installing, so that one tree serves /usr/local and Debian's packages.
include(GNUInstallDirs)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON) # installing builds no tests
set(doc share/doc/cobord)
set(deploy ${CMAKE_SOURCE_DIR}/deploy)

# Debian keeps /usr's libraries by architecture.
set(COBORD_DEBIAN_LIBDIR lib)
if(CMAKE_LIBRARY_ARCHITECTURE)
    set(COBORD_DEBIAN_LIBDIR lib/${CMAKE_LIBRARY_ARCHITECTURE})
endif()
install(CODE "
    set(COBORD_LIBDIR lib)
    set(COBORD_ZSH share/zsh/site-functions)
    if(CMAKE_INSTALL_PREFIX MATCHES \"/usr$\")
        set(COBORD_LIBDIR \"${COBORD_DEBIAN_LIBDIR}\")
        set(COBORD_ZSH share/zsh/vendor-completions)
    endif()" ALL_COMPONENTS)

# `source` with some words replaced by what they are at the moment of installing; behind `destination`: word, value, ..
function(cobord_install_filled component source destination)
    get_filename_component(name ${source} NAME)
    string(REGEX REPLACE "\\.in$" "" name ${name})
    set(steps "file(READ \"${source}\" text)\n")
    set(pairs ${ARGN})
    while(pairs)
        list(POP_FRONT pairs word value)
        string(APPEND steps "string(REPLACE \"${word}\" \"${value}\" text \"\${text}\")\n")
    endwhile()
    install(CODE "${steps}
        string(RANDOM LENGTH 12 folder) # two may install at once
        set(folder \"${CMAKE_BINARY_DIR}/filled-\${folder}\")
        file(WRITE \"\${folder}/${name}\" \"\${text}\")
        file(INSTALL \"\${folder}/${name}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${destination}\")
        file(REMOVE_RECURSE \"\${folder}\")" COMPONENT ${component})
endfunction()

# ---- The program

install(TARGETS cobord RUNTIME DESTINATION bin COMPONENT program)
install(FILES README.md DESTINATION ${doc} COMPONENT program)
install(FILES LICENSE DESTINATION ${doc} COMPONENT manual) # packages say it in their own way
install(DIRECTORY docs/ DESTINATION ${doc} COMPONENT program)
foreach(unit cobord.service cobord-node@.service cobord-pull@.service)
    cobord_install_filled(program ${deploy}/systemd/${unit} lib/systemd/system
        /usr/bin/cobord "\${CMAKE_INSTALL_PREFIX}/bin/cobord"
        /usr/share/doc "\${CMAKE_INSTALL_PREFIX}/share/doc")
endforeach()
install(FILES ${deploy}/systemd/cobord.default DESTINATION ${doc}/examples COMPONENT program)
install(DIRECTORY ${deploy}/systemd/examples/ DESTINATION ${doc}/examples/systemd COMPONENT program)

# For `cobord deploy`, when `make wasm` has made the module.
file(GLOB scripts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/workers/*.mjs)
list(FILTER scripts EXCLUDE REGEX "/logits\\.mjs$") # a command for those who work on the modules
set(modules ${CMAKE_SOURCE_DIR}/build-wasm)
install(CODE "
    if(EXISTS \"${modules}/cobord.wasm\" AND EXISTS \"${modules}/cobord-relaxed.wasm\")
        file(INSTALL ${scripts} ${modules}/cobord.wasm ${modules}/cobord-relaxed.wasm
            DESTINATION \"\${CMAKE_INSTALL_PREFIX}/share/cobord/workers\"
            PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
    endif()" COMPONENT program)

# The page of the manual and the completions are printed by the program itself; another machine's is run by its
# emulator where there is one.
set(written "")
function(cobord_write name)
    set(out ${CMAKE_BINARY_DIR}/written/${name})
    add_custom_command(OUTPUT ${out} DEPENDS cobord
        COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/written
        COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:cobord> ${ARGN} > ${out} VERBATIM)
    set(written ${written} ${out} PARENT_SCOPE)
endfunction()
if(EXISTS ${CMAKE_SOURCE_DIR}/src/cli/man.c AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
    cobord_write(cobord.1 man)
    cobord_write(cobord.bash completion bash)
    cobord_write(_cobord completion zsh)
    cobord_write(cobord.fish completion fish)
    add_custom_target(written ALL DEPENDS ${written})
    set(folder ${CMAKE_BINARY_DIR}/written)
    install(FILES ${folder}/cobord.1 DESTINATION share/man/man1 COMPONENT manual)
    install(FILES ${folder}/cobord.bash DESTINATION share/bash-completion/completions RENAME cobord COMPONENT program)
    install(FILES ${folder}/_cobord DESTINATION "\${COBORD_ZSH}" COMPONENT program)
    install(FILES ${folder}/cobord.fish DESTINATION share/fish/vendor_completions.d COMPONENT program)
endif()

# ---- The library

if(TARGET cobord_library_shared)
    install(TARGETS cobord_library_shared
        LIBRARY DESTINATION "\${COBORD_LIBDIR}" COMPONENT library NAMELINK_COMPONENT development)
    install(TARGETS cobord_library_static ARCHIVE DESTINATION "\${COBORD_LIBDIR}" COMPONENT development)
    install(FILES include/cobord/cobord.h DESTINATION include/cobord COMPONENT development)
    install(FILES examples/generate.c DESTINATION share/doc/libcobord-dev/examples COMPONENT development)
    cobord_install_filled(development ${CMAKE_SOURCE_DIR}/src/library/cobord.pc.in "\${COBORD_LIBDIR}/pkgconfig"
        @PREFIX@ "\${CMAKE_INSTALL_PREFIX}" @LIBDIR@ "\${CMAKE_INSTALL_PREFIX}/\${COBORD_LIBDIR}"
        @VERSION@ ${PROJECT_VERSION})
endif()

# All that is installed, and no tests.
add_custom_target(package-parts DEPENDS cobord)
foreach(target written cobord_library_shared cobord_library_static)
    if(TARGET ${target})
        add_dependencies(package-parts ${target})
    endif()
endforeach()
