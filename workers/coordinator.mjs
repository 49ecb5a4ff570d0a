// SPDX-License-Identifier: Apache-2.0
/* The coordinator's script: its object carries out what the module wishes (docs/format/workers.md,
 * section 8): calls to nodes through their bindings or addresses, answers and streams to clients, bytes of
 * the knot. It decides nothing.
 *
 * One pump at a time takes the wishes. Each belongs to an invocation of the object, which may make so many
 * calls only; then an alarm, an invocation of its own, goes on with the pump. */
import module from './cobord.wasm';
import { front } from './front.mjs';
import { targetOf } from './target.mjs';

export default front;

const REST = 0, WAIT = 1, READ = 2, CALL = 3, CANCEL = 4, REPLY = 5, STREAM = 6, WRITE = 7, END = 8, LOG = 9,
    ROW_PUT = 10, ROW_DELETE = 11, HAND_OVER = 12;
const LEVEL_ERROR = 0;
const REOPEN_MS = 1000, DROPPED_BYTES_MAX = 64 << 20;
const TABLE = 'CREATE TABLE IF NOT EXISTS rows (key TEXT, number INTEGER, bytes BLOB, PRIMARY KEY (key, number))';

/* CLUSTER, CLUSTER_1, ..: a variable may be too short for all of it. */
function clusterOf(env) {
    let text = env.CLUSTER ?? '';
    for (let i = 1; `CLUSTER_${i}` in env; i++) text += env[`CLUSTER_${i}`];
    return text;
}

function settingsOf(env) {
    const plain = ([name, value]) => typeof value === 'string' && !/^(CLUSTER(_\d+)?|API_KEYS)$/.test(name);
    return Object.entries(env).filter(plain).map(([name, value]) => `${name}=${value}\n`).join('');
}

/* The body of an answer; null: it is longer than the room. */
async function bodyOf(response, room) {
    if (!response.body) return new Uint8Array(0);
    const length = Number(response.headers.get('content-length') ?? room + 1); // one more, to see the end
    const want = Math.max(Math.min(length, room + 1), 1);
    const reader = response.body.getReader({ mode: 'byob' });
    try {
        const { value } = await reader.readAtLeast(want, new Uint8Array(want));
        if (value?.length > room) return null;
        return value ?? new Uint8Array(0);
    } finally {
        reader.cancel().catch(() => {});
    }
}

export class Coordinator {
    #x = null;          // exports of the module; null: to be opened
    #opening = null;
    #openedAt = 0;
    #answers = new Map(); // by request: {resolve, reject, writer}
    #calls = new Map();   // by call: its AbortController
    #pumping = false;
    #news = false;
    #wake = null;

    constructor(ctx, env) {
        this.ctx = ctx;
        this.env = env;
        this.sql = ctx.storage.sql;
        this.sql.exec(TABLE);
    }

