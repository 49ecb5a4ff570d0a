// SPDX-License-Identifier: Apache-2.0
// What GET /cluster answers, as the drawing needs it: ranges as fractions, states as words, counters as rates. Pure:
// no document, no clock. Members that are missing are 0, "" or null, whoever answers.
//
//   answer, the model before --> model {queue, rates, coordinator, nodes, strips, journey}

const STATES = {
    ready: "ready",
    loading: "loading",
    "not ready": "loading",
    unknown: "loading",
    draining: "draining",
    down: "gone",
    unreachable: "gone",
    unfit: "unfit",
};
const WORDS = {
    ready: "ready",
    loading: "loading",
    draining: "draining",
    gone: "gone",
    unfit: "does not fit",
};
const PHASES = ["attn", "ffn_gate", "ffn_up", "ffn_down"];

const number = (value) => (Number.isFinite(value) && value >= 0 ? value : 0);
const text = (value) => (typeof value === "string" ? value : "");

// ---- Ranges ----

// "5" or "5.ffn_up" or "end", in layers: a layer has four phases.
function parseBound(bound, layers) {
    if (bound === "end") return layers;
    const [layer, phase] = bound.split(".");
    return Number(layer) + Math.max(0, PHASES.indexOf(phase)) / PHASES.length;
}

// "0-15", "15-end", "5.ffn_up-7": layers from..to, half open.
export function parseRange(range, layers) {
    const [first, last] = text(range).split("-");
    if (!first || !last) return null;
    const from = parseBound(first, layers),
        to = parseBound(last, layers);
    return from >= 0 && to > from && to <= layers ? {from, to} : null;
}

function describeLayers({from, to}) {
    const whole = Number.isInteger(from) && Number.isInteger(to);
    if (!whole) return `layers ${from.toFixed(2)} to ${to.toFixed(2)}`;
    return to - from === 1 ? `layer ${from}` : `layers ${from} to ${to - 1}`;
}

function describeIds({from, to}) {
    return `tokens ${from.toLocaleString("en")} to ${(to - 1).toLocaleString("en")}`;
}

// ---- Nodes ----

function memoryOf(memory) {
    if (!memory || !memory.budget_bytes) return null;
    // A warden keeps slabs in a memory file, which only its need counts.
    const held = memory.cache_bytes ? number(memory.need_bytes) : 0;
    return {
        now: Math.max(number(memory.resident_bytes), held),
        peak: Math.max(number(memory.peak_bytes), held),
        budget: number(memory.budget_bytes),
        need: number(memory.need_bytes),
    };
}

function weightsOf(weights) {
    if (!weights || !weights.bytes) return null;
    const kept = weights.resident ? weights.bytes : number(weights.pinned_bytes);
    return {bytes: weights.bytes, kept, share: Math.min(1, kept / weights.bytes)};
}

function cacheOf(cache) {
    if (!cache) return null;
    const looked = number(cache.hits) + number(cache.misses);
    const below = number(cache.l2_hits) + number(cache.l2_misses);
    return {
        hits: number(cache.hits),
        looked,
        share: looked ? number(cache.hits) / looked : null,
        bytes: number(cache.bytes),
        below: below ? number(cache.l2_hits) / below : null,
        storeBytes: number(cache.store_bytes),
    };
}

function hopsOf(hops) {
    const out = {};
    for (const [kind, hop] of Object.entries(hops ?? {}))
        out[kind] = {
            ms: number(hop.us) / 1000,
            rows: number(hop.rows),
            sent: number(hop.bytes_sent),
            received: number(hop.bytes_received),
        };
    return out;
}

function nodeOf(raw, layers, vocabulary) {
    const isLayers = raw.role === "station" || raw.role === "layer-warden" || raw.range !== undefined;
    const span = isLayers
        ? parseRange(raw.range, layers)
        : Array.isArray(raw.ids) && raw.ids[1] > raw.ids[0]
          ? {from: raw.ids[0], to: raw.ids[1]}
          : null;
    const state = STATES[raw.state] ?? "loading",
        isWarden = text(raw.role).includes("warden");
    return {
        id: text(raw.id),
        role: text(raw.role),
        address: text(raw.address),
        version: text(raw.version),
        part: number(raw.part),
        kind: isWarden ? "warden" : text(raw.role),
        strip: isLayers ? "layers" : "ids",
        span,
        owns: !span ? "" : isLayers ? describeLayers(span) : describeIds(span),
        start: span ? span.from / (isLayers ? layers : vocabulary) : 0,
        end: span ? span.to / (isLayers ? layers : vocabulary) : 0,
        embed: Boolean(raw.embed),
        head: Boolean(raw.head),
        warden: text(raw.warden),
        state,
        replica: Boolean(raw.replica),
        active: raw.active !== false,
        word: state === "ready" && raw.active === false ? "standing by" : WORDS[state],
        why: state === "ready" ? "" : text(raw.last_error),
        calls: number(raw.calls),
        failures: number(raw.failures),
        sent: number(raw.bytes_sent),
        received: number(raw.bytes_received),
        p50: number(raw.p50_us) / 1000,
        p95: number(raw.p95_us) / 1000,
        compute: number(raw.compute_p50_us) / 1000,
        hops: hopsOf(raw.hops),
        memory: memoryOf(raw.memory),
        weights: weightsOf(raw.weights),
        cache: cacheOf(raw.cache),
        rates: null,
    };
}

