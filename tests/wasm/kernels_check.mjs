// SPDX-License-Identifier: Apache-2.0
/* node kernels_check.mjs build-wasm/kernels_check.wasm: every kernel of the module against the reference.
 * node kernels_check.mjs build-wasm/kernels_check.wasm --rates [--json] [TYPE...]: instead, how fast they are.
 * The module with relaxed SIMD needs node --experimental-wasm-relaxed-simd, until Node 22. */
import fs from 'node:fs';
import { isaName, isasOf, rates, typeName } from './kernels_rates.mjs';

const x = new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync(process.argv[2])), {}).exports;
const FAULTS = ['', 'activations differ', 'products differ', 'case not possible'];

function* cases(block) {
    for (const blocks of [1, 2, 3, 7])
        for (let tokens = 1; tokens <= 8; tokens++)
            for (const kind of [0, 1, 2, 3, 4, 5])
                for (const fill of [0, 1, 2, 3])
                    yield { cols: blocks * block, tokens, kind, fill, shift: (tokens * 7 + blocks) % 32 };
}

function check(isa) {
    let checked = 0, faults = 0;
    for (let type = 0; type < x.types(); type++)
        for (const c of cases(Math.max(x.block(type), 1))) {
            const fault = x.check(isa, type, c.cols, c.tokens, c.kind, c.fill, c.shift, 17 + checked);
            checked++;
            if (fault && ++faults < 20)
                console.log(`${isaName(x, isa)} ${typeName(x, type)} ${JSON.stringify(c)}: ${FAULTS[fault]}`);
        }
    console.log(`${isaName(x, isa)}: ${checked} cases, ${faults} faults`);
    return faults;
}

function printRates(asJson, only) {
    const all = [];
    if (!asJson) console.log('isa       type  GB/s (1)  GMAC/s (64)');
    for (const r of rates(x, only)) {
        all.push(r);
        if (asJson) continue;
        const figures = r.gbs.toFixed(1).padStart(8) + r.gmacs.toFixed(1).padStart(13);
        console.log(`${r.isa.padEnd(9)} ${r.type.padEnd(5)} ${figures}`);
    }
    if (asJson) console.log(JSON.stringify({ kernels: all }));
}

const options = process.argv.slice(3);
let faults = 0;
if (options.includes('--rates')) printRates(options.includes('--json'), options.filter(o => !o.startsWith('--')));
else for (const isa of isasOf(x)) faults += check(isa);
process.exit(faults ? 1 : 0);
