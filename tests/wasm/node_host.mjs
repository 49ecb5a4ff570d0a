// SPDX-License-Identifier: Apache-2.0
/* A host for nodes of the module under Node, as docs/format/workers.md has it: the knot is a file, rows are maps,
 * the warden is a function. Commands come as lines of JSON on standard input, answers go to standard output:
 *
 *   {"do":"open","id":"station-0","kind":1,"module":PATH,"knot":PATH,"settings":{..},"warden":KIND}
 *   {"do":"call","id":"station-0","method":"POST","target":"/forward","headers":{..},"body":BASE64}
 *   {"do":"rows","id":..}   {"do":"row","id":..,"key":..,"number":..,"bytes":BASE64 or null}
 *   {"do":"export","id":..,"name":..,"arguments":[..]}   {"do":"fail","id":..,"reads":N}
 *
 * The rows of an id outlive its instance. `warden`: "right" answers from the file, "wrong" with one bit of each
 * answer changed, "gone" not at all. */
import fs from 'node:fs';
import readline from 'node:readline';

const DONE = 0, READ = 1, CALL = 2, REPLY = 3, ROW_PUT = 7, ROW_DELETE = 8, ROWS = 9, LOG = 10, SIZE = 11, TELL = 12;
const encoder = new TextEncoder(), decoder = new TextDecoder();
const allRows = new Map(); // by id: a map of "key number" to bytes

