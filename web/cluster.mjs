// SPDX-License-Identifier: Apache-2.0
// The cluster, live: asks GET /cluster every second or two while somebody looks, and draws what it says.
//
//   cluster.mjs          asking, backing off, the frame of the view
//   cluster_model.mjs    an answer --> what is drawn (pure)
//   cluster_journey.mjs  a token's journey
//   cluster_nodes.mjs    strips, cards, table

import {h, icon} from "./dom.mjs";
import {duration, modelOf, per, time} from "./cluster_model.mjs";
import {Journey} from "./cluster_journey.mjs";
import {buildNodes, cardId} from "./cluster_nodes.mjs";
import {followTips} from "./cluster_tip.mjs";

const REFRESH_MS_MIN = 1000,
    REFRESH_MS_MAX = 10000,
    RETRY_MS_MAX = 15000;
let view = null;

export function mount(root, {fetchJson, say = () => {}}) {
    unmount();
    view = new View(root, fetchJson, say);
    view.ask();
}

export function unmount() {
    view?.close();
    view = null;
}

// ---- Texts ----

const WORDS = [
    [
        "Token",
        "a piece of text, often a word or a part of one. The model reads and writes tokens, one after the other.",
    ],
    [
        "Layer",
        "the model is a stack of layers; a token's numbers pass through all of them before the next token is known.",
    ],
    [
        "Vocabulary",
        "all tokens that the model knows. For each it has an embedding (what goes in) and a row of the head " +
            "(how likely it comes out).",
    ],
    ["Coordinator", "talks with clients, leads tokens through the others, and picks the next token."],
    ["Station", "owns a range of layers, and remembers the conversations there."],
    ["Shard", "owns a range of the vocabulary."],
    [
        "Warden",
        "reads the model's file from an object store for others, and keeps what was read, so that most " +
            "lookups are hits.",
    ],
    [
        "Replica",
        "a second node of the same range. It stands by, and takes over when the first is lost.",
    ],
];

function lead(model) {
    const {nodes} = model,
        parts = nodes.filter((n) => n.kind !== "warden" && !n.replica).length;
    if (model.kind === "process")
        return (
            `One process has all of ${model.name}: the ${parts} parts below are computed in turn. ` +
            "With cobord up each part becomes a process of its own, on one machine or on many."
        );
    const spread = new Set(nodes.map((n) => n.address.replace(/:\d+$/, "")).filter(Boolean)).size;
    return (
        `${model.name} is cut into ${parts} parts, each in a small process of its own` +
        `${spread > 1 ? `, on ${spread} machines` : ""}. Every token passes through all of them.`
    );
}

function caption(model, journey, seconds) {
    const {journey: trip, queue} = model;
    if (!trip.known) return "No token has passed yet: ask something in the chat, and come back.";
    const what =
        trip.rows === 1
            ? "One token takes"
            : `The last step had ${trip.rows} rows at once (of prompts, several conversations, or guesses) and took`;
    const slow =
        queue.active && seconds
            ? ` The dot shows it about ${journey.slowness().toLocaleString("en")} times slower.`
            : "";
    return `${what} ${time(trip.ms)}.${slow}`;
}

// ---- The view ----

class View {
    constructor(root, fetchJson, say) {
        Object.assign(this, {
            root,
            fetchJson,
            say,
            model: null,
            failures: 0,
            heardAt: 0,
            timer: 0,
            closed: false,
        });
        this.part = {
            status: h("p", {class: "status"}),
            lead: h("p", {class: "lead"}),
            facts: h("dl", {class: "facts"}),
            notes: h("p", {}),
            again: h(
                "button",
                {class: "button", type: "button", onclick: () => this.ask()},
                "Ask again",
            ),
            journey: h("div", {class: "journey"}),
            caption: h("p", {class: "caption"}),
            strips: h("div", {class: "strips"}),
            cards: h("div", {class: "nodes"}),
            table: h("div", {}),
        };
        const {notes, again} = this.part;
        this.part.notice = h("div", {class: "notice bad", hidden: true}, icon("alert"), notes, again);
        this.page = this.build();
        this.root.replaceChildren(this.page);
        this.journey = new Journey(this.part.journey);
        this.endTips = followTips(this.page);
        this.seen = () => (document.hidden ? clearTimeout(this.timer) : this.ask());
        document.addEventListener("visibilitychange", this.seen);
    }

