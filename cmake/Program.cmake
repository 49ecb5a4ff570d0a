# SPDX-License-Identifier: Apache-2.0
# The native program, build/cobord: every room.
if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/src/cli/main.c)
    add_executable(cobord src/cli/main.c)
    set_property(SOURCE src/cli/doctor_links.c src/cli/man.c src/cli/node.c src/cli/serve.c src/cli/deploy_write.c APPEND PROPERTY COMPILE_DEFINITIONS COBORD_VERSION="${PROJECT_VERSION}")
    target_compile_definitions(cobord PRIVATE _GNU_SOURCE COBORD_VERSION="${PROJECT_VERSION}")
    target_link_libraries(cobord PRIVATE cobord_upto_cli cobord_strict cobord_hardened)
    target_link_options(cobord PRIVATE -pie ${COBORD_HARDENED_LINK})
    set_target_properties(cobord PROPERTIES POSITION_INDEPENDENT_CODE ON RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endif()