    async fetch(request) {
        const invocation = { reads: 0 };
        await this.#open(invocation);
        if (!this.#x) throw new Error('the coordinator is not open'); // the front says it
        return this.#ask(request, invocation);
    }

    /* The pump goes on in an invocation of its own. */
    async alarm() {
        if (this.#x) await this.#pump({ reads: 0 });
    }

    // --- opening ---

    async #open(invocation) {
        if (this.#x?.coordinator_is_open()) return;
        this.#opening ??= this.#begin(invocation).finally(() => { this.#opening = null; });
        await this.#opening;
    }

    async #begin(invocation) {
        if (this.#x && Date.now() - this.#openedAt < REOPEN_MS) return;
        this.#openedAt = Date.now();
        if (this.#x) this.#crash(new Error('it was not open'));
        try {
            this.#x = new WebAssembly.Instance(module, {}).exports;
            await this.#load(invocation);
        } catch (error) {
            this.#crash(error);
        }
    }

    async #load(invocation) {
        const x = this.#x, env = { ...this.env };
        env.KNOT_BYTES ??= String((await this.env.KNOT_BUCKET.head(this.env.KNOT_KEY))?.size ?? 0);
        this.#drawChance();
        x.coordinator_settings(this.#say(settingsOf(env)));
        if ('API_KEYS' in env) x.coordinator_keys(this.#say(String(env.API_KEYS)));
        x.coordinator_open(this.#say(clusterOf(env)));
        for (let kind; (kind = x.coordinator_next(Date.now())) !== REST && kind !== WAIT;) {
            if (kind === READ) await this.#read(invocation);
            if (kind === LOG) this.#log();
        }
        for (const { key, number, bytes } of this.sql.exec('SELECT key, number, bytes FROM rows ORDER BY key, number'))
            this.#restore(new TextEncoder().encode(key), number, new Uint8Array(bytes));
    }

    #restore(key, number, bytes) {
        const x = this.#x, address = x.coordinator_text(key.length + bytes.length) >>> 0;
        if (!address) return; // no memory: what is not remembered cannot be resumed
        const room = new Uint8Array(x.memory.buffer, address, key.length + bytes.length);
        room.set(key);
        room.set(bytes, key.length);
        x.coordinator_row(key.length, number, room.length);
    }

    async #read(invocation) {
        const x = this.#x, address = x.coordinator_wish_address() >>> 0;
        const length = x.coordinator_wish_room() >>> 0;
        invocation.reads++;
        const range = { offset: x.coordinator_wish_offset(), length };
        const object = await this.env.KNOT_BUCKET.get(this.env.KNOT_KEY, { range }).catch(() => null);
        const bytes = object && new Uint8Array(await object.arrayBuffer().catch(() => new ArrayBuffer(0)));
        if (bytes?.length === length) new Uint8Array(x.memory.buffer, address, length).set(bytes);
        x.coordinator_read_came(bytes?.length === length ? 1 : 0);
    }

    // --- requests ---

    async #ask(request, invocation) {
        const x = this.#x, number = this.#head(request);
        if (!number) throw new Error('too many requests are open');
        const answer = new Promise((resolve, reject) => this.#answers.set(number, { resolve, reject }));
        answer.catch(() => {}); // it may fail while the body still comes
        request.signal?.addEventListener('abort', () => this.#gone(x, number));
        try {
            await this.#body(request, x, number);
            if (x === this.#x) x.coordinator_body_end(number);
        } catch (error) {
            this.#gone(x, number);
            throw error;
        }
        this.#start(invocation);
        return answer;
    }

    #head(request) {
        const headers = [...request.headers].map(([name, value]) => `\n${name}: ${value}`).join('');
        this.#drawChance();
        this.#x.coordinator_time(Date.now());
        const head = `${request.method} ${targetOf(request)}${headers || '\n'}`;
        return this.#x.coordinator_request(this.#say(head));
    }

    async #body(request, x, number) {
        if (!request.body) return;
        const reader = request.body.getReader();
        for (let chunk, read = 0; read < DROPPED_BYTES_MAX && !(chunk = await reader.read()).done;) {
            const address = x.coordinator_body(number, chunk.value.length) >>> 0;
            read += chunk.value.length;
            if (!address) continue; // refused: who sends first listens afterwards
            new Uint8Array(x.memory.buffer, address, chunk.value.length).set(chunk.value);
        }
    }

    /* The client has left. Another instance counts its requests from 1 again. */
    #gone(x, number) {
        if (x !== this.#x || !this.#answers.delete(number)) return;
        x.coordinator_gone(number);
        this.#start({ reads: 0 });
    }

    // --- the pump ---

    #start(invocation) {
        this.#tell();
        if (!this.#pumping) this.ctx.waitUntil(this.#pump(invocation));
    }

    #tell() {
        this.#news = true;
        this.#wake?.();
    }

    async #pump(invocation) {
        if (this.#pumping) return;
        this.#pumping = true;
        invocation.calls = new Set();
        try {
            this.#x.coordinator_invocation(invocation.reads);
            await this.#turn(invocation);
        } catch (error) {
            this.#pumping = false;
            this.#crash(error);
        }
        await Promise.allSettled(invocation.calls);
    }

    /* No await between its last look and the flag: whoever comes then begins a pump. */
    async #turn(invocation) {
        for (;;) {
            this.#news = false;
            const kind = this.#x.coordinator_next(Date.now());
            if (kind === HAND_OVER) await this.ctx.storage.setAlarm(Date.now());
            if (kind === REST || kind === HAND_OVER) return void (this.#pumping = false);
            if (kind === WAIT) await this.#sleep(this.#x.coordinator_wish_wait_ms());
            else this.#carryOut(kind, invocation);
        }
    }

    #sleep(ms) {
        return new Promise(resolve => {
            if (this.#news) return resolve();
            const timer = setTimeout(() => this.#wake?.(), ms);
            this.#wake = () => {
                clearTimeout(timer);
                this.#wake = null;
                resolve();
            };
        });
    }

    #carryOut(kind, invocation) {
        const x = this.#x, number = x.coordinator_wish_number();
        if (kind === CALL) this.#call(number, invocation);
        else if (kind === CANCEL) this.#cancel(number);
        else if (kind === REPLY) this.#reply(number);
        else if (kind === STREAM) this.#stream(number);
        else if (kind === WRITE) this.#write(number);
        else if (kind === END) this.#end(number);
        else if (kind === ROW_PUT) this.#putRow(number);
        else if (kind === ROW_DELETE) this.#deleteRows();
        else if (kind === LOG) this.#log();
    }

    #log() {
        const x = this.#x, line = this.#text(x.coordinator_wish_text());
        if (x.coordinator_wish_status() === LEVEL_ERROR) console.error(line);
        else console.warn(line); // on standard error too where there is one
    }

    #deleteRows() {
        this.sql.exec('DELETE FROM rows WHERE key = ?', this.#text(this.#x.coordinator_wish_text()));
    }

    #putRow(number) {
        const key = this.#text(this.#x.coordinator_wish_text());
        this.sql.exec('INSERT OR REPLACE INTO rows VALUES (?, ?, ?)', key, number, this.#parts());
    }

    // --- calls to nodes ---

