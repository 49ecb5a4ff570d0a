// SPDX-License-Identifier: Apache-2.0
// What is around both views: which one is shown (#chat, #cluster), light or dark, how the server is, the shortcuts.
// A view is mounted when it is first looked at, and the cluster's unmounted when it no longer is, so that it asks
// nothing.

import {ApiError, fetchJson, key, readiness} from "./api.mjs";
import * as chat from "./chat.mjs";
import {h, openDialog, say} from "./dom.mjs";

const byId = (id) => document.getElementById(id);
const THEMES = [null, "light", "dark"];
const THEME_ICONS = {null: "auto", light: "sun", dark: "moon"};
const THEME_WORDS = {null: "as the system", light: "light", dark: "dark"};
const POLL_MS = 10000,
    POLL_GONE_MS = 3000;

// ---- Views ----

const views = {
    chat: async () => chat,
    cluster: () => import("./cluster.mjs"),
};
const context = {fetchJson, key, say};
let shown = null;

async function showView() {
    const name = location.hash === "#cluster" ? "cluster" : "chat";
    if (shown?.name === name) return;
    const before = shown;
    shown = {name};
    for (const each of Object.keys(views)) {
        byId(each).hidden = each !== name;
        if (each === name) byId(`tab-${each}`).setAttribute("aria-current", "page");
        else byId(`tab-${each}`).removeAttribute("aria-current");
    }
    document.title = name === "chat" ? "Cobord" : "Cluster - Cobord";
    byId("menu").hidden = name !== "chat";
    if (before?.name === "cluster") (await views.cluster()).unmount();
    (await views[name]()).mount(byId(name), context);
}

// ---- Light and dark ----

function readTheme() {
    try {
        return localStorage.getItem("cobord.theme");
    } catch {
        return null;
    }
}

function drawTheme() {
    const theme = readTheme(),
        label = `Colours: ${THEME_WORDS[theme]}`;
    byId("theme-icon").setAttribute("href", `#i-${THEME_ICONS[theme]}`);
    byId("theme").setAttribute("aria-label", label);
    byId("theme").title = label;
}

function nextTheme() {
    const theme = THEMES[(THEMES.indexOf(readTheme()) + 1) % THEMES.length];
    try {
        if (theme) localStorage.setItem("cobord.theme", theme);
        else localStorage.removeItem("cobord.theme");
    } catch {
        return; // storage is switched off: as the system
    }
    dispatchEvent(new Event("cobord-theme"));
    drawTheme();
    say(`Colours ${THEME_WORDS[theme]}`);
}

// ---- How the server is ----

let model = null,
    timer = 0;

// At the first time somebody may be asked for a key, later not.
async function lookAtServer(quiet = true) {
    let shows;
    clearTimeout(timer);
    try {
        model ??= (await fetchJson("/v1/models", {quiet})).data[0];
        shows = describe(await readiness());
    } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (error.kind === "gone") model = null; // it may come back with another
        shows = error.kind === "gone" ? ["gone", "not reachable"] : ["unknown", wordsFor(error)];
    }
    drawServer(...shows);
    timer = setTimeout(() => lookAtServer(), document.hidden || shows[0] !== "gone" ? POLL_MS : POLL_GONE_MS);
}

const wordsFor = (error) => (error.kind === "key" ? "needs a key" : "no answer");

// The state, and words for it.
function describe(ready) {
    if (!ready) return ["unknown", "needs a key"];
    if (ready.status === "shutting down") return ["gone", "shutting down"];
    if (ready.status !== "ready") return ["not-ready", `not complete: ${ready.missing}`];
    return ready.queued ? ["busy", `${ready.queued} waiting`] : ["ready", model.id];
}

function drawServer(state, text) {
    const place = byId("server");
    place.dataset.state = state;
    place.title = model ? `${model.id}: ${model.context_length} tokens of context` : "";
    if (byId("server-text").textContent !== text) byId("server-text").textContent = text;
    if (model) chat.showModel(model);
}

// ---- Shortcuts ----

const SHORTCUTS = [
    ["Send the message", "Enter"],
    ["A new line in the message", "Shift Enter"],
    ["Stop the answer", "Esc"],
    ["New conversation", "Alt N"],
    ["Conversation above, below", "Alt \u2191 \u2193"],
    ["To the message field", "Alt M"],
    ["Answer again", "Alt R"],
    ["Copy the last answer", "Alt C"],
    ["Settings", "Alt S"],
    ["The other view", "Alt V"],
    ["This list", "Ctrl /"],
];

function showShortcuts() {
    if (document.querySelector("dialog[open]")) return;
    const rows = SHORTCUTS.map(([what, keys]) =>
        h(
            "div",
            {},
            h("dt", {}, what),
            h(
                "dd",
                {},
                keys.split(" ").map((k) => h("kbd", {}, k)),
            ),
        ),
    );
    openDialog("Keyboard shortcuts", h("dl", {class: "shortcuts"}, rows));
}

function pressed(event) {
    if ((event.ctrlKey || event.metaKey) && event.key === "/") return take(event, showShortcuts);
    if (!event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
    if (event.code === "KeyV")
        return take(event, () => {
            location.hash = shown?.name === "chat" ? "#cluster" : "#chat";
        });
    const act = shown?.name === "chat" && chat.SHORTCUTS[event.code];
    if (act) take(event, act);
}

function take(event, act) {
    event.preventDefault();
    act();
}

// Its address is not followed: that would leave the view.
function skip(event) {
    event.preventDefault();
    if (shown?.name === "chat") chat.SHORTCUTS.KeyM();
    else byId("main").focus();
}

addEventListener("hashchange", showView);
document.querySelector(".skip").addEventListener("click", skip);
addEventListener("storage", drawTheme);
addEventListener("keydown", pressed);
addEventListener("cobord-gone", () => lookAtServer());
byId("theme").addEventListener("click", nextTheme);
byId("help").addEventListener("click", showShortcuts);
drawTheme();
showView();
lookAtServer(false);
