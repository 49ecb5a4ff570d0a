// SPDX-License-Identifier: Apache-2.0
// From an answer of GET /cluster to what is drawn: the pure parts of the cluster's view, under node.
//
//   node --test tests/page/cluster_model_test.mjs

import assert from "node:assert/strict";
import test from "node:test";

import {layoutJourney, whereAt} from "../../web/cluster_journey.mjs";
import {duration, modelOf, parseRange, per, percent, size, time} from "../../web/cluster_model.mjs";

const MIB = 2 ** 20;
const memory = (now, peak, budget) => ({
    budget_bytes: budget * MIB,
    need_bytes: budget * MIB,
    resident_bytes: now * MIB,
    peak_bytes: peak * MIB,
});
const station = (part, range, more = {}) => ({
    id: `station-${part}`,
    role: "station",
    address: `10.0.0.${part}:90`,
    range,
    part,
    replica: false,
    state: "ready",
    ready: true,
    active: true,
    calls: 10,
    bytes_sent: 1000,
    bytes_received: 2000,
    p50_us: 1200,
    p95_us: 2400,
    hops: {forward: {rows: 1, us: 1500, bytes_sent: 600, bytes_received: 700}},
    memory: memory(40, 50, 128),
    weights: {resident: false, bytes: 100, pinned_bytes: 25},
    last_error: "",
    ...more,
});
const shard = (part, ids, more = {}) => ({
    id: `shard-${part}`,
    role: "shard",
    ids,
    part,
    replica: false,
    state: "ready",
    ready: true,
    active: true,
    calls: 5,
    hops: {
        embed: {rows: 1, us: 300, bytes_sent: 10, bytes_received: 20 + part},
        logits: {rows: 1, us: 800 + part, bytes_sent: 100, bytes_received: 50},
    },
    memory: memory(20, 30, 128),
    weights: {resident: true, bytes: 100, pinned_bytes: 0},
    last_error: "",
    ...more,
});

function answer(more = {}) {
    return {
        draining: false,
        kind: "cluster",
        model: "m",
        version: "1",
        knot_id: "ab",
        ready: true,
        complete: true,
        uptime_ms: 10000,
        refresh_ms: 1000,
        layers: 30,
        vocabulary: 1000,
        context: 512,
        queue: {
            slots: 4,
            active: 1,
            waiting: 2,
            limit: 9,
            answers: 3,
            generated_tokens: 100,
            failed: 0,
            refused: 0,
        },
        step: {count: 50, rows: 1, embed_us: 400, forward_us: 3100, logits_us: 900, own_us: 200},
        coordinator: {id: "coordinator-0", memory: memory(10, 12, 64)},
        nodes: [station(0, "0-15"), station(1, "15-end"), shard(0, [0, 500]), shard(1, [500, 1000])],
        ...more,
    };
}

test("ranges", () => {
    assert.deepEqual(parseRange("0-15", 30), {from: 0, to: 15});
    assert.deepEqual(parseRange("15-end", 30), {from: 15, to: 30});
    assert.deepEqual(parseRange("2.ffn_up-3.attn", 30), {from: 2.5, to: 3});
    for (const bad of ["", "5", "7-5", "0-31", "x-y", undefined, 5])
        assert.equal(parseRange(bad, 30), null, bad);
});

test("who owns what", () => {
    const model = modelOf(answer());
    assert.deepEqual(
        model.nodes.map((n) => n.owns),
        ["layers 0 to 14", "layers 15 to 29", "tokens 0 to 499", "tokens 500 to 999"],
    );
    assert.deepEqual(
        model.nodes.map((n) => [n.start, n.end]),
        [
            [0, 0.5],
            [0.5, 1],
            [0, 0.5],
            [0.5, 1],
        ],
    );
    const [layers, ids] = model.strips;
    assert.deepEqual(
        layers.rows.map((row) => row.nodes.map((n) => n.id)),
        [["station-0", "station-1"]],
    );
    assert.deepEqual([ids.total, ids.rows[0].nodes.length], [1000, 2]);
});

