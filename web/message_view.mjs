// SPDX-License-Identifier: Apache-2.0
// One message: a question in a bubble, or an answer as Markdown with what there is to say about it: how it ended, how
// fast it was, what can be done next.

import {copyText} from "./clipboard.mjs";
import {h, icon, quietButton, say} from "./dom.mjs";
import {MarkdownView} from "./markdown_view.mjs";

const READING_MS = 1500;

// `act`: edit(message, text), again(), goOn(message)
export function makeMessage(message, act) {
    return message.role === "user" ? new QuestionView(message, act) : new AnswerView(message, act);
}

class QuestionView {
    constructor(message, act) {
        this.message = message;
        this.act = act;
        this.bubble = h("div", {class: "bubble"}, message.text);
        this.actions = h(
            "div",
            {class: "actions"},
            quietButton("pen", "Edit", () => this.edit()),
            quietButton("copy", "Copy", () => copyMessage(message)),
        );
        this.element = h(
            "article",
            {class: "message question"},
            h("h2", {class: "unseen"}, "You"),
            this.bubble,
            this.actions,
        );
    }

    update() {}

    setLast() {}

    // The text becomes a field; what came after it goes when it is sent.
    edit() {
        const field = h("textarea", {"aria-label": "Your message, changed", rows: "3"});
        field.value = this.message.text;
        const end = () => {
            form.replaceWith(this.bubble);
            this.actions.hidden = false;
            this.actions.firstElementChild.focus();
        };
        const send = (event) => {
            event?.preventDefault();
            if (field.value.trim()) this.act.edit(this.message, field.value.trim());
        };
        const form = h(
            "form",
            {
                class: "editing field",
                onsubmit: send,
                onkeydown: (event) => {
                    if (event.key === "Escape") {
                        event.stopPropagation();
                        end();
                    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
                },
            },
            field,
            h(
                "div",
                {class: "row"},
                h("button", {class: "button", type: "button", onclick: end}, "Cancel"),
                h("button", {class: "button primary", type: "submit"}, "Send"),
            ),
        );
        this.bubble.replaceWith(form);
        this.actions.hidden = true;
        field.focus();
    }
}

class AnswerView {
    constructor(message, act) {
        this.message = message;
        this.act = act;
        this.prose = h("div", {class: "prose"});
        this.wait = h(
            "p",
            {class: "waiting", hidden: true},
            h("span", {class: "pulse"}),
            h("span", {class: "waiting-text"}),
        );
        this.notes = h("div", {class: "notes"});
        this.figures = h("p", {class: "figures"});
        this.copy = quietButton("copy", "Copy", () => copyMessage(message));
        this.again = quietButton("again", "Again", () => act.again(), {title: "Answer again (Alt R)"});
        this.foot = h(
            "div",
            {class: "foot"},
            h("div", {class: "actions"}, this.copy, this.again),
            this.figures,
        );
        this.element = h(
            "article",
            {class: "message answer"},
            h("h2", {class: "unseen"}, "Answer"),
            this.prose,
            this.wait,
            this.notes,
            this.foot,
        );
        this.view = new MarkdownView(this.prose);
        this.since = performance.now();
        this.last = false;
    }

    setLast(last) {
        this.last = last;
        this.update();
    }

    update() {
        const m = this.message,
            running = m.state === "streaming";
        this.view.show(m.text);
        this.element.classList.toggle("running", running);
        this.prose.setAttribute("aria-busy", String(running));
        this.showWaiting(running);
        this.figures.textContent = figuresOf(m);
        this.figures.title = m.prompt
            ? `${m.prompt} tokens of prompt, ${m.cached ?? 0} of them known already`
            : "";
        this.copy.hidden = running || !m.text;
        this.again.hidden = running || !this.last || Boolean(m.error);
        if (!running || m.degraded) this.showNotes();
    }

    showWaiting(running) {
        const m = this.message,
            text = this.wait.lastElementChild;
        this.wait.hidden = !running || (m.text !== "" && !m.lost);
        const reading = performance.now() - this.since > READING_MS;
        const words = m.lost
            ? "The line is broken; going on as soon as the server is back"
            : reading
              ? "Reading"
              : "";
        if (text.textContent !== words) text.textContent = words;
    }

    showNotes() {
        const notes = notesOf(this.message, this.last && this.act);
        const key = JSON.stringify([
            this.message.state,
            this.message.error,
            this.message.degraded,
            this.message.finish,
            this.last,
        ]);
        if (key === this.noted) return;
        this.noted = key;
        this.notes.replaceChildren(...notes);
    }
}

function note(kind, text, ...buttons) {
    return h("div", {class: `notice ${kind}`}, icon("alert"), h("div", {}, h("p", {}, text), buttons));
}

function notesOf(m, act) {
    const notes = [],
        button = (name, run) =>
            act ? h("button", {class: "button", type: "button", onclick: run}, name) : null;
    if (m.degraded)
        notes.push(
            note(
                "warn",
                "Degraded: a part of the model could not be reached, and this answer was made without it. " +
                    "It may be worse than usual.",
            ),
        );
    if (m.error)
        notes.push(
            note(
                "bad",
                m.error.words,
                m.text && m.eventId && m.error.retryable ? button("Go on", () => act.goOn(m)) : null,
                button("Try again", () => act.again()),
            ),
        );
    if (m.finish === "length")
        notes.push(h("p", {class: "aside"}, "Cut here: the limit of tokens, or the end of the context."));
    if (m.state === "stopped")
        notes.push(h("p", {class: "aside"}, m.text ? "Stopped." : "Stopped before the first word."));
    return notes;
}

function figuresOf(m) {
    const parts = [];
    if (m.tokens) parts.push(`${m.tokens} ${m.tokens === 1 ? "token" : "tokens"}`);
    if (m.rate) parts.push(`${m.rate < 10 ? m.rate.toFixed(1) : Math.round(m.rate)} tokens/s`);
    if (m.firstMs !== undefined && m.tokens) parts.push(`first after ${(m.firstMs / 1000).toFixed(2)} s`);
    return parts.join(" \u00b7 ");
}

export async function copyMessage(message) {
    say((await copyText(message.text)) ? "Copied" : "The browser does not allow copying");
}
