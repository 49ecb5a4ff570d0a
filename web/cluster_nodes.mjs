// SPDX-License-Identifier: Apache-2.0
// Who owns what, as strips; each node as a card; and all of it as a table. Built once for a topology, then only filled.

import {h} from "./dom.mjs";
import {per, percent, size, time} from "./cluster_model.mjs";

const SHAPES = {
    // of 12 x 12: what a state looks like without its colour
    ready: "M2 6.5 5 9.5 10.500 3",
    loading: "M6 1.500v4.500l3 2",
    draining: "M6 1.500v8M2.500 6.500 6 10l3.500-3.500",
    gone: "M2.500 2.500l7 7M9.500 2.500l-7 7",
    unfit: "M6 1.500v5.500M6 10v.01",
};
const SVG = "http://www.w3.org/2000/svg";

export const cardId = (id) => `node-${id}`;

function setText(element, words) {
    if (element.textContent !== words) element.textContent = words;
}

// ---- State: a shape, a word, a colour ----

function stateMark() {
    const svg = document.createElementNS(SVG, "svg"),
        path = document.createElementNS(SVG, "path");
    svg.setAttribute("viewBox", "0 0 12 12");
    svg.setAttribute("class", "mark");
    svg.setAttribute("aria-hidden", "true");
    svg.append(path);
    return {svg, show: (state) => path.setAttribute("d", SHAPES[state] ?? SHAPES.loading)};
}

function stateChip() {
    const mark = stateMark(),
        word = h("span", {});
    const chip = h("span", {class: "state"}, mark.svg, word);
    return {
        chip,
        show: (node) => {
            chip.dataset.state = node.state;
            mark.show(node.state);
            setText(word, node.word);
        },
    };
}

// ---- Bars ----

// Now, its highest, of the budget.
function memoryBar() {
    const now = h("span", {class: "now"}),
        peak = h("span", {class: "peak"});
    const bar = h("div", {class: "meter", role: "img"}, now, peak),
        words = h("p", {class: "figure"});
    return {
        parts: [bar, words],
        show: (memory) => {
            bar.hidden = words.hidden = !memory;
            if (!memory) return;
            const share = (bytes) => `${Math.min(100, (100 * bytes) / memory.budget).toFixed(1)}%`;
            now.style.width = share(memory.now);
            peak.style.left = share(memory.peak);
            bar.classList.toggle("full", memory.peak > 0.95 * memory.budget);
            const text = `${size(memory.now)} of ${size(memory.budget)}`;
            bar.setAttribute("aria-label", `Memory: ${text}, at its peak ${size(memory.peak)}`);
            bar.dataset.tip =
                `In memory now: ${size(memory.now)}. The line is the peak, ${size(memory.peak)}; the whole ` +
                `bar is what this process may take, ${size(memory.budget)}. Planned before the start: ` +
                `${size(memory.need)}.`;
            setText(words, text);
        },
    };
}

function hitBar() {
    const now = h("span", {class: "now"});
    const bar = h("div", {class: "meter hits", role: "img"}, now),
        words = h("p", {class: "figure"});
    return {
        parts: [bar, words],
        show: (cache, rates) => {
            bar.hidden = words.hidden = !cache;
            if (!cache) return;
            now.style.width = `${100 * (cache.share ?? 0)}%`;
            const lately = rates && rates.hits !== null ? `, ${percent(rates.hits)} lately` : "";
            const text = cache.looked
                ? `${percent(cache.share)} of ${cache.looked.toLocaleString("en")} lookups hit${lately}`
                : "not asked yet";
            bar.setAttribute("aria-label", `Hit rate: ${text}`);
            bar.dataset.tip =
                `${text}. It keeps ${size(cache.bytes)}, and has read ${size(cache.storeBytes)} from the store.` +
                (cache.below === null ? "" : ` On its disk or database ${percent(cache.below)} hit.`);
            setText(words, text);
        },
    };
}

// ---- Strips ----