// ---- Rates: what grew since the answer before ----

function rate(now, before, seconds) {
    return now >= before ? (now - before) / seconds : 0;
}

function giveRates(model, before) {
    const seconds = before ? (model.uptimeMs - before.uptimeMs) / 1000 : 0;
    if (seconds === 0 && before) {
        // the same text once more
        model.rates = before.rates;
        for (const node of model.nodes)
            node.rates = before.nodes.find((n) => n.id === node.id)?.rates ?? null;
        return;
    }
    if (!(seconds > 0)) return; // the first, or another process
    model.rates = {
        tokens: rate(model.queue.tokens, before.queue.tokens, seconds),
        steps: rate(model.step.count, before.step.count, seconds),
    };
    const known = new Map(before.nodes.map((n) => [n.id, n]));
    for (const node of model.nodes) {
        const was = known.get(node.id);
        if (!was) continue;
        const looked = node.cache && was.cache ? node.cache.looked - was.cache.looked : 0;
        node.rates = {
            calls: rate(node.calls, was.calls, seconds),
            sent: rate(node.sent, was.sent, seconds),
            received: rate(node.received, was.received, seconds),
            looked: Math.max(0, looked) / seconds,
            hits: looked > 0 ? (node.cache.hits - was.cache.hits) / looked : null,
        };
    }
}

// ---- Strips: who owns which part ----

// Rows without overlaps: those that work first, then replicas, then wardens.
function stripOf(nodes, name, total) {
    const rows = [];
    const mine = nodes.filter((n) => n.strip === name && n.span);
    for (const [label, wanted] of [
        [name === "layers" ? "stations" : "shards", (n) => n.kind !== "warden" && !n.replica],
        ["replicas", (n) => n.kind !== "warden" && n.replica],
        ["wardens", (n) => n.kind === "warden" && !n.replica],
        ["wardens' replicas", (n) => n.kind === "warden" && n.replica],
    ]) {
        for (const row of packed(mine.filter(wanted))) rows.push({label, nodes: row});
    }
    return {name, total, rows};
}

function packed(nodes) {
    const rows = [];
    for (const node of [...nodes].sort((a, b) => a.start - b.start)) {
        const row = rows.find((r) => r.at(-1).end <= node.start + 1e-9);
        if (row) row.push(node);
        else rows.push([node]);
    }
    return rows;
}

// ---- A token's journey ----

// The node of each part that gets the calls, in the order of parts.
function workers(nodes, kind) {
    const parts = new Map();
    for (const node of nodes.filter((n) => n.kind === kind))
        if (!parts.has(node.part) || (node.active && !parts.get(node.part).active))
            parts.set(node.part, node);
    return [...parts.entries()].sort((a, b) => a[0] - b[0]).map(([, node]) => node);
}

const slowest = (nodes, hop) => Math.max(0, ...nodes.map((n) => n.hops[hop]?.ms ?? 0));

// All shards are asked for logits; for one token's embedding the one that has it.
function bytesOf(nodes, hop, way) {
    const bytes = nodes.map((n) => n.hops[hop]?.[way] ?? 0);
    return hop === "embed" ? Math.max(0, ...bytes) : bytes.reduce((a, b) => a + b, 0);
}

function stop(kind, title, nodes, hop, ms) {
    return {
        kind,
        title,
        nodes,
        ms,
        hop,
        sent: bytesOf(nodes, hop, "sent"),
        received: bytesOf(nodes, hop, "received"),
    };
}

