// SPDX-License-Identifier: Apache-2.0
/* The front of a script: what the outside reaches. It answers GET /health itself, so that a node under
 * load is alive, and passes everything else to the script's one object, which computes. */
import { targetOf } from './target.mjs';

const HEALTH = '{"status":"ok"}';
const GONE = JSON.stringify({ error: {
    message: 'try again: the node began anew while it answered', type: 'node_error', param: null, code: 'again',
    retryable: true } });

function isHealth(request) {
    const reading = request.method === 'GET' || request.method === 'HEAD';
    return reading && targetOf(request).split('?', 1)[0] === '/health';
}

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
