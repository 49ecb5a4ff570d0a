// SPDX-License-Identifier: Apache-2.0
/* Runs a knot through the WebAssembly module in one instance: every role, fed from any source of bytes.
 *
 *   const model = Cobord.open({module, source, memory, stations, shards, ...});
 *   model.score(ids, top, position => ...);
 *
 * `source` is {bytes, read(into, offset)}: fills the Uint8Array `into` from file offset `offset`. This file decides
 * nothing about the model: which bytes, where to, and what follows is the module's answer. */

const DONE = 0, LOAD = 1, TILE = 2, EVICT = 3, FAILED = 4; // WishKind in workers/instance.h
export const CACHE = { f16: 0, q8_0: 1 };              // CacheType in src/model/ops.h
export const ISA = ['scalar', 'simd128', 'relaxed'];   // by name; relaxed is in cobord-relaxed.wasm only

export class CobordError extends Error {}

export class Cobord {
    #x;
    #source;
    counters = { phase_loads: 0, phase_evictions: 0, tiles: 0, weight_bytes_read: 0 };

    constructor(instance, source) {
        this.#x = instance.exports;
        this.#source = source;
    }

    /* `module` is a compiled WebAssembly.Module without imports. */
    static open({ module, source, memory = 96 << 20, stations = 0, shards = 0, context = 0, chunk = 0, logitRows = 0,
                  sessions = 0, cache = CACHE.f16, isa = 'simd128' }) {
        const model = new Cobord(new WebAssembly.Instance(module, {}), source);
        const x = model.#x, solo = 1;
        model.#check(x.cobord_open(BigInt(source.bytes)));
        model.#run();
        model.#check(x.cobord_plan(BigInt(memory), stations, shards, context, chunk, logitRows, sessions, cache,
                                   model.#isa(isa), solo));
        model.#check(x.cobord_build(0, model.figures().roles));
        model.#run();
        model.counters = { phase_loads: 0, phase_evictions: 0, tiles: 0, weight_bytes_read: 0 };
        return model;
    }

    /* All numbers that the module knows of its model and plan, by name. */
    figures() {
        const figures = {};
        for (let i = 0; this.#x.cobord_figure_name(i); i++)
            figures[this.#text(this.#x.cobord_figure_name(i))] = this.#x.cobord_figure(i);
        return figures;
    }

    /* The logits of every position of a fresh sequence: calls visit({top, logsumexp}) per position; returns XXH3-64
     * over all logits in hexadecimal. */
    score(ids, top, visit) {
        const { chunk, logit_rows, shards } = this.figures(), x = this.#x;
        x.cobord_hash_start();
        for (let at = 0; at < ids.length; at += chunk) {
            const part = ids.slice(at, at + chunk);
            this.forward(part, at);
            for (let row = 0; row < part.length; row += logit_rows) {
                const rows = Math.min(logit_rows, part.length - row);
                this.#logits(row, rows);
                for (let r = 0; r < rows; r++) {
                    for (let s = 0; s < shards; s++) this.#check(x.cobord_hash(s, r));
                    visit(this.#top(r, top));
                }
            }
        }
        return BigInt.asUintN(64, x.cobord_hash_end()).toString(16).padStart(16, '0');
    }

    /* Embeds and forwards at most `chunk` ids at `position`. */
    forward(ids, position, session = 0) {
        const { shards, stations } = this.figures(), x = this.#x;
        this.#check(x.cobord_embed_start(ids.length));
        new Uint32Array(x.memory.buffer, x.cobord_ids() >>> 0, ids.length).set(ids);
        for (let s = 0; s < shards; s++) {
            this.#check(x.cobord_embed(s, ids.length));
            this.#run();
            this.#check(x.cobord_embed_merge(ids.length));
        }
        for (let s = 0; s < stations; s++) {
            this.#check(x.cobord_forward(s, session, position, ids.length));
            this.#run();
        }
    }

    /* The best id that follows row `row` of the last chunk. */
    best(row) {
        this.#logits(row, 1);
        return this.#top(0, 1).top[0][0];
    }

    /* Greedy text after `ids` in a fresh sequence: `count` ids, one a step. The first step's time has the prompt's and
     * that of the first id. */
    generate(ids, count) {
        const { chunk } = this.figures(), out = [], begin = performance.now();
        for (let at = 0; at < ids.length; at += chunk) this.forward(ids.slice(at, at + chunk), at);
        out.push(this.best((ids.length - 1) % chunk));
        const middle = performance.now();
        for (let n = 1; n < count; n++) {
            this.forward(out.slice(-1), ids.length + n - 1);
            out.push(this.best(0));
        }
        return { ids: out, prefill_ms: middle - begin, decode_ms: performance.now() - middle };
    }

    get memoryBytes() { return this.#x.memory.buffer.byteLength; }

    #isa(name) {
        for (let isa = 0, at; (at = this.#x.cobord_isa_name(isa)); isa++) if (this.#text(at) === name) return isa;
        throw new CobordError(`instruction set ${name} is not known`);
    }

    #logits(row, rows) {
        const { shards } = this.figures(), x = this.#x;
        this.#check(x.cobord_norm(row, rows));
        for (let s = 0; s < shards; s++) {
            this.#check(x.cobord_logits(s, rows));
            this.#run();
        }
    }

    #top(row, k) {
        const { shards } = this.figures(), x = this.#x, top = [];
        x.cobord_top_start();
        for (let s = 0; s < shards; s++) this.#check(x.cobord_top(s, row, k));
        for (let i = 0; i < x.cobord_top_count(); i++) top.push([x.cobord_top_id(i) >>> 0, x.cobord_top_logit(i)]);
        return { top, logsumexp: x.cobord_top_log_sum() };
    }

    /* Carries out the wishes of one operation. */
    #run() {
        const x = this.#x, c = this.counters;
        for (let kind; (kind = x.cobord_next()) !== DONE;) {
            if (kind === LOAD) c.phase_loads++;
            else if (kind === EVICT) c.phase_evictions++;
            else if (kind === TILE) this.#copy();
            else if (kind === FAILED) this.#check(x.cobord_error());
        }
    }

    #copy() {
        const x = this.#x, bytes = x.cobord_wish_bytes() >>> 0;
        this.counters.tiles++;
        this.counters.weight_bytes_read += bytes;
        if (bytes) this.#source.read(new Uint8Array(x.memory.buffer, x.cobord_wish_address() >>> 0, bytes),
                                     Number(x.cobord_wish_offset()));
    }

    #check(error) {
        if (!error) return;
        const why = this.#text(this.#x.cobord_why());
        throw new CobordError(this.#text(this.#x.cobord_error_text(error)) + (why ? `: ${why}` : ''));
    }

    #text(address) {
        const bytes = new Uint8Array(this.#x.memory.buffer, address >>> 0);
        return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
    }
}
