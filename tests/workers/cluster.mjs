// SPDX-License-Identifier: Apache-2.0
/* Scripts of workers/ on the real runtime (workerd, through miniflare), offline, each on a port of its own.
 *
 *   node cluster.mjs DESCRIPTION.json
 *
 * The description (tests/system/_workers.py writes it):
 *   {packages, workers, module, persist, objects: [{key, path}], stays,
 *    scripts: [{name, main, class, port, vars, services, cache}]}
 * `packages` has node_modules, `workers` the scripts, `module` is the file they import as ./cobord.wasm, `persist` is
 * where R2, KV and SQLite are; `objects` are put into the bucket when they are not there yet; with
 * `stays` no object loses its memory by being idle; `cache` names a KV namespace.
 *
 * The first line that it prints is {"ready": {name: port}}. Then one JSON value a line on standard input is a
 * command, and one a line comes back: {"result": ...} or {"error": text}. At the end of the input everything stops. */
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import readline from 'node:readline';

const description = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const require = createRequire(path.join(description.packages, 'node_modules', 'x'));
const { Miniflare, Log, LogLevel } = require('miniflare');
const WebSocket = require('ws');

const PART_BYTES = 32 << 20; // what goes into R2 at once
const BUCKET = 'knots', KEEPER = 'keeper';
const DATE = '2026-04-26', FLAGS = ['enable_request_signal'];

/* A script and what it imports. */
function modulesOf(main, found = new Map()) {
    const file = path.join(description.workers, main);
    const text = fs.readFileSync(file, 'utf8');
    found.set(main, { type: 'ESModule', path: file, contents: text });
    for (const [, name] of text.matchAll(/from '\.\/([\w.]+)'/g)) {
        if (found.has(name)) continue;
        if (name.endsWith('.wasm')) found.set(name, wasm(name));
        else modulesOf(name, found);
    }
    return found;
}

function wasm(name) {
    const contents = fs.readFileSync(description.module);
    return { type: 'CompiledWasm', path: path.join(description.workers, name), contents };
}

/* A service binding: another script's name, or the address of something outside. */
function service(place) {
    return place.includes(':') ? { external: { address: place, http: {} } } : place;
}

function workerOf(script) {
    const services = Object.entries(script.services ?? {}).map(([name, place]) => [name, service(place)]);
    return {
        name: script.name, modules: [...modulesOf(script.main).values()], modulesRoot: description.workers,
        compatibilityDate: DATE, compatibilityFlags: FLAGS,
        bindings: script.vars, serviceBindings: Object.fromEntries(services),
        r2Buckets: { KNOT_BUCKET: BUCKET }, kvNamespaces: script.cache ? { EMBED_CACHE: script.cache } : {},
        durableObjects: {
            NODE: { className: script.class, useSQLite: true, unsafePreventEviction: Boolean(description.stays) },
        },
        unsafeDirectSockets: [{ host: '127.0.0.1', port: script.port ?? 0 }],
    };
}

/* Does nothing, and has what the commands are about: the bucket, and each KV namespace by its name. */
function keeper() {
    const caches = [...new Set(description.scripts.map(script => script.cache).filter(Boolean))];
    return {
        name: KEEPER, modules: true, script: 'export default {};', compatibilityDate: DATE,
        r2Buckets: { KNOT_BUCKET: BUCKET }, kvNamespaces: caches,
    };
}

function start() {
    const under = name => path.join(description.persist, name);
    return new Miniflare({
        workers: [keeper(), ...description.scripts.map(workerOf)], cf: false,
        host: '127.0.0.1', port: 0, inspectorPort: 0,
        r2Persist: under('r2'), kvPersist: under('kv'), durableObjectsPersist: under('do'),
        telemetry: { enabled: false }, log: new Log(LogLevel.WARN), verbose: false,
    });
}

/* --- the bucket --- */