class Host {
    constructor({ id, kind, module, knot, settings, warden }) {
        this.x = new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync(module)), {}).exports;
        this.x._initialize?.();
        this.file = fs.openSync(knot, 'r');
        this.bytes = fs.fstatSync(this.file).size;
        this.warden = warden;
        this.rows = allRows.get(id) ?? allRows.set(id, new Map()).get(id);
        this.told = [];
        this.lines = [];
        this.calls = 0;
        this.readsThatFail = 0;
        const text = Object.entries(settings).map(([name, value]) => `${name}=${value}\n`).join('');
        this.start = this.x.memory.buffer.byteLength;
        this.error = this.x.node_open(kind, this.text(text));
        this.loop();
    }

    close() { fs.closeSync(this.file); }

    facts() {
        return { error: this.error, failed: this.x.node_failed_open(), memory: this.x.memory.buffer.byteLength,
                 start: this.start, told: this.told, lines: this.lines, calls: this.calls };
    }

    call({ method, target, headers = {}, body = '', gone = false, broken = false }) {
        const bytes = Buffer.from(body, 'base64');
        const lines = Object.entries({ 'content-length': bytes.length, ...headers });
        const head = `${method} ${target}\n` + lines.map(([name, value]) => `${name}: ${value}\n`).join('');
        this.reply = undefined;
        const error = this.x.node_request(this.text(head));
        if (error) return { error };
        const address = this.x.node_body(bytes.length) >>> 0;
        if (address) this.view(address, bytes.length).set(bytes);
        if (broken) this.x.node_failed(this.text('the line broke'));
        if (gone) this.x.node_gone();
        this.loop();
        return { ...this.reply, ...this.facts() };
    }

    // --- wishes ---

    loop() {
        for (;;) {
            const wishes = [];
            do wishes.push(this.wish(this.x.node_next(Date.now()))); while (this.x.node_more());
            if (wishes[0].kind === DONE) return;
            for (const wish of wishes) this.carryOut(wish);
        }
    }

    wish(kind) {
        const x = this.x;
        return { kind, offset: x.node_wish_offset(), address: x.node_wish_address() >>> 0,
                 bytes: x.node_wish_bytes() >>> 0, text: this.read(x.node_wish_text(), x.node_wish_text_bytes()),
                 allow: this.read(x.node_wish_allow(), x.node_wish_allow_bytes()),
                 answer: x.node_wish_answer() >>> 0, room: x.node_wish_room() >>> 0,
                 status: x.node_wish_status(), seconds: x.node_wish_seconds() };
    }

    carryOut(w) {
        switch (w.kind) {
        case READ: return this.readFile(w);
        case CALL: return this.askWarden(w);
        case REPLY:
            this.reply = { status: w.status, type: w.text, allow: w.allow, seconds: w.seconds,
                           body: Buffer.from(this.view(w.address, w.bytes)).toString('base64') };
            return undefined;
        case ROW_PUT: return void this.rows.set(rowName(w.text, w.offset), this.view(w.address, w.bytes).slice());
        case ROW_DELETE: return this.deleteRows(w.text, w.offset);
        case ROWS: return this.nextRow(w);
        case LOG: return void this.lines.push(w.text);
        case SIZE: return this.x.node_answer(1, this.bytes);
        case TELL: return void this.told.push(w.text.split('\n')[0]);
        default: throw new Error(`wish ${w.kind}`);
        }
    }

    readFile({ offset, address, bytes }) {
        if (this.readsThatFail > 0 && this.readsThatFail--) return this.x.node_failed(this.text('told to fail'));
        fs.readSync(this.file, this.view(address, bytes), 0, bytes, offset);
        return this.x.node_answer(1, bytes);
    }

    /* GET /knot only. */
    askWarden({ text, answer, room }) {
        this.calls++;
        const range = /^GET \/knot\?bytes=(\d+)-(\d+)\n/.exec(text);
        if (this.warden === 'gone') return this.x.node_failed(this.text('nobody there'));
        if (!range) return this.x.node_answer(404, 0);
        const first = Number(range[1]), bytes = Number(range[2]) - first + 1;
        if (bytes > room) return this.x.node_failed(this.text('a longer body'));
        const to = this.view(answer, bytes);
        fs.readSync(this.file, to, 0, bytes, first);
        if (this.warden === 'wrong') to[bytes >> 1] ^= 4;
        return this.x.node_answer(200, bytes);
    }

    deleteRows(key, number) {
        for (const name of this.rows.keys()) {
            const [k, n] = name.split(' ');
            if (k === key && Number(n) >= number) this.rows.delete(name);
        }
    }

    nextRow({ text, address, bytes }) {
        this.names ??= [...this.rows.keys()].filter(name => name.startsWith(text)).sort();
        const name = this.names.shift();
        if (name === undefined) {
            this.names = undefined;
            return this.x.node_answer(0, 0);
        }
        const row = this.rows.get(name);
        if (row.length > bytes) return this.x.node_failed(this.text('a longer row'));
        this.view(address, row.length).set(row);
        return this.x.node_answer(1, row.length);
    }

    // --- memory ---

    view(address, bytes) { return new Uint8Array(this.x.memory.buffer, address, bytes); }

    read(address, bytes) { return bytes ? decoder.decode(this.view(address >>> 0, bytes)) : ''; }

    text(text) {
        const bytes = encoder.encode(text);
        this.view(this.x.node_text(bytes.length) >>> 0, bytes.length).set(bytes);
        return bytes.length;
    }
}

/* Sorts like the key, then the number. */
function rowName(key, number) { return `${key} ${String(number).padStart(10, '0')}`; }

const hosts = new Map();
const commands = {
    open(c) {
        hosts.get(c.id)?.close();
        hosts.set(c.id, new Host(c));
        return hosts.get(c.id).facts();
    },
    call: c => hosts.get(c.id).call(c),
    rows: c => [...(allRows.get(c.id) ?? [])].map(([name, bytes]) =>
        [...name.split(' '), Buffer.from(bytes).toString('base64')]).sort(),
    row(c) {
        const rows = allRows.get(c.id), name = rowName(c.key, c.number);
        if (c.bytes === null) rows.delete(name);
        else rows.set(name, new Uint8Array(Buffer.from(c.bytes, 'base64')));
        return {};
    },
    export: c => ({ result: hosts.get(c.id).x[c.name](...c.arguments) }),
    fail(c) {
        hosts.get(c.id).readsThatFail = c.reads;
        return {};
    },
};

for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    console.log(JSON.stringify(commands[command.do](command)));
}
