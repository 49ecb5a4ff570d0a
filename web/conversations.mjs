// SPDX-License-Identifier: Apache-2.0
// Conversations, kept in this browser and nowhere else. localStorage holds a list and, by itself, each conversation:
//
//   cobord.chats      [{id, title, updated}], the newest first
//   cobord.chat.ID    {id, title, named, updated, settings, messages}
//   message           {role, text, state, eventId, ...}   state: done, streaming, stopped, interrupted, failed
//
// Other tabs write the same list: it is read anew before each change. Without storage (switched off) all lives as
// long as the page.

const LIST = "cobord.chats",
    ONE = "cobord.chat.",
    SETTINGS = "cobord.settings";
const TITLE_LENGTH_MAX = 60;

const memory = new Map(); // where there is no storage

// What a page of another version, or a person, left there may be anything.
function read(key, fallback) {
    try {
        return JSON.parse(localStorage.getItem(key)) ?? memory.get(key) ?? fallback;
    } catch {
        return memory.get(key) ?? fallback;
    }
}

// Result  false: there is no room, or no storage.
function write(key, value) {
    try {
        localStorage.setItem(key, JSON.stringify(value));
        memory.delete(key);
        return true;
    } catch {
        memory.set(key, value);
        return false;
    }
}

function remove(key) {
    memory.delete(key);
    try {
        localStorage.removeItem(key);
    } catch {
        // no storage
    }
}

export function list() {
    const found = read(LIST, []);
    return Array.isArray(found)
        ? found.filter((entry) => typeof entry?.id === "string" && typeof entry.title === "string")
        : [];
}

export function create() {
    return {
        id: makeId(),
        title: "New conversation",
        named: false,
        updated: Date.now(),
        settings: lastSettings(),
        messages: [],
    };
}

// randomUUID is not there over plain HTTP from another machine.
function makeId() {
    return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) =>
        byte.toString(16).padStart(2, "0"),
    ).join("");
}

export function load(id) {
    const found = read(ONE + id, null);
    if (!found || found.id !== id || !Array.isArray(found.messages)) return null;
    found.settings ??= {};
    found.messages = found.messages.filter(
        (m) => (m?.role === "user" || m?.role === "assistant") && typeof m.text === "string",
    );
    return found;
}

// Result  false: it is in this page only.
export function save(conversation) {
    conversation.updated = Date.now();
    const entry = {id: conversation.id, title: conversation.title, updated: conversation.updated};
    const kept = write(ONE + conversation.id, conversation);
    return write(LIST, [entry, ...list().filter((other) => other.id !== conversation.id)]) && kept;
}

// Without a new place in the list.
export function saveQuietly(conversation) {
    return list().some((entry) => entry.id === conversation.id)
        ? write(ONE + conversation.id, conversation)
        : true;
}

export function rename(conversation, title) {
    conversation.title = shorten(title) || conversation.title;
    conversation.named = true;
    write(ONE + conversation.id, conversation);
    write(
        LIST,
        list().map((entry) => (entry.id === conversation.id ? {...entry, title: conversation.title} : entry)),
    );
}

export function drop(id) {
    remove(ONE + id);
    write(
        LIST,
        list().filter((entry) => entry.id !== id),
    );
}

// The first line of the first question, until somebody names it.
export function giveTitle(conversation) {
    const first = conversation.messages.find((message) => message.role === "user");
    if (!conversation.named && first) conversation.title = shorten(first.text) || conversation.title;
}

function shorten(text) {
    const line = text.trim().split("\n", 1)[0].replace(/\s+/g, " ");
    return line.length > TITLE_LENGTH_MAX ? `${line.slice(0, TITLE_LENGTH_MAX - 1).trimEnd()}\u2026` : line;
}

// New conversations begin with what was set last.
export function lastSettings() {
    const found = read(SETTINGS, {});
    return found && typeof found === "object" && !Array.isArray(found) ? found : {};
}

export function keepSettings(settings) {
    write(SETTINGS, settings);
}

// Whether an event of `storage` is about conversations, and of which.
export function changed(event) {
    if (event.key === null || event.key === LIST) return {list: true, id: null};
    return {list: false, id: event.key.startsWith(ONE) ? event.key.slice(ONE.length) : null};
}
