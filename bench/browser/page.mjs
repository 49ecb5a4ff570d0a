// SPDX-License-Identifier: Apache-2.0
/* What bench/ runs inside Chromium. `bench` has the functions that the commands call; each takes one value. */
import { rates } from '/tests/wasm/kernels_rates.mjs';

/* {module, only}: see kernels_rates.mjs */
async function kernelRates({ module, only }) {
    const { instance } = await WebAssembly.instantiateStreaming(fetch(module), {});
    return [...rates(instance.exports, only)];
}

window.bench = { kernelRates };
