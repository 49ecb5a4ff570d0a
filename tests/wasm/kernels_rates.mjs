// SPDX-License-Identifier: Apache-2.0
/* How fast the kernels of a kernels_check module are, in the shapes of `cobord bench --kernels`: one token streams the
 * weights from memory, sixty-four compute. `x` are the exports of an instance; nothing here needs Node. */
const COLS = 1536, STREAM_BYTES = 96 << 20, MATRIX_BYTES = 1 << 20, BUDGET_MS = 100, RUNS_MIN = 5, SCALAR = 0;

function textOf(x, address) {
    const bytes = new Uint8Array(x.memory.buffer, address);
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
}
export const typeName = (x, type) => textOf(x, x.type_name(type));
export const isaName = (x, isa) => textOf(x, x.isa_name(isa));

/* Instruction sets of the module besides the reference. */
export function isasOf(x) {
    return Array.from({ length: x.isas() }, (_, isa) => isa).filter(isa => isa !== SCALAR && x.has(isa));
}

/* Milliseconds of the fastest product per instruction set; they take turns. */
function fastest(x, isas) {
    const best = isas.map(() => Infinity), begin = performance.now();
    for (let run = 0; run < RUNS_MIN || performance.now() - begin < BUDGET_MS * isas.length; run++)
        isas.forEach((isa, i) => {
            const before = performance.now();
            x.multiply(isa);
            best[i] = Math.min(best[i], performance.now() - before);
        });
    return best;
}

/* {isa, type, gbs, gmacs} of one type: gigabytes of weights a second with one token, 1e9 products with sixty-four. */
export function ratesOfType(x, isas, type) {
    const bytes = x.prepare(isas[0], type, COLS, 1, STREAM_BYTES), one = fastest(x, isas);
    x.prepare(isas[0], type, COLS, 64, MATRIX_BYTES);
    const products = x.products(), many = fastest(x, isas);
    return isas.map((isa, i) => ({ isa: isaName(x, isa), type: typeName(x, type), gbs: bytes / one[i] / 1e6,
                                   gmacs: products / many[i] / 1e6 }));
}

/* `only`: names of types, all when empty. */
export function* rates(x, only = []) {
    for (let type = 0; type < x.types(); type++)
        if (!only.length || only.includes(typeName(x, type))) yield* ratesOfType(x, isasOf(x), type);
}
