// SPDX-License-Identifier: Apache-2.0
/* node kernels_check.mjs build-wasm/kernels_check.wasm [--rates]: every kernel of the module against the reference. */
import fs from 'node:fs';

const x = new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync(process.argv[2])), {}).exports;
const FAULTS = ['', 'activations differ', 'products differ', 'case not possible'];

function name(type) {
    const bytes = new Uint8Array(x.memory.buffer, x.type_name(type));
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
}

function* cases(block) {
    for (const blocks of [1, 2, 3, 7])
        for (let tokens = 1; tokens <= 8; tokens++)
            for (const kind of [0, 1, 2, 3, 4, 5])
                for (const fill of [0, 1, 2, 3])
                    yield { cols: blocks * block, tokens, kind, fill, shift: (tokens * 7 + blocks) % 32 };
}

let checked = 0, faults = 0;
for (let type = 0; type < x.types(); type++)
    for (const c of cases(Math.max(x.block(type), 1))) {
        const fault = x.check(type, c.cols, c.tokens, c.kind, c.fill, c.shift, 17 + checked);
        checked++;
        if (!fault) continue;
        faults++;
        if (faults < 20) console.log(`${name(type)} ${JSON.stringify(c)}: ${FAULTS[fault]}`);
    }
console.log(`${checked} cases, ${faults} faults`);

function rate(type, cols, tokens, simd) {
    let best = 0;
    for (let run = 0; run < 5; run++) {
        const times = simd ? 20000 / tokens : 2000 / tokens, begin = performance.now();
        const bytes = x.repeat(type, cols, tokens, simd, times);
        best = Math.max(best, bytes * times / (performance.now() - begin) / 1e6);
    }
    return best.toFixed(2).padStart(7);
}

if (process.argv.includes('--rates')) {
    console.log('GB/s of weights     1 token: scalar, simd128    8 tokens: scalar, simd128');
    for (let type = 0; type < x.types(); type++) {
        x.check(type, 1536, 8, 0, 2, 0, 1);
        console.log(`${name(type).padEnd(24)} ${rate(type, 1536, 1, 0)} ${rate(type, 1536, 1, 1)}   ` +
                    `             ${rate(type, 1536, 8, 0)} ${rate(type, 1536, 8, 1)}`);
    }
}
process.exit(faults ? 1 : 0);
