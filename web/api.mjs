// SPDX-License-Identifier: Apache-2.0
// Calls of this server. Every failure becomes an ApiError with words for people; a 401 asks for the key and tries
// again.

import {closeDialog, h, openDialog} from "./dom.mjs";

const KEY = "cobord.key";
const GONE = `The server at ${globalThis.location?.host} does not answer. Is it still running?`;
let secret = readKey();
let asking = null;

export class ApiError extends Error {
    // kind: gone, key, forbidden, busy, draining, not-ready, refused, failed, lost
    constructor(kind, words, more = {}) {
        super(words);
        Object.assign(this, {kind, status: 0, code: null, param: null, retryable: false, retryAfter: 0}, more);
    }
}

export const key = () => secret;

// A key lives as long as the tab, or in this browser when that was wished.
function readKey() {
    try {
        return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
    } catch {
        return "";
    }
}

function keepKey(value, stays) {
    secret = value;
    try {
        sessionStorage.setItem(KEY, value);
        if (stays) localStorage.setItem(KEY, value);
        else localStorage.removeItem(KEY);
    } catch {
        // storage is switched off: the key lives as long as the page
    }
}

function headers(more) {
    return {...(secret ? {Authorization: `Bearer ${secret}`} : {}), ...more};
}

// A Response with status 200; else an ApiError. `options` are fetch's, and `quiet`: nobody is asked for a key, or told
// that the server is gone.
export async function call(path, options = {}) {
    for (;;) {
        let response;
        const sent = secret;
        try {
            response = await fetch(path, {...options, headers: headers(options.headers), cache: "no-store"});
        } catch (error) {
            if (error.name === "AbortError") throw error;
            if (!options.quiet) dispatchEvent(new Event("cobord-gone"));
            throw new ApiError("gone", GONE, {
                retryable: true,
            });
        }
        if (response.ok) return response;
        const error = await readError(response);
        if (response.status !== 401 || options.quiet) throw error;
        if (sent === secret && !(await askKey(error))) throw error;
    }
}

export async function fetchJson(path, options = {}) {
    return (await call(path, options)).json();
}

// What GET /ready says, also with 503; null when it may not be asked.
export async function readiness() {
    try {
        const response = await fetch("/ready", {headers: headers(), cache: "no-store"});
        return response.ok || response.status === 503 ? await response.json() : null;
    } catch {
        throw new ApiError("gone", GONE, {retryable: true});
    }
}

async function readError(response) {
    let error = {};
    try {
        error = (await response.json()).error ?? {};
    } catch {
        // no JSON: a proxy's words, which are not ours to show
    }
    if (typeof error === "string") error = {message: error};
    return errorOf(error, response.status, Number(response.headers.get("Retry-After")) || 0);
}

// The server's own words, with what to do when it is plain. Also of an error in the midst of a stream (status 0).
export function errorOf(
    {message, code, param, retryable, n_prompt_tokens: prompt, n_ctx: room},
    status,
    retryAfter = 0,
) {
    const more = {status, code, param, retryable: Boolean(retryable), retryAfter};
    const text = message ? sentence(message) : `The server answered with status ${status}.`;
    const soon = retryAfter ? ` Try again in ${retryAfter} s.` : " Try again in a moment.";
    switch (code) {
        case "queue_full":
            return new ApiError("busy", `The server is busy: its queue is full.${soon}`, more);
        case "shutting_down":
            return new ApiError(
                "draining",
                "The server is shutting down and takes no new questions. " + "Try again when it is back.",
                more,
            );
        case "not_ready":
            return new ApiError("not-ready", `The cluster is not complete. ${text}`, more);
        case "context_length_exceeded":
            return new ApiError(
                "refused",
                prompt && room
                    ? `This conversation has ${prompt} tokens, and the model has room for ${room}. ` +
                          "Begin a new one, or shorten it."
                    : text,
                more,
            );
        case "rate_limit_exceeded":
            return new ApiError("busy", `${text}${soon}`, more);
        default:
            if (status === 401) return new ApiError("key", text, more);
            if (status === 403) return new ApiError("forbidden", text, more);
            if (status === 429) return new ApiError("busy", `${text}${soon}`, more);
            return new ApiError(status >= 400 && status < 500 ? "refused" : "failed", text, more);
    }
}

function sentence(text) {
    const first = text.charAt(0).toUpperCase() + text.slice(1);
    return /[.!?]$/.test(first) ? first : `${first}.`;
}

// One dialog, however many calls were refused. Resolves to whether there is a new key.
function askKey(error) {
    asking ??= showKeyDialog(error).finally(() => {
        asking = null;
    });
    return asking;
}

function showKeyDialog(error) {
    return new Promise((resolve) => {
        let entered = false;
        const field = h("input", {
            id: "key",
            type: "password",
            autocomplete: "off",
            spellcheck: "false",
            required: true,
            "aria-describedby": "key-hint",
        });
        const stays = h("input", {id: "key-stays", type: "checkbox"});
        const form = h(
            "form",
            {
                id: "key-form",
                class: "field",
                onsubmit: (event) => {
                    event.preventDefault();
                    keepKey(field.value.trim(), stays.checked);
                    entered = true;
                    closeDialog(dialog);
                },
            },
            h("label", {for: "key"}, "API key"),
            field,
            h(
                "p",
                {class: "hint", id: "key-hint"},
                secret
                    ? `The key was not taken. ${error.message}`
                    : "This server answers to those who have a key.",
            ),
            h("label", {class: "check"}, stays, " Keep it in this browser"),
        );
        const dialog = openDialog("A key, please", form, [
            h("button", {class: "button primary", type: "submit", form: "key-form"}, "Use this key"),
        ]);
        dialog.addEventListener("close", () => resolve(entered));
        field.focus();
    });
}
