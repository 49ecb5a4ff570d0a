// SPDX-License-Identifier: Apache-2.0
// The chat: a list of conversations, the messages of one, and where the next is written. The modules around it know
// one thing
// each: conversations.mjs what is kept, answering.mjs what is on its way, message_view.mjs how a message looks.

import * as answering from "./answering.mjs";
import {Composer} from "./composer.mjs";
import * as store from "./conversations.mjs";
import {alarm, h, icon, say} from "./dom.mjs";
import {copyMessage, makeMessage} from "./message_view.mjs";
import {openSettings, summary} from "./settings.mjs";
import {Side} from "./side.mjs";

const NEAR_END = 80; // pixels: who is nearer follows the answer
const SPOKEN_MAX = 400;
const WAIT_MS_MAX = 500;
const EXAMPLES = [
    "Explain what a hash table is",
    "Write a C function that reverses a list",
    "Three names for a small boat, in a table",
];

let conversation = null,
    views = [],
    frame = 0,
    drawMs = 0,
    looking = 0,
    followsEnd = true,
    model = null;
let side, composer, log, column, toEnd;

// ---- Mounting ----

export function mount(root) {
    if (composer) return composer.focus();
    side = new Side(
        {create, choose, rename, drop, isRunning: (id) => Boolean(answering.runOf(id))},
        document.getElementById("menu"),
    );
    composer = new Composer({send, stop, settings});
    column = h("div", {class: "column"});
    log = h(
        "div",
        {
            class: "log",
            role: "log",
            "aria-label": "Conversation",
            "aria-live": "off",
            tabindex: "0",
            onscroll: scrolled,
        },
        column,
    );
    toEnd = h(
        "button",
        {
            class: "to-end",
            type: "button",
            "aria-label": "To the end",
            title: "To the end",
            hidden: true,
            onclick: () => {
                followsEnd = true;
                follow();
            },
        },
        icon("down"),
    );
    const smallPrint = h(
        "p",
        {class: "small-print"},
        "A model can be wrong. Conversations stay in this browser.",
    );
    const below = h("div", {class: "below"}, toEnd, composer.element, smallPrint);
    side.behind = h("div", {class: "talk"}, log, below);
    root.append(side.element, side.scrim, side.behind);
    addEventListener("storage", changedElsewhere);
    addEventListener("pagehide", answering.interruptAll);
    addEventListener("pageshow", (event) => event.persisted && lookAgain(conversation.id));
    setInterval(tick, 500);
    const first = store.list()[0];
    const found = first && store.load(first.id);
    show(found ?? store.create());
    composer.focus();
}

export function showModel(found) {
    if (model?.id === found.id) return;
    model = found;
    if (conversation && !conversation.messages.length) drawEmpty();
}

// ---- One conversation ----

function show(next) {
    followsEnd ||= next.id !== conversation?.id; // the same again: another tab writes, somebody reads here
    conversation = next;
    resumeInterrupted();
    draw();
}

function draw() {
    const act = {edit, again, goOn: (message) => run(answering.goOn(conversation, message, handlers))};
    views = conversation.messages.map((message) => makeMessage(message, act));
    column.replaceChildren(
        h("h1", {class: "unseen"}, conversation.title),
        ...views.map((view) => view.element),
    );
    views.forEach((view, i) => view.setLast(i === views.length - 1));
    if (!views.length) drawEmpty();
    drawState();
    follow();
}

function drawEmpty() {
    column.querySelector(".empty")?.remove();
    column.append(
        h(
            "div",
            {class: "empty"},
            icon("mark"),
            h("p", {class: "empty-title"}, "What is on your mind?"),
            h(
                "p",
                {class: "empty-model"},
                model ? `${model.id}, with room for ${model.context_length.toLocaleString("en")} tokens` : "",
            ),
            h(
                "ul",
                {class: "examples"},
                EXAMPLES.map((text) =>
                    h(
                        "li",
                        {},
                        h("button", {class: "example", type: "button", onclick: () => send(text)}, text),
                    ),
                ),
            ),
        ),
    );
}

function drawState() {
    side.draw(conversation.id);
    composer.setRunning(Boolean(answering.runOf(conversation.id)));
    composer.setSettings(summary(conversation.settings));
}

function choose(id) {
    if (id !== conversation.id) {
        const found = store.load(id);
        if (!found) return side.draw(conversation.id);
        show(answering.runOf(id)?.conversation ?? found);
    }
    composer.focus();
}

function create() {
    if (conversation.messages.length) show(store.create());
    composer.focus();
}