    build() {
        const p = this.part;
        const body = h(
            "div",
            {class: "body", hidden: true},
            h(
                "section",
                {"aria-labelledby": "journey-head"},
                h("h2", {id: "journey-head"}, "A token's journey"),
                p.caption,
                p.journey,
            ),
            h(
                "section",
                {"aria-labelledby": "strips-head"},
                h("h2", {id: "strips-head"}, "Who owns what"),
                h(
                    "p",
                    {class: "caption"},
                    "Each bar is the whole model; each piece is one node's. Choose a piece to see its node below.",
                ),
                p.strips,
            ),
            h(
                "section",
                {"aria-labelledby": "nodes-head"},
                h("h2", {id: "nodes-head"}, "Nodes"),
                p.cards,
            ),
            h("details", {}, h("summary", {}, "All of it as a table"), p.table),
            h(
                "details",
                {},
                h("summary", {}, "What the words mean"),
                h(
                    "dl",
                    {class: "words"},
                    WORDS.map(([word, what]) => h("div", {}, h("dt", {}, word), h("dd", {}, what))),
                ),
            ),
        );
        this.body = body;
        return h(
            "div",
            {class: "cluster"},
            h("header", {class: "top"}, h("h1", {}, "Cluster"), p.status),
            p.notice,
            p.lead,
            p.facts,
            body,
        );
    }

    // ---- Asking ----

    async ask() {
        clearTimeout(this.timer);
        if (this.closed || document.hidden || this.asking) return;
        this.asking = true;
        try {
            this.hear(modelOf(await this.fetchJson("/cluster"), this.model));
        } catch (error) {
            this.miss(error);
        }
        this.asking = false;
        if (this.closed || document.hidden || this.refused) return;
        this.timer = setTimeout(() => this.ask(), this.pause());
    }

    pause() {
        if (this.failures) return Math.min(RETRY_MS_MAX, 1000 * 2 ** (this.failures - 1));
        const refresh = Math.min(REFRESH_MS_MAX, Math.max(REFRESH_MS_MIN, this.model.refreshMs));
        return this.model.busy ? refresh : Math.min(REFRESH_MS_MAX, 1.5 * refresh);
    }

    hear(model) {
        if (this.closed) return;
        if (this.failures) this.say("The server answers again");
        this.failures = 0;
        this.refused = false;
        this.heardAt = Date.now();
        this.tellChanges(model);
        this.model = model;
        this.part.notice.hidden = model.complete;
        if (!model.complete) this.notice("warn", `The cluster is not complete. ${model.missing}`);
        this.page.classList.remove("stale");
        this.draw();
    }

    miss(error) {
        if (this.closed) return;
        this.failures++;
        // Without the right key there is nothing to wait for; asking again asks for the key.
        this.refused = error.kind === "key" || error.kind === "forbidden";
        const age = this.heardAt ? ` What is below is ${duration(Date.now() - this.heardAt)} old.` : "";
        const again = this.refused ? "" : ` Asked again in ${Math.round(this.pause() / 1000)} s.`;
        this.notice("bad", `${error.message}${again}${age}`);
        this.part.again.hidden = !this.refused;
        if (this.failures === 1) this.say("The cluster's state cannot be had at the moment");
        this.page.classList.add("stale");
        this.part.status.dataset.state = "gone";
        this.part.status.textContent = this.refused
            ? "not allowed"
            : error.kind === "gone" || !error.status
              ? "not reachable"
              : "no answer";
        this.journey.rest();
    }

    notice(kind, words) {
        const {notice, notes, again} = this.part;
        again.hidden = true;
        notice.className = `notice ${kind}`;
        notice.hidden = false;
        if (notes.textContent !== words) notes.textContent = words;
    }

