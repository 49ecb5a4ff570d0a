// SPDX-License-Identifier: Apache-2.0
/* The front of a script: what the outside reaches. It answers GET /health itself, so that a node under
 * load is alive, and passes everything else to the script's one object, which computes. Of a node it also
 * refuses whoever does not have the cluster's key, so that nobody else takes a place in the object's queue. */
import { readAway } from './stream.mjs';
import { targetOf } from './target.mjs';

const HEALTH = '{"status":"ok"}';
const GONE = JSON.stringify({ error: {
    message: 'try again: the node began anew while it answered', type: 'node_error', param: null, code: 'again',
    retryable: true } });

const LOCKED = JSON.stringify({ error: {
    message: 'Authorization: Bearer KEY is missing, or has another key', type: 'node_error', param: null, code: 'key',
    retryable: false } });

/* In a time that depends on the length of `given` only. */
function isKey(key, given) {
    let differs = key.length ^ given.length;
    for (let i = 0; i < given.length; i++) differs |= given.charCodeAt(i) ^ key.charCodeAt(i % key.length);
    return differs === 0;
}

function isLocked(request, key) {
    const [, given] = /^bearer +(.*?)[ \t]*$/i.exec(request.headers.get('Authorization') ?? '') ?? [];
    return Boolean(key) && !isKey(key, given ?? '');
}

const isHealthPath = request => targetOf(request).split('?', 1)[0] === '/health';

function isHealth(request) {
    return (request.method === 'GET' || request.method === 'HEAD') && isHealthPath(request);
}

/* As the module says it: that path wants no key, whatever the method. */
const notHealth = method => JSON.stringify({ error: {
    message: `/health takes GET, HEAD, not ${method}`, type: 'node_error', param: null, code: 'usage',
    retryable: false } });

/* As the module's own answers (serve_cors.c); nodes have no CORS_ORIGINS. */
function forPages(request, env) {
    const list = env.CORS_ORIGINS, origin = request.headers.get('Origin');
    if (!list) return {};
    const answer = list === '*' ? '*' : list.split(',').includes(origin) ? origin : null;
    return { Vary: 'Origin', ...(origin && answer ? { 'Access-Control-Allow-Origin': answer } : {}) };
}

const json = (text, headers, status) => new Response(text, { status,
    headers: { 'Content-Type': 'application/json', ...headers } });

export const front = {
    async fetch(request, env) {
        if (isHealth(request)) return json(HEALTH, forPages(request, env), 200);
        try {
            return await env.NODE.get(env.NODE.idFromName('node')).fetch(request);
        } catch (error) {
            console.error(`the object did not answer: ${error?.message ?? error}`);
            return json(GONE, { 'Retry-After': '1', ...forPages(request, env) }, 503);
        }
    },
};

/* Who sends first listens afterwards. */
export const nodeFront = {
    async fetch(request, env, context) {
        if (isHealth(request) || !isLocked(request, env.CLUSTER_KEY)) return front.fetch(request, env, context);
        if (request.body) await readAway(request.body).catch(() => {});
        if (isHealthPath(request)) return json(notHealth(request.method), { Allow: 'GET, HEAD' }, 405);
        return json(LOCKED, { 'WWW-Authenticate': 'Bearer' }, 401);
    },
};
