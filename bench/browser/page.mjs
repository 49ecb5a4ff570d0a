// SPDX-License-Identifier: Apache-2.0
/* What bench/ runs inside Chromium. `bench` has the functions that the commands call; each takes one value. */
import { rates } from '/tests/wasm/kernels_rates.mjs';

/* {module, only}: see kernels_rates.mjs */
async function kernelRates({ module, only }) {
    const { instance } = await WebAssembly.instantiateStreaming(fetch(module), {});
    return [...rates(instance.exports, only)];
}

/* ---- our module, in a worker of its own as wllama is ---- */

let worker;

function ask(action, argument) {
    return new Promise((done, failed) => {
        worker.onmessage = ({ data: { value, error } }) => error ? failed(new Error(error)) : done(value);
        worker.onerror = event => failed(new Error(event.message));
        worker.postMessage({ action, argument });
    });
}

async function oursOpen(argument) {
    worker = new Worker('/bench/ours.mjs', { type: 'module' });
    return ask('open', argument);
}
const oursRun = argument => ask('run', argument);

/* ---- wllama ---- */

let wllama;

async function wllamaOpen({ gguf, context }) {
    const { Wllama, LoggerWithoutDebug } = await import('/wllama/index.js');
    const quiet = { suppressNativeLog: true, logger: LoggerWithoutDebug };
    wllama = new Wllama({ default: '/wllama/wasm/wllama.wasm' }, quiet);
    const blob = await (await fetch(gguf)).blob();
    await wllama.loadModel([blob], { n_threads: 1, n_gpu_layers: 0, n_ctx: context, n_parallel: 1 });
    return { threads: wllama.getNumThreads(), multithread: wllama.isMultithread() };
}

/* Its own clock, which leaves messages between threads out. */
async function wllamaRun({ prompt, count }) {
    const answer = await wllama.createCompletion({
        prompt, max_tokens: count, temperature: 0, ignore_eos: true, cache_prompt: false,
    });
    return { timings: answer.timings, text: answer.choices[0].text };
}

window.bench = { kernelRates, oursOpen, oursRun, wllamaOpen, wllamaRun };
