// SPDX-License-Identifier: Apache-2.0
// The cluster's view in Chromium, against 2 stations and 4 shards of tests/system/page_cluster_test.py. Where one of
// them has to do something, a line "! WORD" asks for it, and the next line of standard input says that it is done.
//
//   node cluster.mjs http://127.0.0.1:PORT
import readline from "node:readline";

import {check, checkAccess, checkWidth, equal, open, picture, run, until} from "./browser.mjs";

const [base] = process.argv.slice(2);
const WIDE = {viewport: {width: 1280, height: 900}}, PHONE = {viewport: {width: 375, height: 760}};
const DROPPED = ["Failed to load resource"]; // of servers that these tests stop
const input = readline.createInterface({input: process.stdin});
const done = input[Symbol.asyncIterator]();

async function turn(word) {
    console.log(`! ${word}`);
    await done.next();
}

async function look(browser, options, expect = []) {
    const seen = await open(browser, base, options, expect);
    seen.asked = 0;
    seen.page.on("request", (request) => {
        if (new URL(request.url()).pathname === "/cluster") seen.asked++;
    });
    await seen.page.locator("#tab-cluster").click();
    await seen.page.locator(".segment").first().waitFor();
    return seen;
}

const attributes = (page, selector, name) =>
    page.locator(selector).evaluateAll((all, wanted) => all.map((e) => e.getAttribute(wanted)), name);
const rows = (page) => page.locator(".cluster tbody tr").evaluateAll((all) => all.map((r) => r.textContent));
const notice = (page) => page.locator(".cluster > .notice").innerText();
const segment = (page, id) => page.locator(`.segment[aria-label^="${id}:"]`);
const stateOf = (page, id) => segment(page, id).getAttribute("data-state");

async function draws(browser) {
    const seen = await look(browser, WIDE), {page} = seen;
    equal(await attributes(page, ".segment", "aria-label"), [
        "station-0: layers 0 to 14, ready", "station-1: layers 15 to 29, ready",
        "shard-0: tokens 0 to 12,287, ready", "shard-1: tokens 12,288 to 24,575, ready",
        "shard-2: tokens 24,576 to 36,863, ready", "shard-3: tokens 36,864 to 49,151, ready"]);
    const places = await page.locator(".segment").evaluateAll((all) => all.map((s) => {
        const lane = s.parentElement.getBoundingClientRect(), own = s.getBoundingClientRect();
        return [Math.round(100 * (own.left - lane.left) / lane.width), Math.round(100 * own.width / lane.width)];
    }));
    equal(places, [[0, 50], [50, 50], [0, 25], [25, 25], [50, 25], [75, 25]]);
    equal(await page.locator(".journey .stop").count(), 6);
    equal(await page.locator("article.card").count(), 7);
    const meters = await until(async () => {
        const labels = await attributes(page, ".card .meter:not(.hits):not([hidden])", "aria-label");
        return labels.length === 7 && labels;
    }, "everybody's memory");
    for (const label of meters)
        check(/^Memory: [\d.]+ MiB of \d+ MiB, at its peak [\d.]+ MiB$/.test(label), label);
    equal((await rows(page)).length, 7);
    check((await rows(page))[1].startsWith("station-0layers 0 to 14ready"), "the table says the same");
    await seen.close();
}

async function keys(browser) {
    const seen = await look(browser, WIDE), {page} = seen;
    await page.locator("#tab-cluster").focus();
    for (let i = 0; i < 20 && !(await page.evaluate(() => document.activeElement.matches(".segment"))); i++)
        await page.keyboard.press("Tab");
    await page.keyboard.press("Tab");
    await until(async () => (await page.locator(".tip-box").innerText()) === "station-1: layers 15 to 29. ready.",
        "the text of a node");
    await page.keyboard.press("Escape");
    check(await page.locator(".tip-box").isHidden(), "Esc hides the text");
    await page.keyboard.press("Enter");
    equal(await page.evaluate(() => document.activeElement.id), "node-station-1");
    await seen.close();
}

async function moves(browser) {
    const seen = await look(browser, WIDE), {page} = seen;
    const before = await rows(page), dot = page.locator(".journey .token.shown");
    await turn("ask");
    await until(async () => Number(await page.locator(".facts .large").innerText()) > 1, "tokens a second");
    await until(async () => (await page.locator(".slot.taken").count()) === 1, "its slot");
    await until(() => dot.count(), "the dot");
    const times = () => page.locator(".journey .stop:not(.start) .ms").allTextContents();
    await until(async () => (await times()).every((ms) => / ms$/.test(ms)), "each stop's milliseconds");
    await until(async () => (await rows(page)).slice(1).every((row, i) => row !== before[i + 1]), "figures");
    const title = await page.locator(".journey title").textContent();
    check(/^One step takes .* ms: .*station-0 .* ms, station-1 .* ms/.test(title), title);
    await picture(page, "cluster-busy");
    await page.emulateMedia({reducedMotion: "reduce"});
    await until(async () => !(await page.locator(".journey .token.shown, .journey .at").count()), "no motion");
    await turn("rest");
    await seen.close();
}

