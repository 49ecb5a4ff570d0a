#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
/* `cobord logits` through the WebAssembly module, one JSON value with the same names:
 *
 *   node workers/logits.mjs FILE.knot --tokens 1,2,3 [--top 20] [--module build-wasm/cobord.wasm] [--memory 96M]
 *        [--stations 2] [--shards 8] [--chunk ROWS] [--logit-rows ROWS] [--cache-type f16|q8_0]
 *        [--isa scalar|simd128|relaxed]   relaxed: another module (cobord-relaxed.wasm), and before Node 22 another
 *                         option of node's, --experimental-wasm-relaxed-simd
 *        [--generate N]   instead: N greedy tokens after --tokens, and their speed */
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { CACHE, Cobord, ISA } from './cobord.mjs';
import { openSource, readModule } from './node_source.mjs';

const options = {
    tokens: { type: 'string' }, top: { type: 'string', default: '20' }, generate: { type: 'string' },
    module: { type: 'string' },
    memory: { type: 'string', default: '96M' }, stations: { type: 'string', default: '2' },
    shards: { type: 'string', default: '8' }, chunk: { type: 'string', default: '0' },
    'logit-rows': { type: 'string', default: '0' }, context: { type: 'string' },
    'cache-type': { type: 'string', default: 'f16' }, isa: { type: 'string', default: 'simd128' },
};

function usage(text) {
    console.error(`logits.mjs: ${text}`);
    process.exit(2);
}

function number(text, name) {
    if (!/^\d{1,10}$/.test(text) || Number(text) > 0xffffffff) usage(`--${name} ${text}: give a number below 2^32`);
    return Number(text);
}

function size(text) {
    const match = /^(\d{1,10})([KMG]?)$/.exec(text);
    if (!match) usage(`--memory ${text}: give a size like 96M`);
    return Number(match[1]) * 1024 ** ' KMG'.indexOf(match[2] || ' ');
}

function builtModule(isa) {
    const name = isa === 'relaxed' ? 'cobord-relaxed.wasm' : 'cobord.wasm';
    return fileURLToPath(new URL(`../build-wasm/${name}`, import.meta.url));
}

function choice(names, text, name) {
    if (!names.includes(text)) usage(`--${name} ${text}: give one of ${names.join(', ')}`);
    return text;
}

function facts(model, isa) {
    return {
        counters: { ...model.counters, memory_bytes: model.memoryBytes },
        plan: { ...model.figures(), isa },
    };
}

function score(model, ids, top, isa) {
    const positions = [];
    const xxh3 = model.score(ids, top, position => positions.push(position));
    return { positions, xxh3, ...facts(model, isa) };
}

function generate(model, ids, count, isa) {
    const { ids: out, prefill_ms, decode_ms } = model.generate(ids, count);
    return {
        ids: out, prefill_tps: ids.length / prefill_ms * 1000, decode_tps: (count - 1) / decode_ms * 1000,
        ...facts(model, isa),
    };
}

function main() {
    let values, positionals;
    try {
        ({ values, positionals } = parseArgs({ options, allowPositionals: true }));
    } catch (error) {
        usage(error.message);
    }
    if (positionals.length !== 1) usage('give one knot');
    if (!/^\d+(,\d+)*$/.test(values.tokens ?? '')) usage('give ids like --tokens 1,2,3');
    const ids = values.tokens.split(',').map(text => number(text, 'tokens'));
    const count = number(values.generate ?? '0', 'generate');
    const model = Cobord.open({
        module: readModule(values.module ?? builtModule(values.isa)), source: openSource(positionals[0]),
        memory: size(values.memory),
        stations: number(values.stations, 'stations'), shards: number(values.shards, 'shards'),
        context: number(values.context ?? String(ids.length + count), 'context'), chunk: number(values.chunk, 'chunk'),
        logitRows: number(values['logit-rows'], 'logit-rows'),
        cache: CACHE[choice(Object.keys(CACHE), values['cache-type'], 'cache-type')],
        isa: choice(ISA, values.isa, 'isa'),
    });
    console.log(JSON.stringify(count ? generate(model, ids, count, values.isa)
                                     : score(model, ids, number(values.top, 'top'), values.isa)));
}

try {
    main();
} catch (error) {
    console.error(`logits.mjs: ${error.message}`);
    process.exit(1);
}
