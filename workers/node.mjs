// SPDX-License-Identifier: Apache-2.0
/* One instance of the module that is one node: carries out its wishes with the bindings of the script. The
 * wishes, their fields and what is said of them are in docs/format/workers.md; nothing here looks at a byte that
 * it moves. */
import module from './cobord.wasm';
import { readAway, readInto, readSome, writeFrom } from './stream.mjs';
import { targetOf } from './target.mjs';

const DONE = 0, REPLY = 3;
const TOGETHER_MAX = 6; // connections that a Worker may have waiting
const CALL_MS = 10_000; // until a warden answers, or the store is read instead
const STREAMED_BYTES = 256 << 10;
const U32_MAX = 0xffffffff;
const TABLE = 'CREATE TABLE IF NOT EXISTS node'
    + ' (key TEXT, number INTEGER, bytes BLOB, PRIMARY KEY (key, number))';
const NAMES = 'SELECT key, number FROM node WHERE substr(key, 1, ?) = ? ORDER BY key, number';
const ROW = 'SELECT bytes FROM node WHERE key = ? AND number = ?';

const encoder = new TextEncoder(), decoder = new TextDecoder();

export class Node {
    #x = new WebAssembly.Instance(module, {}).exports;
    #kind; #env; #sql; #rows; #respond; #refused;

    /* `kind` is the number of its role; `sql` the SQLite storage of the object it lives in. */
    constructor(kind, env, sql) {
        this.#kind = kind;
        this.#env = env;
        this.#sql = sql;
        this.#x._initialize?.();
    }

    /* Everything that a node does before its first request. Afterwards `failed` says whether it can serve. */
    async open() {
        this.#sql.exec(TABLE);
        const error = this.#x.node_open(this.#kind, this.#giveText(settings(this.#env)));
        if (error) throw new Error(`error ${error} of node_open`);
        await this.#loop();
    }

    get failed() { return this.#x.node_failed_open() !== 0; }

    /* Calls respond(Response) once; the work goes on after that until the promise is done. `ahead` is the body when it
     * was read already: {bytes} or {error}. */
    async serve(request, ahead, respond) {
        const head = this.#giveText(headOf(request));
        if (!head) return respond(new Response(null, { status: 431 }));
        this.#respond = response => { this.#refused.then(() => respond(response)); };
        this.#x.node_request(head);
        const gone = () => this.#x.node_gone();
        request.signal?.addEventListener('abort', gone);
        if (request.signal?.aborted) gone(); // while others had their turn
        try {
            await this.#takeBody(request, ahead);
            await this.#loop();
        } finally {
            request.signal?.removeEventListener('abort', gone);
        }
    }

    /* The answer to a request for which there is no room. */
    full() {
        this.#x.node_full();
        return this.#response(this.#wish(undefined));
    }

    // --- the loop ---

    async #loop() {
        for (;;) {
            const wishes = this.#next();
            if (wishes[0].kind === DONE) return;
            if (wishes[0].kind === REPLY) await this.#reply(wishes[0]);
            else if (wishes[0].kind in this.#immediate) this.#immediate[wishes[0].kind](wishes[0]);
            else for (const came of await this.#together(wishes)) this.#say(came);
        }
    }

    #next() {
        const wishes = [];
        do wishes.push(this.#wish(this.#x.node_next(Date.now()))); while (this.#x.node_more());
        return wishes;
    }

    /* The fields of the wish that the module has just made; they stand until the next call only. */
    #wish(kind) {
        const x = this.#x;
        return {
            kind, offset: x.node_wish_offset(), address: x.node_wish_address() >>> 0, bytes: x.node_wish_bytes() >>> 0,
            text: this.#text(x.node_wish_text(), x.node_wish_text_bytes()),
            allow: this.#text(x.node_wish_allow(), x.node_wish_allow_bytes()),
            answer: x.node_wish_answer() >>> 0, room: x.node_wish_room() >>> 0,
            status: x.node_wish_status(), seconds: x.node_wish_seconds(),
        };
    }

    async #together(wishes) {
        const came = [];
        for (let at = 0; at < wishes.length; at += TOGETHER_MAX)
            came.push(...await Promise.all(wishes.slice(at, at + TOGETHER_MAX).map(wish => this.#carryOut(wish))));
        return came;
    }

    /* [status, bytes], or the text of an error. */
    async #carryOut(wish) {
        try {
            return await this.#slow[wish.kind](wish);
        } catch (error) {
            return String(error?.message ?? error);
        }
    }

    #say(came) {
        if (typeof came === 'string') this.#x.node_failed(this.#giveText(came.slice(0, 200)));
        else this.#x.node_answer(...came);
    }

    // --- wishes that are over at once, by their number: rows without an await between them are one transaction ---

    #immediate = {
        7: ({ text, offset, address, bytes }) => this.#sql.exec( // ROW_PUT
            'INSERT OR REPLACE INTO node VALUES (?, ?, ?)', text, offset, this.#copy(address, bytes)),
        8: ({ text, offset }) => // ROW_DELETE
            this.#sql.exec('DELETE FROM node WHERE key = ? AND number >= ?', text, offset),
        10: ({ text }) => console.error(text), // LOG
        12: ({ text }) => { // TELL
            this.#callWarden(text).then(answer => answer.body?.cancel()).catch(() => {});
        },
    };

