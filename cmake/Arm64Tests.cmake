# SPDX-License-Identifier: Apache-2.0
# From the native tree: the kernel tests of build-arm64/ under qemu-aarch64. Skipped, in plain sight,
# where the tools are not there (scripts/arm64-run).
set(run ${CMAKE_SOURCE_DIR}/scripts/arm64-run)
add_test(NAME setup.build-arm64 COMMAND ${run} --build)
set_tests_properties(setup.build-arm64 PROPERTIES
    LABELS setup FIXTURES_SETUP arm64 SKIP_RETURN_CODE 77 TIMEOUT 1800 RUN_SERIAL ON)
foreach(program kernel_test ops_test)
    add_test(NAME kernel.arm64_${program} COMMAND ${run} tests/kernel_${program})
    set_tests_properties(kernel.arm64_${program} PROPERTIES
        LABELS kernel FIXTURES_REQUIRED arm64 SKIP_RETURN_CODE 77 TIMEOUT 1800)
endforeach()