function segment(node, open) {
    const mark = stateMark(),
        name = h("span", {class: "name"}),
        element = h(
            "button",
            {class: `segment ${node.kind}`, type: "button", onclick: () => open(node.id)},
            mark.svg,
            name,
            h("span", {class: "short"}, node.id.match(/\d.*$/)?.[0] ?? ""),
        );
    element.style.left = `${(100 * node.start).toFixed(3)}%`;
    element.style.width = `${(100 * (node.end - node.start)).toFixed(3)}%`;
    setText(name, node.id);
    return {
        element,
        show: (now) => {
            mark.show(now.state);
            element.dataset.state = now.state;
            element.classList.toggle("idle", now.state === "ready" && !now.active);
            const label = `${now.id}: ${now.owns}, ${now.word}`;
            if (element.getAttribute("aria-label") !== label) element.setAttribute("aria-label", label);
            element.dataset.tip = `${now.id}: ${now.owns}. ${now.why ? `${now.word}: ${now.why}` : now.word}.`;
        },
    };
}

const LABELS = {
    layers: ["Layers", (total) => `0 to ${total - 1}`],
    ids: ["Vocabulary", (total) => `${total.toLocaleString("en")} tokens`],
};

function ruler(strip) {
    const ticks = h("div", {class: "ruler", "aria-hidden": "true"});
    const step =
        strip.name === "layers" ? (strip.total <= 16 ? 2 : strip.total <= 40 ? 4 : 8) : strip.total / 4;
    for (let at = 0; at <= strip.total + 1e-9; at += step) {
        const tick = h(
            "span",
            {},
            strip.name === "layers" ? String(at) : at ? `${Math.round(at / 1000)}k` : "0",
        );
        tick.style.left = `${((100 * at) / strip.total).toFixed(2)}%`;
        ticks.append(tick);
    }
    return ticks;
}

function stripView(strip, open) {
    const [title, total] = LABELS[strip.name],
        shows = new Map();
    const labels = [...new Set(strip.rows.map((row) => row.label))];
    const rows = strip.rows.map((row) =>
        h(
            "div",
            {class: "lane", role: "group", "aria-label": `${title}: ${row.label}`},
            row.nodes.map((node) => {
                const view = segment(node, open);
                shows.set(node.id, view.show);
                return view.element;
            }),
        ),
    );
    return {
        element: h(
            "div",
            {class: "strip"},
            h(
                "p",
                {class: "strip-title"},
                h("b", {}, title),
                ` ${total(strip.total)}, by ${labels.join(", ")}`,
            ),
            rows,
            ruler(strip),
        ),
        shows,
    };
}

// ---- Cards ----

const ROLES = {
    coordinator: "talks with clients",
    station: "owns layers",
    shard: "owns part of the vocabulary",
    warden: "reads the store for others, and keeps what it read",
};

function pairs(list, entries) {
    const wanted = entries.filter(([, value]) => value);
    while (list.children.length > wanted.length) list.lastElementChild.remove();
    wanted.forEach(([name, value], i) => {
        if (!list.children[i]) list.append(h("div", {}, h("dt", {}), h("dd", {})));
        setText(list.children[i].firstElementChild, name);
        setText(list.children[i].lastElementChild, value);
    });
}

function figuresOf(node) {
    const {rates} = node;
    const busy = rates && rates.calls > 0;
    return [
        [
            "weights kept",
            node.weights
                ? node.weights.share >= 1
                    ? `all ${size(node.weights.bytes)}`
                    : `${percent(node.weights.share)} of ${size(node.weights.bytes)}`
                : "",
        ],
        ["forward call", time(node.hops.forward?.ms)],
        ["logits call", time(node.hops.logits?.ms)],
        ["embed call", time(node.hops.embed?.ms)],
        ["median, 95%", node.p50 ? `${time(node.p50)}, ${time(node.p95)}` : ""],
        ["median of computing", node.compute ? time(node.compute) : ""],
        [
            "calls",
            node.calls
                ? `${node.calls.toLocaleString("en")}${busy ? `, ${per(rates.calls)} a second` : ""}`
                : "",
        ],
        ["bytes in, out", busy ? `${size(rates.sent)}/s, ${size(rates.received)}/s` : ""],
        ["lookups", rates?.looked ? `${per(rates.looked)} a second` : ""],
        ["failed calls", node.failures ? String(node.failures) : ""],
        ["reads through", node.warden ?? ""],
    ];
}

