// SPDX-License-Identifier: Apache-2.0
/* node kernels_check.mjs build-wasm/kernels_check.wasm [--rates]: every kernel of the module against the reference.
 * The module with relaxed SIMD needs node --experimental-wasm-relaxed-simd, until Node 22. */
import fs from 'node:fs';

const x = new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync(process.argv[2])), {}).exports;
const FAULTS = ['', 'activations differ', 'products differ', 'case not possible'];
const SCALAR = 0, RUNS = 7;

function text(address) {
    const bytes = new Uint8Array(x.memory.buffer, address);
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
}
const typeName = type => text(x.type_name(type)), isaName = isa => text(x.isa_name(isa));

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
                console.log(`${isaName(isa)} ${typeName(type)} ${JSON.stringify(c)}: ${FAULTS[fault]}`);
        }
    console.log(`${isaName(isa)}: ${checked} cases, ${faults} faults`);
    return faults;
}

const cpuMs = () => process.cpuUsage().user / 1000;

/* GB/s of weights per instruction set. Machines are shared: the best of several runs, alternating, in CPU time. */
function rates(isas, type, cols, tokens) {
    const best = isas.map(() => 0);
    for (let run = 0; run < RUNS; run++)
        isas.forEach((isa, i) => {
            const times = Math.ceil((isa === SCALAR ? 300 : 3000) / tokens), begin = cpuMs();
            const bytes = x.repeat(isa, type, cols, tokens, times);
            best[i] = Math.max(best[i], bytes * times / (cpuMs() - begin) / 1e6);
        });
    return best.map(rate => rate.toFixed(2).padStart(9)).join('');
}

function printRates(isas) {
    const names = isas.map(isa => isaName(isa).padStart(9)).join('');
    console.log(`GB/s of weights    1 token${names}    8 tokens${names}`);
    for (let type = 0; type < x.types(); type++) {
        x.check(isas.at(-1), type, 1536, 8, 0, 2, 0, 1);
        const one = rates(isas, type, 1536, 1), eight = rates(isas, type, 1536, 8);
        console.log(`${typeName(type).padEnd(26)}${one}            ${eight}`);
    }
}

const here = [];
for (let isa = 0; isa < x.isas(); isa++) if (x.has(isa)) here.push(isa);
let faults = 0;
for (const isa of here) if (isa !== SCALAR) faults += check(isa);
if (process.argv.includes('--rates')) printRates(here);
process.exit(faults ? 1 : 0);
