// SPDX-License-Identifier: Apache-2.0
// A token's journey, drawn: the stops of one step from the coordinator through everybody and back, each with its
// milliseconds, and a dot that travels while answers are running (unless the reader wants no motion).
//
//   wide                                      narrow: a line of stops that turns at the edge
//   [in]--[embed]--[station-0]--[..]--[sample]        [in]-----[embed]
//     '------------ the next token -------------'             [st.]----[st.]'
//
// layoutJourney is pure: stops and a width to places.

import {percent, size, time} from "./cluster_model.mjs";

const SVG = "http://www.w3.org/2000/svg";
const STOP_WIDE = 148,
    BOX = {width: 112, height: 58},
    ROW = 124,
    TOP = 12,
    LOOP = 30;
const STOP_MS = 600,
    MOVE_SHARE = 0.45,
    DOTS_MAX = 3;

export function layoutJourney(count, width) {
    const perRow = Math.max(2, Math.min(count, Math.floor(width / STOP_WIDE)));
    const rows = Math.ceil(count / perRow),
        step = width / perRow;
    const places = [];
    for (let i = 0; i < count; i++) {
        const row = Math.floor(i / perRow),
            column = i % perRow;
        places.push({
            x: step * ((row % 2 ? perRow - 1 - column : column) + 0.5),
            y: TOP + row * ROW + BOX.height / 2,
            row,
        });
    }
    return {places, rows, perRow, height: TOP + rows * ROW + (rows === 1 ? LOOP : 0)};
}

// Where the dot is at `share` of a trip: it rests at each stop as long as its milliseconds, and moves in between.
export function whereAt(share, weights) {
    const sum = weights.reduce((a, b) => a + b, 0),
        moves = weights.length - 1;
    const move = sum > 0 ? MOVE_SHARE / moves : 1 / moves,
        rest = sum > 0 ? (1 - MOVE_SHARE) / sum : 0;
    let at = share;
    for (let i = 0; i < weights.length; i++) {
        if (at < weights[i] * rest || i === moves) return {stop: i, along: 0};
        at -= weights[i] * rest;
        if (at < move) return {stop: i, along: at / move};
        at -= move;
    }
    return {stop: moves, along: 0};
}

// ---- Elements ----

function s(name, attributes = {}, ...children) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
}

const SUBS = {start: () => "the text so far", sample: () => "merge, pick one"};

function subOf(stop, inTurn) {
    if (SUBS[stop.kind]) return SUBS[stop.kind]();
    if (stop.kind === "station") return stop.nodes[0].owns;
    if (stop.nodes.length === 1) return `at ${stop.nodes[0].id}`;
    return stop.kind === "embed"
        ? `one of ${stop.nodes.length} shards`
        : `${stop.nodes.length} shards${inTurn ? " in turn" : ""}`;
}

export const EXPLAIN = {
    start: "The coordinator talks with clients. It knows the text so far as numbers, one for each token.",
    embed: "The last token's number becomes a row of numbers: its embedding, kept by the shard that has this token.",
    station:
        "The row goes through this station's layers, which look back at the conversation and change it.",
    logits: "Every shard says how likely each of its tokens is to come next.",
    sample:
        "The coordinator merges what the shards say and picks one token. It goes to the client, and the " +
        "journey begins again.",
};

function drawStop(stop, place, inTurn) {
    const left = place.x - BOX.width / 2,
        top = place.y - BOX.height / 2;
    const group = s("g", {class: `stop ${stop.kind}`, "data-tip": EXPLAIN[stop.kind]});
    group.append(
        s("rect", {class: "box", x: left, y: top, width: BOX.width, height: BOX.height, rx: 10}),
    );
    const title = s(
        "text",
        {class: "title", x: place.x, y: top + 24, "text-anchor": "middle"},
        stop.title,
    );
    const sub = s(
        "text",
        {class: "sub", x: place.x, y: top + 43, "text-anchor": "middle"},
        subOf(stop, inTurn),
    );
    const ms = s("text", {class: "ms", x: place.x, y: top + BOX.height + 20, "text-anchor": "middle"});
    const more = s("text", {
        class: "more",
        x: place.x,
        y: top + BOX.height + 37,
        "text-anchor": "middle",
    });
    group.append(title, sub, ms, more);
    return {group, ms, more};
}

function drawWay(a, b) {
    const half = BOX.width / 2;
    if (a.row !== b.row)
        return s("path", {
            class: "way",
            d: `M${a.x} ${a.y + BOX.height / 2 + 44}V${b.y - BOX.height / 2 - 4}`,
            "marker-end": "url(#way-end)",
        });
    const right = b.x > a.x;
    return s("path", {
        class: "way",
        d: `M${a.x + (right ? half : -half)} ${a.y}H${b.x + (right ? -half - 5 : half + 5)}`,
        "marker-end": "url(#way-end)",
    });
}

function drawLoop(places, height) {
    const first = places[0],
        last = places.at(-1),
        y = height - 12;
    const top = first.y + BOX.height / 2 + 6;
    return [
        s("path", {
            class: "way loop",
            d: `M${last.x} ${top + 44}V${y - 8}q0 8 -8 8H${first.x + 8}q-8 0 -8 -8V${top + 4}`,
            "marker-end": "url(#way-end)",
        }),
        s(
            "text",
            {class: "loop-text", x: (first.x + last.x) / 2, y: y - 7, "text-anchor": "middle"},
            "once more, for the next token",
        ),
    ];
}