function card(node) {
    const state = stateChip(),
        memory = memoryBar(),
        hits = hitBar(),
        owns = h("p", {class: "owns"});
    const why = h("p", {class: "why"}),
        list = h("dl", {});
    const element = h(
        "article",
        {
            class: `card ${node.kind}`,
            id: cardId(node.id),
            tabindex: "-1",
            "aria-label": node.title || node.id,
        },
        h("header", {}, h("h4", {}, node.title || node.id), state.chip),
        owns,
        why,
        memory.parts,
        hits.parts,
        list,
    );
    return {
        element,
        show: (now) => {
            element.dataset.state = now.state;
            state.show(now);
            owns.hidden = !now.owns;
            setText(owns, now.owns);
            why.hidden = !now.why;
            setText(why, now.why);
            memory.show(now.memory);
            hits.show(now.cache ?? null, now.rates);
            pairs(list, figuresOf(now));
        },
    };
}

const FEW = 3; // beside the coordinator
const GROUPS = [
    ["coordinator", "Coordinator"],
    ["station", "Stations"],
    ["shard", "Shards"],
    ["warden", "Wardens"],
];

function cardGroups(model) {
    const shows = new Map(),
        groups = [];
    for (const [kind, group] of GROUPS) {
        const nodes = [model.coordinator, ...model.nodes].filter((n) => n.kind === kind);
        if (!nodes.length) continue;
        const cards = nodes.map((node) => {
            const view = card(node);
            shows.set(node.id, view.show);
            return view.element;
        });
        const title = nodes[0].title ? "The process" : group,
            count = kind === "coordinator" ? "" : ` ${nodes.length}`,
            role = nodes[0].title ? "has every role" : ROLES[kind];
        groups.push(
            h(
                "section",
                {class: `group ${kind}${nodes.length <= FEW ? " few" : ""}`, "aria-label": title},
                h("h3", {}, title, h("span", {class: "count"}, count), h("small", {}, role)),
                h("div", {class: "cards"}, cards),
            ),
        );
    }
    return {groups, shows};
}

// ---- Table ----

const COLUMNS = [
    ["Node", (n) => n.title || n.id],
    ["Owns", (n) => n.owns],
    ["State", (n) => n.word],
    ["Memory now", (n) => (n.memory ? size(n.memory.now) : "")],
    ["Peak", (n) => (n.memory ? size(n.memory.peak) : "")],
    ["Budget", (n) => (n.memory ? size(n.memory.budget) : "")],
    [
        "Weights kept, or hits",
        (n) => (n.cache ? percent(n.cache.share) : n.weights ? percent(n.weights.share) : ""),
    ],
    ["Embed", (n) => time(n.hops.embed?.ms)],
    ["Forward", (n) => time(n.hops.forward?.ms)],
    ["Logits", (n) => time(n.hops.logits?.ms)],
    ["Calls", (n) => (n.calls ? n.calls.toLocaleString("en") : "")],
    ["Bytes sent", (n) => (n.sent ? size(n.sent) : "")],
    ["Received", (n) => (n.received ? size(n.received) : "")],
];

function table(model) {
    const shows = new Map();
    const rows = [model.coordinator, ...model.nodes].map((node) => {
        const cells = COLUMNS.map((_, i) => (i ? h("td", {}) : h("th", {scope: "row"})));
        shows.set(node.id, (now) => COLUMNS.forEach(([, of], i) => setText(cells[i], of(now) ?? "")));
        return h("tr", {}, cells);
    });
    const element = h(
        "div",
        {class: "scroll", tabindex: "0", role: "region", "aria-label": "All nodes as a table"},
        h(
            "table",
            {},
            h(
                "thead",
                {},
                h(
                    "tr",
                    {},
                    COLUMNS.map(([name]) => h("th", {scope: "col"}, name)),
                ),
            ),
            h("tbody", {}, rows),
        ),
    );
    return {element, shows};
}

// ---- All of a topology ----

export function buildNodes(model, open) {
    const strips = model.strips
        .filter((strip) => strip.rows.length)
        .map((strip) => stripView(strip, open));
    const cards = cardGroups(model),
        all = table(model);
    const shows = [...strips.map((strip) => strip.shows), cards.shows, all.shows];
    return {
        strips: strips.map((strip) => strip.element),
        cards: cards.groups,
        table: all.element,
        show: (now) => {
            for (const node of [now.coordinator, ...now.nodes])
                for (const some of shows) some.get(node.id)?.(node);
        },
    };
}