    #call(number, invocation) {
        const x = this.#x, [line, binding, ...lines] = this.#text(x.coordinator_wish_text()).split('\n');
        const [method, url] = line.split(' '), abort = new AbortController();
        const headers = lines.filter(Boolean).map(text => text.split(/: (.*)/, 2));
        const body = method === 'POST' ? this.#parts() : undefined;
        this.#calls.set(number, abort);
        const call = this.#make(number, binding, url, { method, headers, body, signal: abort.signal })
            .catch(error => this.#crash(error)).finally(() => invocation.calls.delete(call));
        invocation.calls.add(call);
    }

    async #make(number, binding, url, init) {
        const x = this.#x, via = this.env[binding];
        let status = 0, body = new Uint8Array(0);
        try {
            const response = await (via ? via.fetch(url, init) : fetch(url, init));
            x.coordinator_answer_address(number);
            body = await bodyOf(response, x.coordinator_answer_room() >>> 0);
            status = response.status;
        } catch (error) {
            if (this.#calls.has(number)) console.error(`${url}: ${error?.message ?? error}`);
        }
        if (x === this.#x && this.#calls.delete(number)) this.#answer(number, status, body);
    }

    #answer(number, status, body) {
        const x = this.#x, address = x.coordinator_answer_address(number) >>> 0;
        const room = x.coordinator_answer_room() >>> 0;
        if (address && body) new Uint8Array(x.memory.buffer, address, body.length).set(body);
        x.coordinator_answer(number, status, body ? body.length : room + 1);
        this.#tell();
    }

    #cancel(number) {
        const abort = this.#calls.get(number);
        this.#calls.delete(number);
        abort?.abort();
    }

    // --- answers to clients ---

    #headers() {
        const x = this.#x, headers = new Headers();
        const type = x.coordinator_wish_text(), lines = x.coordinator_wish_headers();
        if (type) headers.set('Content-Type', this.#text(type));
        for (const line of lines ? this.#text(lines).trimEnd().split('\n') : [])
            headers.append(...line.split(/: (.*)/s, 2));
        return headers;
    }

    #reply(number) {
        const x = this.#x, answer = this.#answers.get(number), status = x.coordinator_wish_status();
        const headers = this.#headers(), body = status === 204 || status === 304 ? null : this.#parts();
        const allow = x.coordinator_wish_allow(), retry = x.coordinator_wish_retry_s();
        if (allow) headers.set('Allow', this.#text(allow));
        if (retry) headers.set('Retry-After', String(retry));
        if (status === 401) headers.set('WWW-Authenticate', 'Bearer');
        this.#answers.delete(number);
        answer?.resolve(new Response(body, { status, headers }));
    }

    #stream(number) {
        const x = this.#x, answer = this.#answers.get(number);
        const { readable, writable } = new IdentityTransformStream();
        if (!answer) return;
        answer.writer = writable.getWriter();
        answer.writer.closed.catch(() => this.#gone(x, number));
        const headers = this.#headers();
        headers.set('Cache-Control', 'no-store');
        answer.resolve(new Response(readable, { headers }));
    }

    #write(number) {
        const x = this.#x, written = () => {
            if (x !== this.#x) return;
            x.coordinator_written(number);
            this.#tell();
        };
        this.#answers.get(number)?.writer.write(this.#parts()).then(written, () => this.#gone(x, number))
            .catch(error => this.#crash(error));
    }

    #end(number) {
        this.#answers.get(number)?.writer.close().catch(() => {});
        this.#answers.delete(number);
    }

    /* The module has broken: nobody gets an answer of it any more, and the next request opens another. */
    #crash(error) {
        console.error(`the coordinator begins anew: ${error?.stack ?? error}`);
        this.#x = null;
        for (const abort of this.#calls.values()) abort.abort();
        for (const { reject, writer } of this.#answers.values())
            if (writer) writer.abort(error).catch(() => {});
            else reject(error);
        this.#calls.clear();
        this.#answers.clear();
    }

    // --- the module's memory ---

    #drawChance() {
        const x = this.#x, bytes = crypto.getRandomValues(new Uint8Array(256));
        new Uint8Array(x.memory.buffer, x.coordinator_chance() >>> 0, bytes.length).set(bytes);
    }

    /* Writes a text for the next call; its length. */
    #say(text) {
        const bytes = new TextEncoder().encode(text), address = this.#x.coordinator_text(bytes.length) >>> 0;
        if (!address) return 0;
        new Uint8Array(this.#x.memory.buffer, address, bytes.length).set(bytes);
        return bytes.length;
    }

    #text(address) {
        const bytes = new Uint8Array(this.#x.memory.buffer, address >>> 0);
        return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
    }

    /* A copy of both parts of the wish. */
    #parts() {
        const x = this.#x, memory = x.memory.buffer;
        const first = x.coordinator_wish_part_bytes(0) >>> 0, second = x.coordinator_wish_part_bytes(1) >>> 0;
        const bytes = new Uint8Array(first + second);
        bytes.set(new Uint8Array(memory, x.coordinator_wish_part(0) >>> 0, first));
        bytes.set(new Uint8Array(memory, x.coordinator_wish_part(1) >>> 0, second), first);
        return bytes;
    }
}