async function access(browser) {
    for (const [name, options] of [["light", WIDE], ["dark", {...WIDE, colorScheme: "dark"}], ["phone", PHONE]]) {
        const seen = await look(browser, {...options, reducedMotion: "reduce"});
        await seen.page.locator(".cluster summary").first().click();
        await checkAccess(seen.page, name);
        await picture(seen.page, `cluster-${name}`);
        if (options === PHONE) await onAPhone(seen.page);
        await seen.close();
    }
}

async function onAPhone(page) {
    const overflow = () => page.evaluate(() => document.querySelector("#cluster").scrollWidth - innerWidth);
    check((await overflow()) <= 0, "the table scrolls by itself");
    const lines = async () => new Set(await attributes(page, ".journey .box", "y")).size;
    equal(await lines(), 3, "the journey turns at the edge");
    await page.setViewportSize(WIDE.viewport);
    await until(async () => (await lines()) === 1, "one line when it is wide");
    await page.setViewportSize(PHONE.viewport);
    await until(async () => (await lines()) === 3, "and back");
    check((await overflow()) <= 0, "also when it was wide before");
    await page.locator(".cluster summary").first().click();
    await checkWidth(page, "phone");
}

async function lost(browser) {
    const seen = await look(browser, {...WIDE, reducedMotion: "reduce"}), {page} = seen;
    await turn("kill station-1");
    await until(async () => (await stateOf(page, "station-1")) === "gone", "station-1 is gone");
    check((await segment(page, "station-1").getAttribute("aria-label")).endsWith(", gone"), "in words");
    await until(async () => /station-1 .*layers 15-end/.test(await notice(page)), "it is said");
    equal(await page.locator("#node-station-1 .state").innerText(), "gone");
    equal(await stateOf(page, "station-0"), "ready");
    await checkAccess(page, "gone");
    await picture(page, "cluster-gone");
    await turn("start station-1");
    await until(async () => (await stateOf(page, "station-1")) === "ready", "it is back");
    await until(() => page.locator(".cluster > .notice").isHidden(), "nothing is said");
    await seen.close();
}

async function unseen(browser) {
    const seen = await look(browser, WIDE), {page} = seen;
    await page.locator("#tab-chat").click();
    await page.waitForTimeout(500);
    const before = seen.asked;
    await page.waitForTimeout(1700);
    equal(seen.asked, before, "nobody looks, nothing is asked");
    await page.locator("#tab-cluster").click();
    await page.locator(".segment").first().waitFor();
    check(seen.asked > before, "asked again");
    await seen.close();
}

async function refused(browser) {
    const seen = await look(browser, WIDE, DROPPED), {page} = seen;
    const error = {message: "this key may not look", code: "insufficient_permissions"};
    await page.route("**/cluster", (route) => route.fulfill({status: 403, json: {error}}));
    await until(async () => /may not look/.test(await notice(page)), "it is said");
    const before = seen.asked;
    await page.waitForTimeout(1200);
    equal(seen.asked, before, "nothing changes by asking");
    await page.unroute("**/cluster");
    await page.getByRole("button", {name: "Ask again"}).click();
    await until(() => page.locator(".cluster > .notice").isHidden(), "it is allowed");
    await seen.close();
}

async function gone(browser) {
    const seen = await look(browser, WIDE, DROPPED), {page} = seen;
    await turn("kill coordinator-0");
    await until(async () => /does not answer/.test(await notice(page)), "it is said");
    const before = seen.asked;
    await page.waitForTimeout(1500);
    check(seen.asked - before <= 2, `asked ${seen.asked - before} times in 1.5 s`);
    equal(await page.locator(".segment").count(), 6, "what was known stays");
    await turn("start coordinator-0");
    await until(() => page.locator(".cluster > .notice").isHidden(), "it is back", 15);
    await seen.close();
}

// Nothing is asked of the cluster by these: each has a page of its own, at the same time.
async function quiet(browser) {
    await Promise.all([draws, keys, access, unseen, refused].map((test) => test(browser)));
}

await run((browser) => Object.fromEntries([quiet, moves, lost, gone].map((test) => [test.name, () => test(browser)])));
input.close();
process.stdin.destroy();