    // For who hears the page: nodes that were lost or came back.
    tellChanges(model) {
        const before = new Map(this.model?.nodes.map((n) => [n.id, n.word]) ?? []);
        const changed = model.nodes.filter((n) => before.has(n.id) && before.get(n.id) !== n.word);
        if (changed.length) this.say(changed.map((n) => `${n.id}: ${n.word}`).join(", "));
    }

    // ---- Drawing ----

    draw() {
        const {model, part} = this;
        this.body.hidden = false;
        if (model.shape !== this.shape) {
            this.nodes = buildNodes(model, (id) => this.open(id));
            part.strips.replaceChildren(...this.nodes.strips);
            part.cards.replaceChildren(...this.nodes.cards);
            part.table.replaceChildren(this.nodes.table);
            part.lead.textContent = lead(model);
            this.shape = model.shape;
        }
        part.status.dataset.state = model.draining ? "draining" : model.complete ? "ready" : "gone";
        part.status.textContent = model.draining
            ? "shutting down"
            : model.kind === "process"
              ? "one process"
              : model.complete
                ? "complete"
                : "not complete";
        this.drawFacts();
        this.journey.show(model.journey, model.queue.active);
        part.caption.textContent = caption(model, this.journey, !this.journey.motion.matches);
        this.nodes.show(model);
    }

    drawFacts() {
        const {queue, rates, uptimeMs, context} = this.model,
            {facts} = this.part;
        if (!facts.children.length || facts.slots !== queue.slots) this.buildFacts(queue.slots);
        const set = (name, words) => {
            if (this.fact[name].textContent !== words) this.fact[name].textContent = words;
        };
        set("rate", rates ? per(rates.tokens) : "-");
        set("active", `${queue.active} of ${queue.slots}`);
        [...this.fact.slots.children].forEach((slot, i) =>
            slot.classList.toggle("taken", i < queue.active),
        );
        set("waiting", `${queue.waiting} of ${queue.limit}`);
        set(
            "answers",
            `${queue.answers.toLocaleString("en")} (${queue.tokens.toLocaleString("en")} tokens)`,
        );
        set("context", `${context.toLocaleString("en")} tokens`);
        set("uptime", duration(uptimeMs));
    }

    buildFacts(slots) {
        const fact = {
            rate: h("dd", {class: "large"}),
            active: h("dd", {}),
            slots: h("span", {class: "slots", "aria-hidden": "true"}),
            waiting: h("dd", {}),
            answers: h("dd", {}),
            context: h("dd", {}),
            uptime: h("dd", {}),
        };
        fact.slots.append(
            ...Array.from({length: Math.min(16, slots)}, () => h("span", {class: "slot"})),
        );
        const row = (name, tip, value, more = null) =>
            h("div", {"data-tip": tip}, h("dt", {}, name, more), value);
        this.part.facts.replaceChildren(
            row("tokens a second", "Tokens of all answers together, since the last look.", fact.rate),
            row(
                "slots at work",
                "A slot is one conversation; all share each pass over the weights.",
                fact.active,
                fact.slots,
            ),
            row(
                "waiting",
                "Answers that wait for a slot, and how many may wait before the next is refused.",
                fact.waiting,
            ),
            row("answers", "Since the start.", fact.answers),
            row("context", "How long a conversation can be.", fact.context),
            row("up for", "Since the coordinator was started.", fact.uptime),
        );
        this.part.facts.slots = slots;
        this.fact = fact;
    }

    open(id) {
        const card = document.getElementById(cardId(id));
        card.scrollIntoView({
            behavior: this.journey.motion.matches ? "auto" : "smooth",
            block: "center",
        });
        card.focus({preventScroll: true});
    }

    close() {
        this.closed = true;
        clearTimeout(this.timer);
        document.removeEventListener("visibilitychange", this.seen);
        this.journey.close();
        this.endTips();
        this.root.replaceChildren();
    }
}