test("replicas and wardens have rows of their own", () => {
    const replica = station(0, "0-15", {id: "station-0-1", replica: true, active: false});
    const warden = {
        id: "layer-warden-0",
        role: "layer-warden",
        range: "0-end",
        part: 0,
        state: "ready",
        ready: true,
        memory: {...memory(20, 22, 128), cache_bytes: 60 * MIB, need_bytes: 90 * MIB},
        cache: {hits: 75, misses: 25, bytes: 5, l2_hits: 0, l2_misses: 0, store_bytes: 9},
    };
    const model = modelOf(
        answer({
            nodes: [station(0, "0-15"), replica, station(1, "15-end"), shard(0, [0, 1000]), warden],
        }),
    );
    assert.deepEqual(
        model.strips[0].rows.map((row) => row.label),
        ["stations", "replicas", "wardens"],
    );
    assert.equal(model.nodes[1].word, "standing by");
    assert.deepEqual(
        [model.nodes[4].kind, model.nodes[4].cache.share, model.nodes[4].cache.below],
        ["warden", 0.75, null],
    );
    assert.equal(model.nodes[4].memory.now, 90 * MIB, "what it keeps in a file of memory counts");
});

test("states in words", () => {
    const word = (state, more = {}) =>
        modelOf(answer({nodes: [station(0, "0-end", {state, ...more})]})).nodes[0];
    for (const [state, wanted] of [
        ["ready", "ready"],
        ["loading", "loading"],
        ["not ready", "loading"],
        ["unknown", "loading"],
        ["draining", "draining"],
        ["down", "gone"],
        ["unreachable", "gone"],
        ["unfit", "does not fit"],
        ["of the future", "loading"],
    ])
        assert.equal(word(state).word, wanted, state);
    assert.equal(word("down", {last_error: "refused"}).why, "refused");
    assert.equal(
        word("ready", {last_error: "long ago"}).why,
        "",
        "an old failure of one that works is not shown",
    );
});

test("rates are of what grew", () => {
    const before = modelOf(answer());
    const later = answer({uptime_ms: 12000});
    later.queue.generated_tokens = 150;
    later.nodes[0].calls = 40;
    const model = modelOf(later, before);
    assert.deepEqual(
        [model.rates.tokens, model.nodes[0].rates.calls, model.nodes[1].rates.calls],
        [25, 15, 0],
    );
    assert.deepEqual(modelOf(later, model).rates, model.rates, "the same text once more");
    assert.equal(modelOf(answer({uptime_ms: 500}), model).rates, null, "it was started again");
    const restarted = answer({uptime_ms: 13000});
    restarted.nodes[0].calls = 1;
    assert.equal(modelOf(restarted, model).nodes[0].rates.calls, 0, "a counter that fell");
});

test("hit rates, lately", () => {
    const warden = (hits, misses) => ({
        id: "w",
        role: "shard-warden",
        ids: [0, 1000],
        state: "ready",
        cache: {hits, misses, bytes: 0},
    });
    const before = modelOf(answer({nodes: [warden(100, 100)]}));
    const model = modelOf(answer({uptime_ms: 11000, nodes: [warden(190, 110)]}), before);
    assert.deepEqual([model.nodes[0].rates.hits, model.nodes[0].rates.looked], [0.9, 100]);
    assert.equal(
        modelOf(answer({uptime_ms: 12000, nodes: [warden(190, 110)]}), model).nodes[0].rates.hits,
        null,
    );
});

test("a token's journey", () => {
    const {journey} = modelOf(answer());
    assert.deepEqual(
        journey.stops.map((stop) => [stop.title, stop.ms]),
        [
            ["coordinator", 0],
            ["embed", 0.4],
            ["station-0", 1.5],
            ["station-1", 1.5],
            ["logits", 0.801],
            ["sample", 0.2],
        ],
    );
    assert.deepEqual([journey.known, journey.rows, Math.round(journey.ms * 10)], [true, 1, 44]);
    assert.deepEqual(
        [journey.stops[1].received, journey.stops[4].sent],
        [21, 200],
        "one shard embeds, all say logits",
    );
    const ends = modelOf(
        answer({nodes: [station(0, "0-15", {embed: true}), station(1, "15-end", {head: true})]}),
    ).journey;
    assert.deepEqual(
        ends.stops.map((stop) => stop.nodes[0].id),
        ["coordinator-0", "station-0", "station-0", "station-1", "station-1", "coordinator-0"],
    );
});

