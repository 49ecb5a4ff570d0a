// SPDX-License-Identifier: Apache-2.0
// An answer as it comes: server-sent events, and what happens when the line breaks in the midst of them. Events
// have ids;
// with the last one the server goes on where it was, also one that was killed and started again (docs/api.md).

import {ApiError, call, errorOf} from "./api.mjs";

const PATH = "/v1/chat/completions";
const PATIENCE_MS = 120000,
    FIRST_WAIT_MS = 400,
    WAIT_MS_MAX = 5000;
const AWAY = new Set(["gone", "draining", "not-ready"]);
const LOST = "The connection was lost in the midst of this answer, and the server cannot go on with it.";

// `body`: a request, or null to go on behind `lastId`. `on`: chunk(json, id), lost(), back().
// Resolves when all has come; rejects with an ApiError, or an AbortError when `signal` ended it.
export async function streamAnswer(body, lastId, signal, on) {
    const line = {id: lastId, lostAt: 0, waitMs: FIRST_WAIT_MS};
    for (let first = body !== null; ; first = false) {
        try {
            const options = first
                ? {method: "POST", body: JSON.stringify(body), headers: {"Content-Type": "application/json"}}
                : {headers: {"Last-Event-ID": line.id}};
            const response = await call(PATH, {...options, signal});
            if (await readEvents(response, line, on)) return;
            throw new ApiError("lost", LOST, {retryable: true});
        } catch (error) {
            await bePatient(error, line, first, on);
            await pause(line.waitMs, signal);
            line.waitMs = Math.min(2 * line.waitMs, WAIT_MS_MAX);
        }
    }
}

// Throws what cannot be helped by trying again.
async function bePatient(error, line, first, on) {
    if (error.name === "AbortError") throw error;
    const broken = error.kind === "lost";
    const away = AWAY.has(error.kind) && !first && error.status !== 0;
    if (!broken && !away && !(error.kind === "gone" && !first)) throw streamGone(error);
    if (!line.id) throw broken ? new ApiError("lost", LOST, {retryable: true}) : error;
    if (!line.lostAt) on.lost();
    line.lostAt ||= performance.now();
    if (performance.now() - line.lostAt > PATIENCE_MS)
        throw new ApiError("gone", "The server did not come back. What it said so far is above.", {
            retryable: true,
        });
}

function streamGone(error) {
    return error.code === "stream_not_found" ? new ApiError("lost", LOST, {status: error.status}) : error;
}

// Result  true: the answer is complete.
async function readEvents(response, line, on) {
    for await (const {id, data} of serverEvents(response.body)) {
        if (data === "[DONE]") return true;
        const chunk = JSON.parse(data);
        if (chunk.error) throw errorOf(chunk.error, 0);
        if (id && id !== line.id) takePlace(line, id, on);
        on.chunk(chunk, line.id);
    }
    return false;
}

// One more piece: whatever was broken is no longer.
function takePlace(line, id, on) {
    line.id = id;
    if (!line.lostAt) return;
    line.lostAt = 0;
    line.waitMs = FIRST_WAIT_MS;
    on.back();
}

// Events of a body: {id, data}. Comments, which keep the line awake, are passed over.
export async function* serverEvents(body) {
    const reader = body.getReader(),
        decoder = new TextDecoder();
    let rest = "",
        event = {id: null, data: []};
    try {
        for (;;) {
            const {value, done} = await reader.read().catch(explain);
            const lines = (rest + (done ? "" : decoder.decode(value, {stream: true}))).split("\n");
            rest = lines.pop();
            for (const line of lines) {
                const text = line.endsWith("\r") ? line.slice(0, -1) : line;
                if (text) takeField(event, text);
                else if (event.data.length) yield {id: event.id, data: event.data.join("\n")};
                if (!text) event = {id: null, data: []};
            }
            if (done) return;
        }
    } finally {
        reader.cancel().catch(() => {});
    }
}

function explain(error) {
    throw error.name === "AbortError" ? error : new ApiError("lost", LOST, {retryable: true});
}

function takeField(event, line) {
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") event.data.push(value);
    else if (name === "id") event.id = value;
}

function pause(ms, signal) {
    return new Promise((resolve, reject) => {
        const stop = () => {
            clearTimeout(timer);
            reject(new DOMException("stopped", "AbortError"));
        };
        const timer = setTimeout(() => {
            signal.removeEventListener("abort", stop);
            resolve();
        }, ms);
        if (signal.aborted) stop();
        else signal.addEventListener("abort", stop, {once: true});
    });
}