async function seed(bucket, { key, path: file }) {
    const bytes = fs.statSync(file).size;
    const there = await bucket.head(key);
    if (there?.size === bytes) return;
    const upload = await bucket.createMultipartUpload(key), parts = [], handle = fs.openSync(file, 'r');
    for (let at = 0; at < bytes; at += PART_BYTES) {
        const part = new Uint8Array(Math.min(PART_BYTES, bytes - at));
        if (fs.readSync(handle, part, 0, part.length, at) !== part.length) throw new Error(`${file} became shorter`);
        parts.push(await upload.uploadPart(parts.length + 1, part));
    }
    fs.closeSync(handle);
    await upload.complete(parts);
}

/* --- memory --- */

/* One call of the inspector's protocol; its answer. */
function inspect(url, method) {
    return new Promise((resolve, reject) => {
        const socket = new WebSocket(url);
        socket.on('open', () => socket.send(JSON.stringify({ id: 1, method })));
        socket.on('error', reject);
        socket.on('message', text => {
            const message = JSON.parse(text);
            if (message.id !== 1) return;
            socket.close();
            if (message.error) reject(new Error(message.error.message));
            else resolve(message.result);
        });
    });
}

/* Bytes of each isolate's JavaScript: heap and buffers. Memory of WebAssembly is not among them. */
async function heaps() {
    const url = new URL(await mf.getInspectorURL());
    url.protocol = 'http:';
    const targets = await (await fetch(new URL('/json', url))).json(), found = {};
    for (const target of targets) {
        const name = target.id.replace(/^core:user:/, '');
        if (!description.scripts.some(script => script.name === name)) continue;
        const usage = await inspect(target.webSocketDebuggerUrl, 'Runtime.getHeapUsage');
        found[name] = usage.usedSize + (usage.backingStorageSize ?? 0);
    }
    return found;
}

/* --- commands --- */

const bytesOf = text => new Uint8Array(Buffer.from(text, 'base64'));
const textOf = bytes => bytes === null ? null : Buffer.from(bytes).toString('base64');
const bucketOf = () => mf.getR2Bucket('KNOT_BUCKET', KEEPER);
const cacheOf = name => mf.getKVNamespace(name, KEEPER);

const commands = {
    heaps,
    async kv_list({ cache, prefix }) {
        const kv = await cacheOf(cache), names = [];
        for (let cursor, more = true; more;) {
            const part = await kv.list({ prefix, cursor });
            names.push(...part.keys.map(key => key.name));
            more = !part.list_complete;
            cursor = part.cursor;
        }
        return names;
    },
    kv_get: async ({ cache, key }) => textOf(await (await cacheOf(cache)).get(key, 'arrayBuffer')),
    kv_put: async ({ cache, key, value }) => { await (await cacheOf(cache)).put(key, bytesOf(value)); },
    kv_delete: async ({ cache, key }) => { await (await cacheOf(cache)).delete(key); },
    r2_put: async ({ key, value }) => { await (await bucketOf()).put(key, bytesOf(value)); },
    r2_delete: async ({ key }) => { await (await bucketOf()).delete(key); },
    r2_seed: async object => { await seed(await bucketOf(), object); },
};

async function obey(line) {
    try {
        const { do: name, ...arguments_ } = JSON.parse(line);
        return { result: await commands[name](arguments_) ?? null };
    } catch (error) {
        return { error: String(error?.stack ?? error) };
    }
}

const say = value => process.stdout.write(JSON.stringify(value) + '\n');

const mf = start();
try {
    await mf.ready;
    const bucket = await bucketOf();
    for (const object of description.objects) await seed(bucket, object);
    const ports = {};
    for (const { name } of description.scripts) ports[name] = Number((await mf.unsafeGetDirectURL(name)).port);
    say({ ready: ports });
    for await (const line of readline.createInterface({ input: process.stdin })) say(await obey(line));
} finally {
    await mf.dispose();
}
