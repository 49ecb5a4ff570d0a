// SPDX-License-Identifier: Apache-2.0
// Answers on their way, at most one for each conversation. They go on while another conversation, or the other
// view, is
// looked at. What has come is saved twice a second, with the id of its last event: a page that is loaded again in
// the midst of
// an answer goes on with it.
//
//   streaming --[DONE]--> done         --stop()--> stopped        --error--> failed
//      ^   `--page goes--> interrupted --page loaded again--> streaming

import {ApiError} from "./api.mjs";
import * as store from "./conversations.mjs";
import {requestFields} from "./settings.mjs";
import {streamAnswer} from "./stream.mjs";

const SAVE_MS = 500,
    BEAT_MS = 2500;

const runs = new Map(); // conversation id -> {controller, conversation, message, ...}

export const runOf = (id) => runs.get(id);

// `changed(run)` after each piece, `ended(run)` once.
export function begin(conversation, on) {
    const message = {role: "assistant", text: "", state: "streaming"};
    const body = requestOf(conversation);
    conversation.messages.push(message);
    return start(conversation, message, body, on);
}

export function goOn(conversation, message, on) {
    message.state = "streaming";
    delete message.error;
    return start(conversation, message, null, on);
}

export function stop(id) {
    runs.get(id)?.controller.abort();
}

// Its conversation is deleted: nothing of it is saved again.
export function forget(id) {
    const run = runs.get(id);
    if (!run) return;
    run.forgotten = true;
    run.controller.abort();
}

// What became of the last answer when its page went. One that another tab is at is written every half second: ask
// again
// after the milliseconds that come back (0: nothing to wait for).
export function settle(message) {
    if (message?.role !== "assistant" || message.state !== "streaming") return 0;
    const left = (message.beat ?? 0) + BEAT_MS - Date.now();
    if (left > 0) return Math.min(left, BEAT_MS);
    message.state = message.eventId ? "interrupted" : "stopped";
    return 0;
}

function requestOf(conversation) {
    const messages = conversation.messages
        .filter((m) => m.text)
        .map(({role, text}) => ({role, content: text}));
    if (conversation.settings.system) messages.unshift({role: "system", content: conversation.settings.system});
    return {
        model: "any",
        messages,
        stream: true,
        stream_options: {include_usage: true},
        ...requestFields(conversation.settings),
    };
}

function start(conversation, message, body, on) {
    const run = {
        conversation,
        message,
        on,
        controller: new AbortController(),
        began: performance.now(),
        resumed: body === null,
        pieces: 0,
        savedAt: 0,
    };
    runs.set(conversation.id, run);
    message.beat = Date.now();
    store.save(conversation);
    run.done = follow(run, body);
    return run;
}

async function follow(run, body) {
    const m = run.message;
    try {
        await streamAnswer(body, m.eventId ?? null, run.controller.signal, {
            chunk: (chunk, id) => takeChunk(run, chunk, id),
            lost: () => {
                m.lost = true;
                run.on.changed(run);
            },
            back: () => {
                delete m.lost;
                run.on.changed(run);
            },
        });
        m.state = "done";
    } catch (error) {
        endWith(run, error);
    }
    delete m.lost;
    delete m.beat;
    if (m.state !== "interrupted") runs.delete(run.conversation.id);
    run.kept = run.forgotten || store.save(run.conversation);
    run.on.ended(run);
}

function endWith(run, error) {
    const m = run.message;
    if (m.state === "interrupted") return;
    if (error.name === "AbortError") m.state = "stopped";
    else {
        m.state = "failed";
        const known = error instanceof ApiError;
        m.error = {
            words: known ? error.message : "The answer could not be read. See the browser's console.",
            retryable: known && error.retryable,
        };
        run.error = error;
        if (!known) console.error(error);
    }
}

function takeChunk(run, chunk, id) {
    const m = run.message,
        choice = chunk.choices?.[0];
    if (chunk.degraded) m.degraded = true;
    if (chunk.usage) takeUsage(run, chunk.usage);
    if (choice?.delta?.content) {
        run.firstAt ??= performance.now();
        run.lastAt = performance.now();
        run.pieces++;
        m.text += choice.delta.content;
        m.firstMs ??= run.firstAt - run.began;
        setRate(m, run, run.pieces);
    }
    if (choice?.finish_reason) m.finish = choice.finish_reason;
    if (id) m.eventId = id;
    saveNow(run);
    run.on.changed(run);
}

// Pieces are nearly tokens; at the end the server says how many there were.
function setRate(m, run, pieces) {
    const seconds = (run.lastAt - run.firstAt) / 1000;
    if (!run.counted) m.tokens = Math.max(m.tokens ?? 0, run.pieces);
    if (pieces > 4 && seconds > 0.2) m.rate = (pieces - 1) / seconds;
}

function takeUsage(run, usage) {
    const m = run.message;
    run.counted = true;
    m.tokens = usage.completion_tokens;
    m.prompt = usage.prompt_tokens;
    m.cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    if (run.firstAt && !run.resumed) setRate(m, run, m.tokens); // the rate of a part is of its pieces
}

function saveNow(run) {
    const now = performance.now();
    if (now - run.savedAt < SAVE_MS) return;
    run.savedAt = now;
    run.message.beat = Date.now();
    if (run.forgotten) return;
    store.saveQuietly(run.conversation);
}

// The page goes: what has come stays, to go on with.
export function interruptAll() {
    for (const run of runs.values()) {
        run.message.state = run.message.eventId ? "interrupted" : "stopped";
        store.saveQuietly(run.conversation);
        run.controller.abort();
    }
    runs.clear();
}