function neighbour(step) {
    const ids = store.list().map((entry) => entry.id),
        at = ids.indexOf(conversation.id);
    const id = ids[at < 0 ? 0 : at + step];
    if (id) choose(id);
}

function rename(id, title) {
    const target =
        id === conversation.id ? conversation : (answering.runOf(id)?.conversation ?? store.load(id));
    if (target) store.rename(target, title);
}

function drop(id) {
    answering.forget(id);
    store.drop(id);
    if (id === conversation.id) {
        const next = store.list()[0];
        show((next && store.load(next.id)) ?? store.create());
    } else side.draw(conversation.id);
}

// Another tab has written. What is under way here is ours.
function changedElsewhere(event) {
    const {list, id} = store.changed(event);
    if (id === conversation.id && !answering.runOf(id)) {
        const found = store.load(id);
        if (found) show(found);
    } else if (list) side.draw(conversation.id);
}

// ---- Asking ----

function send(text) {
    if (answering.runOf(conversation.id)) return;
    conversation.messages.push({role: "user", text});
    store.giveTitle(conversation);
    followsEnd = true;
    run(answering.begin(conversation, handlers));
}

function edit(message, text) {
    if (answering.runOf(conversation.id)) return;
    conversation.messages.length = conversation.messages.indexOf(message);
    send(text);
    composer.focus();
}

function again() {
    if (answering.runOf(conversation.id)) return;
    const messages = conversation.messages;
    if (messages.at(-1)?.role === "assistant") messages.pop();
    if (messages.length) run(answering.begin(conversation, handlers));
    composer.focus();
}

function stop() {
    answering.stop(conversation.id);
}

// An answer that was on its way when the page went goes on.
function resumeInterrupted() {
    const {id, messages} = conversation,
        last = messages.at(-1);
    if (answering.runOf(id)) return;
    const wait = answering.settle(last);
    clearTimeout(looking);
    if (wait) looking = setTimeout(() => lookAgain(id), wait + 100);
    else if (last?.state === "interrupted") run(answering.goOn(conversation, last, handlers), false);
}

function lookAgain(id) {
    const found = id === conversation.id && !answering.runOf(id) && store.load(id);
    if (found) show(found);
}

function run(started, redraw = true) {
    if (!started.kept && started.kept !== undefined)
        say("This browser keeps nothing: the conversation lives as long as the page.");
    if (redraw) draw();
    say("Answering");
}

function settings() {
    openSettings(conversation.settings, (next) => {
        conversation.settings = next;
        store.keepSettings(next);
        if (conversation.messages.length) store.save(conversation);
        drawState();
    });
}

// ---- While an answer comes ----

const handlers = {
    // Once a frame; less often when drawing is slow, as it is of a very long block.
    changed(started) {
        if (started.conversation !== conversation || frame) return;
        frame = setTimeout(() => requestAnimationFrame(drawFrame), Math.min(WAIT_MS_MAX, 3 * drawMs));
    },
    ended(started) {
        const {message, kept} = started;
        if (message.state === "interrupted") return;
        if (started.conversation === conversation) {
            drawLast();
            speak(message);
        }
        drawState();
        if (!kept)
            alarm(
                "This browser's storage is full or switched off: this conversation is not kept. " +
                    "Delete others to make room.",
            );
    },
};

function drawFrame() {
    const since = performance.now();
    frame = 0;
    drawLast();
    drawMs = performance.now() - since;
}

function drawLast() {
    views.at(-1)?.update();
    follow();
}

// Once, at the end; of a long answer only that it is there.
function speak(message) {
    if (message.error) alarm(message.error.words);
    else if (message.state === "stopped") say("Stopped");
    else
        say(
            message.text.length <= SPOKEN_MAX
                ? `Answer: ${message.text}`
                : `The answer is complete: ${message.tokens ?? "many"} tokens.`,
        );
}

function tick() {
    if (conversation && answering.runOf(conversation.id)) views.at(-1)?.update();
}

function follow() {
    if (followsEnd) log.scrollTop = log.scrollHeight;
    scrolled();
}

function scrolled() {
    followsEnd = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END;
    toEnd.hidden = followsEnd;
}

function copyLast() {
    const last = conversation.messages.findLast((message) => message.role === "assistant" && message.text);
    if (last) copyMessage(last);
}

export const SHORTCUTS = {
    KeyN: create,
    KeyM: () => composer.focus(true),
    KeyR: again,
    KeyC: copyLast,
    KeyS: settings,
    ArrowUp: () => neighbour(-1),
    ArrowDown: () => neighbour(1),
};
