# SPDX-License-Identifier: Apache-2.0
# A thin front: every target is a few commands that docs/HACKING.md explains. CMake does the work.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# A test counts for two, one that mostly waits for one (tests/CMakeLists.txt). Programs that tests start hear Ctrl-C,
# also when this runs in the background of a script.
CTEST = env --default-signal=INT ctest -j $$((2 * $(JOBS) + 1)) --output-on-failure

.PHONY: all library prepare demo faults peers load soak tsan test test-short test-workers test-long asan gcc wasm \
    arm64 fuzz fuzz-replay fuzz-coverage bench bench-wasm clean install uninstall deb deb-arm64

all: ; @scripts/build default $(JOBS) cobord

# libcobord.a and libcobord.so.0
library: ; @scripts/build default $(JOBS) cobord_library_static cobord_library_shared

prepare: ; @scripts/prepare

demo: ; @scripts/demo

# Everything; the last lines are ctest's summary of the main tree.
test: prepare
	@scripts/prepare arm64 && scripts/arm64-sysroot >/dev/null || echo 'make: arm64 tests are left out'
	@scripts/prepare package || echo 'make: tests of packages and units are left out'
	@scripts/prepare browser || echo 'make: tests of the page are left out'
	@scripts/prepare shells || echo 'make: tests of completion in zsh and fish are left out'
	@scripts/build default $(JOBS)
	@scripts/build asan $(JOBS)
	@(cd build-asan && $(CTEST) -L unit); sanitized=$$?; \
	(cd build && $(CTEST)) && exit $$sanitized

# What needs no model: a minute.
test-short:
	@scripts/build default $(JOBS)
	@cd build && $(CTEST) -L 'tidy|unit|kernel'

# Cloudflare's side on the real runtime, offline once the packages are there.
test-workers:
	@scripts/build default $(JOBS)
	@cd build && ctest -R 'system\.(workers|deploy|conformance)' --output-on-failure

# What takes long, half a day: a 7B-shaped model in 128 MiB, the other compiler, ThreadSanitizer, an hour of soak, ten
# minutes of fuzzing per target.
test-long: test
	@COBORD=build/cobord python3 tests/system/memory_test.py --long
	@scripts/build gcc $(JOBS)
	@cd build-gcc && $(CTEST) -L 'unit|kernel'
	@$(MAKE) tsan
	@$(MAKE) soak
	@$(MAKE) fuzz-replay
	@$(MAKE) fuzz MINUTES=10

# Below $(DESTDIR)$(PREFIX): program, page of the manual, completions, units, library, documentation.
PREFIX ?= /usr/local
install: package-parts
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' scripts/install build

uninstall:
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' scripts/install --remove build

# build/cobord_VERSION_amd64.deb and those of the library.
deb: package-parts
	@scripts/deb build

# The same for 64-bit ARM, in build-arm64/.
deb-arm64:
	@scripts/prepare arm64
	@scripts/build arm64 $(JOBS) package-parts
	@scripts/deb build-arm64

.PHONY: package-parts
package-parts: ; @scripts/build default $(JOBS) package-parts

asan gcc: ; @scripts/build $@ $(JOBS)

wasm: ; @scripts/build wasm $(JOBS)

# The program for 64-bit ARM Linux, build-arm64/cobord; runs here under qemu-aarch64.
arm64:
	@scripts/prepare arm64
	@scripts/build arm64 $(JOBS) cobord

# Unit and system tests with programs under ThreadSanitizer; a report of any process fails. Hours.
tsan:
	@scripts/build tsan $(JOBS)
	@cd build-tsan && TSAN_OPTIONS=suppressions=$(CURDIR)/tests/system/tools/tsan.suppressions $(CTEST) -L unit
	@scripts/tsan

# What goes wrong beneath the program: each call that can fail does, full disks, clocks that jump, bits that flip.
faults:
	@scripts/build default $(JOBS) cobord fail_nth shift_clock
	@scripts/faults build

# What a server and a cluster do when four times as much is asked of them as they can: 8 minutes on a quiet machine.
load: all
	@bench/load

# A cluster and a server under mixed traffic while nodes are killed; SEED=N for one again. MINUTES=1 is a look.
soak: MINUTES ?= 60
soak:
	@scripts/build default $(JOBS) cobord
	@COBORD=build/cobord python3 tests/soak/soak.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# Hostile peers, the whole of them: ten thousand connections, stations and wardens that lie.
peers:
	@scripts/build default $(JOBS) cobord
	@for test in crowd peers liar lying_warden host_name limits; do \
	    PEERS=whole COBORD=build/cobord python3 tests/system/$${test}_test.py || exit 1; done

# libFuzzer with ASan and UBSan: every target (or TARGETS="gguf knot") for so long, from its seeds; the ledger adds up.
fuzz: MINUTES ?= 1
TARGETS ?=
fuzz:
	@scripts/build fuzz $(JOBS) fuzz_targets
	@scripts/fuzz --minutes $(MINUTES) --jobs $(JOBS) $(TARGETS)

# Every committed input once, in the same build.
fuzz-replay:
	@scripts/build fuzz $(JOBS) fuzz_targets
	@scripts/fuzz --replay --jobs $(JOBS) $(TARGETS)

# Which lines and branches of the rooms' parsers the committed inputs reach.
fuzz-coverage:
	@scripts/prepare coverage
	@scripts/build coverage $(JOBS) fuzz_targets
	@scripts/fuzz-coverage

.PHONY: crashes upgrade
# The program dies at each change that it makes to files, one after the other; what is left is the old or the new state.
crashes:
	@scripts/build default $(JOBS) cobord crash_nth store_probe
	@COBORD=build/cobord CRASH_NTH=build/tests/libcrash_nth.so python3 tests/system/crash_test.py --all
	@COBORD=build/cobord CRASH_NTH=build/tests/libcrash_nth.so STORE_PROBE=build/tests/store_probe \
	    python3 tests/system/crash_caches_test.py --all

# A cluster is upgraded one node after the other, from the program of an earlier commit to this one.
OLD ?= 263802c
upgrade:
	@scripts/build default $(JOBS) cobord store_probe crash_nth
	@COBORD=build/cobord STORE_PROBE=build/tests/store_probe CRASH_NTH=build/tests/libcrash_nth.so \
	    python3 tests/system/formats_test.py
	@old=$$(scripts/old-program $(OLD)) && COBORD=build/cobord OLD_COBORD=$$old python3 tests/system/versions_test.py

bench: all
	@bench/compare

# The WebAssembly modules: kernels beside native ones, and both models beside wllama, in Chromium.
bench-wasm: all wasm
	@scripts/prepare browser
	@bench/wasm
	@bench/wllama

clean: ; rm -rf build build-asan build-gcc build-tsan build-fuzz build-coverage build-wasm build-arm64