    #callWarden(text, body) {
        const { method, target, headers } = headIn(text), signal = AbortSignal.timeout(CALL_MS);
        const warden = this.#env.LAYER_WARDEN ?? this.#env.VOCAB_WARDEN;
        return warden.fetch(`http://warden${target}`, { method, headers, body, signal });
    }

    /* A large body is streamed out of the module's memory, which has to wait for that. It waits for nobody who still
     * sends a body that was refused: he gets his answer behind it. */
    async #reply(wish) {
        if (wish.bytes < STREAMED_BYTES || !wish.address) {
            this.#respond(this.#response(wish));
            return;
        }
        const { readable, writable } = new FixedLengthStream(wish.bytes);
        this.#respond(this.#response(wish, readable));
        await writeFrom(this.#x.memory, wish.address, wish.bytes, writable.getWriter());
    }

    #response({ status, text, allow, seconds, address, bytes }, body) {
        const headers = new Headers();
        if (text) headers.set('Content-Type', text);
        if (allow) headers.set('Allow', allow);
        if (seconds) headers.set('Retry-After', String(seconds));
        return new Response(body ?? (address ? this.#copy(address, bytes) : null), { status, headers });
    }

    // --- wishes that take time, by their number ---

    #slow = {
        1: async ({ offset, address, bytes }) => { // READ
            const object = await this.#env.KNOT_BUCKET.get(this.#env.KNOT_KEY, { range: { offset, length: bytes } });
            if (!object) throw new Error(this.#noObject());
            return this.#found(await readInto(object.body, this.#x.memory, address, bytes), bytes);
        },
        2: async wish => { // CALL
            const body = wish.bytes ? this.#copy(wish.address, wish.bytes) : undefined;
            const answer = await this.#callWarden(wish.text, body);
            const came = await readInto(answer.body, this.#x.memory, wish.answer, wish.room);
            return [answer.status, within(came, wish.room)];
        },
        4: async ({ text, address, bytes }) => { // GET
            const value = await this.#env.EMBED_CACHE.get(text, 'arrayBuffer');
            if (!value) return [0, 0];
            if (value.byteLength <= bytes) this.#place(value, address);
            return [1, value.byteLength];
        },
        5: async ({ text, address, bytes, seconds }) => { // PUT
            await this.#env.EMBED_CACHE.put(text, this.#copy(address, bytes), { expirationTtl: seconds });
            return [1, 0];
        },
        6: async ({ text }) => { // DELETE
            await this.#env.EMBED_CACHE.delete(text);
            return [1, 0];
        },
        9: async ({ text, address, bytes }) => { // ROWS
            this.#rows ??= [...this.#sql.exec(NAMES, text.length, text)];
            const row = this.#rows.shift();
            if (!row) {
                this.#rows = undefined;
                return [0, 0];
            }
            const found = this.#sql.exec(ROW, row.key, row.number).one().bytes;
            within(found.byteLength, bytes);
            return this.#place(found, address);
        },
        11: async () => { // SIZE
            const object = await this.#env.KNOT_BUCKET.head(this.#env.KNOT_KEY);
            if (!object) throw new Error(this.#noObject());
            return [1, object.size];
        },
    };

    #noObject() { return `${this.#env.KNOT_KEY} is not in the bucket`; }

    #found(came, wanted) {
        if (came !== wanted) throw new Error(`${Math.min(came, wanted)} bytes came instead of ${wanted}`);
        return [1, came];
    }

    // --- requests ---

    async #takeBody(request, ahead) {
        const length = request.headers.get('content-length'), { body } = request;
        const most = this.#x.node_body_max() >>> 0; // 0: it is refused already
        this.#refused = Promise.resolve();
        try {
            if (ahead) this.#takeWhole(ahead.bytes ?? new Uint8Array(), ahead.error);
            else if (body && length === null && most) this.#takeWhole(await readSome(body, most));
            else await this.#takeAnnounced(body, body ? Number(length) : 0);
        } catch (error) {
            this.#say(String(error?.message ?? error));
        }
    }

    #takeWhole(bytes, error) {
        const address = this.#x.node_body(bytes.length) >>> 0;
        if (error) throw new Error(error);
        if (address) this.#place(bytes, address);
    }

    async #takeAnnounced(body, bytes) {
        const address = this.#x.node_body(Math.min(bytes, U32_MAX)) >>> 0;
        if (!address && body) this.#refused = readAway(body).catch(() => {});
        else if (bytes) this.#found(await readInto(body, this.#x.memory, address, bytes), bytes);
    }

    // --- bytes and texts in the module's memory ---

    #place(bytes, address) {
        new Uint8Array(this.#x.memory.buffer, address, bytes.byteLength).set(new Uint8Array(bytes));
        return [1, bytes.byteLength];
    }

    #copy(address, bytes) { return this.#x.memory.buffer.slice(address, address + bytes); }

    #text(address, bytes) {
        return bytes ? decoder.decode(new Uint8Array(this.#x.memory.buffer, address >>> 0, bytes)) : '';
    }

    /* For the next call: how many bytes it has; 0 when there is no room for it. */
    #giveText(text) {
        const bytes = encoder.encode(text), address = this.#x.node_text(bytes.length) >>> 0;
        if (!address) return 0;
        this.#place(bytes, address);
        return bytes.length;
    }
}

function within(came, room) {
    if (came > room) throw new Error(`more than ${room} bytes came`);
    return came;
}

/* A line for each variable, and for each binding that is there. */
function settings(env) {
    const line = ([name, value]) => `${name}=${typeof value === 'string' ? value : '[binding]'}\n`;
    return Object.entries(env).map(line).join('');
}

function headOf(request) {
    let head = `${request.method} ${targetOf(request)}\n`;
    for (const [name, value] of request.headers) head += `${name}: ${value}\n`;
    return head;
}

function headIn(text) {
    const [first, ...lines] = text.trimEnd().split('\n'), [method, target] = first.split(' ');
    return { method, target, headers: lines.map(line => line.split(/: (.*)/s, 2)) };
}