function marker() {
    return s(
        "defs",
        {},
        s(
            "marker",
            {
                id: "way-end",
                viewBox: "0 0 8 8",
                refX: 5,
                refY: 4,
                markerWidth: 7,
                markerHeight: 7,
                orient: "auto-start-reverse",
            },
            s("path", {class: "tip", d: "M1 1l5 3-5 3"}),
        ),
    );
}

// ---- The drawing ----

export class Journey {
    constructor(place) {
        this.place = place;
        this.motion = matchMedia("(prefers-reduced-motion: reduce)");
        this.resized = new ResizeObserver(() => this.journey && this.draw());
        this.resized.observe(place);
    }

    show(journey, active) {
        const shape = journey.stops.map((stop) => stop.title).join();
        this.journey = journey;
        this.active = active;
        if (shape !== this.shape || !this.svg) this.draw();
        this.shape = shape;
        this.fill();
        this.animate();
    }

    draw() {
        const width = Math.max(260, Math.floor(this.place.clientWidth));
        if (
            !this.place.clientWidth ||
            (width === this.width && this.drawn === this.journey.stops.length)
        )
            return;
        const {stops} = this.journey,
            layout = layoutJourney(stops.length, width);
        this.width = width;
        this.drawn = stops.length;
        this.places = layout.places;
        this.svg = s("svg", {
            viewBox: `0 0 ${width} ${layout.height}`,
            width,
            height: layout.height,
            role: "img",
            "aria-labelledby": "journey-title",
        });
        this.svg.append(s("title", {id: "journey-title"}), marker());
        for (let i = 1; i < stops.length; i++)
            this.svg.append(drawWay(this.places[i - 1], this.places[i]));
        if (layout.rows === 1) this.svg.append(...drawLoop(this.places, layout.height));
        this.stops = stops.map((stop, i) => drawStop(stop, this.places[i], this.journey.inTurn));
        this.svg.append(...this.stops.map((stop) => stop.group));
        this.dots = Array.from({length: DOTS_MAX}, () =>
            s("circle", {class: "token", r: 6, cx: 0, cy: 0}),
        );
        this.svg.append(...this.dots);
        this.place.replaceChildren(this.svg);
        this.fill();
    }

    fill() {
        if (!this.svg) return;
        const {stops, known, ms} = this.journey;
        const title = known
            ? `One step takes ${time(ms)}: ` +
              stops
                  .slice(1)
                  .filter((stop) => stop.ms)
                  .map((stop) => `${stop.title} ${time(stop.ms)}`)
                  .join(", ")
            : `A token goes through ${stops.map((stop) => stop.title).join(", ")}; no step was measured yet`;
        setText(this.svg.querySelector("title"), title);
        stops.forEach((stop, i) => {
            const drawn = this.stops[i];
            const bad = stop.nodes.find(
                (node) => node.kind !== "coordinator" && node.state !== "ready",
            );
            drawn.group.classList.toggle("missing", bad?.state === "gone" || bad?.state === "unfit");
            setText(drawn.ms, bad ? bad.word : time(stop.ms));
            setText(
                drawn.more,
                stop.sent
                    ? `${size(stop.sent)} in, ${size(stop.received)} out`
                    : stop.ms && ms
                      ? `${percent(Math.min(1, stop.ms / ms))} of a step`
                      : "",
            );
        });
    }

    animate() {
        const moves = this.active > 0 && !this.motion.matches;
        this.place.classList.toggle("busy", this.active > 0);
        if (moves && !this.frame) this.frame = requestAnimationFrame((now) => this.move(now));
        if (!moves) this.rest();
    }

    move(now) {
        const weights = this.journey.stops.map((stop) => stop.ms),
            at = new Set();
        const count = Math.min(DOTS_MAX, this.active);
        this.dots.forEach((dot, i) => {
            const where =
                i < count ? whereAt((now / this.tripMs() + i / count) % 1, weights) : {along: 0};
            dot.classList.toggle("shown", where.along > 0);
            if (i >= count) return;
            if (where.along > 0) this.put(dot, where);
            else at.add(where.stop); // inside: the stop is lit
        });
        this.stops.forEach((stop, i) => stop.group.classList.toggle("at", at.has(i)));
        this.frame = requestAnimationFrame((next) => this.move(next));
    }

    // Between the edges of two stops.
    put(dot, {stop, along}) {
        const from = this.places[stop],
            to = this.places[stop + 1],
            turns = from.row !== to.row;
        const edge = turns ? 0 : (Math.sign(to.x - from.x) * BOX.width) / 2;
        const top = turns ? BOX.height / 2 + 44 : 0,
            end = turns ? -BOX.height / 2 : 0;
        dot.setAttribute(
            "transform",
            `translate(${mix(from.x + edge, to.x - edge, along)} ${mix(from.y + top, to.y + end, along)})`,
        );
    }

    rest() {
        cancelAnimationFrame(this.frame);
        this.frame = 0;
        for (const dot of this.dots ?? []) dot.classList.remove("shown");
        for (const stop of this.stops ?? []) stop.group.classList.remove("at");
    }

    tripMs() {
        return STOP_MS * this.journey.stops.length;
    }

    slowness() {
        return this.journey.ms ? Math.round(this.tripMs() / this.journey.ms) : 0;
    }

    close() {
        this.rest();
        this.resized.disconnect();
    }
}

const mix = (a, b, share) => (a + (b - a) * share).toFixed(1);

function setText(element, words) {
    if (element.textContent !== words) element.textContent = words;
}
