// SPDX-License-Identifier: Apache-2.0
/* A worker of page.mjs: a knot in memory outside the module, as an object store would be, and one instance. */
import { Cobord } from '/workers/cobord.mjs';

let model, file;

const actions = {
    async open({ knot, module, ...how }) {
        file = new Uint8Array(await (await fetch(knot)).arrayBuffer());
        const source = { bytes: file.length, read: (into, at) => into.set(file.subarray(at, at + into.length)) };
        model = Cobord.open({ module: await WebAssembly.compileStreaming(fetch(module)), source, ...how });
        return { ...model.figures(), memory_bytes: model.memoryBytes };
    },
    run({ ids, count }) {
        const before = model.counters.weight_bytes_read;
        return { ...model.generate(ids, count), copied_bytes: model.counters.weight_bytes_read - before };
    },
};

onmessage = async ({ data: { action, argument } }) => {
    try {
        postMessage({ value: await actions[action](argument) });
    } catch (error) {
        postMessage({ error: error.stack ?? String(error) });
    }
};