function journeyOf(model) {
    const stations = workers(model.nodes, "station"),
        shards = workers(model.nodes, "shard");
    const embeds = stations.filter((n) => n.embed),
        heads = stations.filter((n) => n.head);
    const embedders = embeds.length ? embeds : shards,
        scorers = heads.length ? heads : shards;
    const {step} = model,
        self = model.coordinator;
    // In one process they answer one after the other, else all at once.
    const scored = model.kind === "process" ? step.logits : slowest(scorers, "logits") || step.logits;
    const stops = [
        stop("start", "coordinator", [self], "", 0),
        stop("embed", "embed", embedders, "embed", step.embed || slowest(embedders, "embed")),
        ...stations.map((n) => stop("station", n.id, [n], "forward", n.hops.forward?.ms ?? 0)),
        stop("logits", "logits", scorers, "logits", scored),
        stop("sample", "sample", [self], "", step.own),
    ];
    const sum = step.embed + step.forward + step.logits + (model.kind === "process" ? step.own : 0);
    return {stops, known: step.count > 0, ms: sum, rows: step.rows, inTurn: model.kind === "process"};
}

// ---- The whole ----

function queueOf(queue) {
    return {
        slots: number(queue?.slots),
        active: number(queue?.active),
        waiting: number(queue?.waiting),
        limit: number(queue?.limit),
        answers: number(queue?.answers),
        tokens: number(queue?.generated_tokens),
        failed: number(queue?.failed),
        refused: number(queue?.refused),
    };
}

function stepOf(step) {
    const ms = (us) => number(us) / 1000;
    return {
        count: number(step?.count),
        rows: number(step?.rows),
        embed: ms(step?.embed_us),
        forward: ms(step?.forward_us),
        logits: ms(step?.logits_us),
        own: ms(step?.own_us),
    };
}

export function modelOf(answer, before = null) {
    if (!answer || !Array.isArray(answer.nodes))
        throw new TypeError("this is no answer of GET /cluster");
    const layers = number(answer.layers) || 1,
        vocabulary = number(answer.vocabulary) || 1;
    const self = answer.coordinator ?? {};
    const model = {
        kind: answer.kind === "process" ? "process" : "cluster",
        name: text(answer.model),
        version: text(answer.version),
        knot: text(answer.knot_id),
        complete: Boolean(answer.complete),
        missing: text(answer.missing),
        ready: Boolean(answer.ready),
        draining: Boolean(answer.draining),
        uptimeMs: number(answer.uptime_ms),
        refreshMs: number(answer.refresh_ms) || 1000,
        layers,
        vocabulary,
        context: number(answer.context),
        replays: number(answer.replays),
        degraded: number(answer.degraded),
        queue: queueOf(answer.queue),
        step: stepOf(answer.step),
        rates: null,
        coordinator: {
            id: text(self.id),
            title: answer.kind === "process" ? "this process" : "",
            kind: "coordinator",
            memory: memoryOf(self.memory),
            weights: weightsOf(self.weights),
            state: answer.draining ? "draining" : "ready",
            word: answer.draining ? "draining" : "ready",
            owns: "",
            why: "",
            hops: {},
            rates: null,
        },
        nodes: answer.nodes.map((n) => nodeOf(n, layers, vocabulary)),
    };
    model.busy = model.queue.active > 0;
    giveRates(model, before);
    model.strips = [stripOf(model.nodes, "layers", layers), stripOf(model.nodes, "ids", vocabulary)];
    model.journey = journeyOf(model);
    model.shape = JSON.stringify([
        model.kind,
        layers,
        vocabulary,
        model.nodes.map((n) => [n.id, n.start, n.end, n.replica]),
    ]);
    return model;
}

// ---- Words for figures ----

export function size(bytes) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let at = 0;
    for (; bytes >= 1024 && at + 1 < units.length; at++) bytes /= 1024;
    return `${bytes >= 100 || at === 0 ? Math.round(bytes) : bytes.toPrecision(3)} ${units[at]}`;
}

export function time(ms) {
    if (!ms) return "";
    if (ms < 0.005) return "under 0.01 ms";
    if (ms >= 10000) return `${(ms / 1000).toFixed(1)} s`;
    return `${ms >= 100 ? Math.round(ms) : ms >= 10 ? ms.toFixed(1) : ms.toFixed(2)} ms`;
}

export function per(value) {
    if (value < 0.05) return "0";
    return value >= 100
        ? Math.round(value).toLocaleString("en")
        : value >= 10
          ? value.toFixed(0)
          : value.toFixed(1);
}

export function percent(share) {
    return share === null
        ? ""
        : `${Math.floor(share * 1000) / 10 >= 99.9 && share < 1 ? "99.9" : Math.round(share * 100)}%`;
}

export function duration(ms) {
    const s = Math.floor(ms / 1000);
    if (s < 120) return `${s} s`;
    if (s < 7200) return `${Math.floor(s / 60)} min`;
    return s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} days`;
}