test("a replica that took over is the stop", () => {
    const lost = station(0, "0-15", {state: "down", active: false});
    const taking = station(0, "0-15", {id: "station-0-1", replica: true, active: true});
    assert.equal(
        modelOf(answer({nodes: [lost, taking, station(1, "15-end")]})).journey.stops[2].title,
        "station-0-1",
    );
});

test("one process", () => {
    const nodes = [
        station(0, "0-end", {memory: undefined, active: undefined, calls: undefined}),
        shard(0, [0, 1000]),
    ];
    const model = modelOf(answer({kind: "process", nodes}));
    assert.deepEqual(
        [model.kind, model.nodes[0].memory, model.nodes[0].word],
        ["process", null, "ready"],
    );
    assert.equal(Math.round(model.journey.ms * 10), 46, "its own work comes on top");
});

test("what is missing is nothing, and what is no answer is refused", () => {
    const model = modelOf({nodes: [{}, {id: "a", role: "station", range: "0-99"}]});
    assert.deepEqual(
        [model.nodes[0].id, model.nodes[1].span, model.journey.known, model.busy],
        ["", null, false, false],
    );
    for (const bad of [null, undefined, "x", {}, {nodes: 5}])
        assert.throws(() => modelOf(bad), TypeError);
});

test("the journey's places", () => {
    const wide = layoutJourney(6, 1000);
    assert.equal(wide.rows, 1);
    const phone = layoutJourney(6, 340);
    assert.deepEqual(
        phone.places.map((p) => p.row),
        [0, 0, 1, 1, 2, 2],
    );
    assert.ok(phone.places[1].x === phone.places[2].x, "it turns at the edge");
    for (const width of [260, 340, 700, 1200])
        for (const count of [4, 5, 16, 40])
            for (const p of layoutJourney(count, width).places)
                assert.ok(p.x - 56 >= 0 && p.x + 56 <= width);
});

test("the dot is everywhere in turn, longest where it takes longest", () => {
    const weights = [0, 1, 3, 1],
        spent = [0, 0, 0, 0];
    let before = -1;
    for (let i = 0; i < 1000; i++) {
        const {stop, along} = whereAt(i / 1000, weights);
        assert.ok(stop + along >= before);
        before = stop + along;
        if (along === 0) spent[stop]++;
    }
    assert.ok(spent[2] > 2 * spent[1] && spent[1] > 50 && spent[3] > 50, spent.join());
    assert.equal(whereAt(0.999, [0, 0, 0]).stop, 1);
});

test("figures in words", () => {
    assert.deepEqual([0, 500, 2048, 45 * MIB, 300 * MIB, 3 * 2 ** 30].map(size), [
        "0 B",
        "500 B",
        "2.00 KiB",
        "45.0 MiB",
        "300 MiB",
        "3.00 GiB",
    ]);
    assert.deepEqual([0, undefined, 0.123, 12.34, 345.6, 12345].map(time), [
        "",
        "",
        "0.12 ms",
        "12.3 ms",
        "346 ms",
        "12.3 s",
    ]);
    assert.deepEqual([0, 1.25, 42.4, 1234].map(per), ["0", "1.3", "42", "1,234"]);
    assert.deepEqual([null, 0, 0.5, 0.9999, 1].map(percent), ["", "0%", "50%", "99.9%", "100%"]);
    assert.deepEqual([5000, 600000, 10800000, 259200000].map(duration), [
        "5 s",
        "10 min",
        "3 h",
        "3 days",
    ]);
});
