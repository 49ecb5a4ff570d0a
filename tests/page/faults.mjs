// SPDX-License-Identifier: Apache-2.0
// The chat when something is wrong: the server refuses, breaks off, is killed and started again, or wants a key.
// Argument 1 is
// the address of a server, 2 a free port, 3 a folder; COBORD is the program, for a server that is killed.
import {spawn} from "node:child_process";
import fs from "node:fs";
import path from "node:path";

import {answered, answerWith, CHAT, check, equal, event, open, picture, run, send, until} from "./browser.mjs";

const [base, port, folder] = process.argv.slice(2);
const FAILED = ["Failed to load resource"];
const LONG = {logit_bias: {2: -100, 0: -100}, seed: 5, max_tokens: 400};

const refusal =
    (status, code, message, more = {}, headers = {}) =>
    (route) =>
        route.fulfill({
            status,
            headers: {"Content-Type": "application/json", ...headers},
            body: JSON.stringify({
                error: {message, type: "x", param: null, code, retryable: status >= 429, ...more},
            }),
        });

// One question to a server that answers like this; the words that are shown.
async function refused(browser, answer, wanted, name) {
    const seen = await open(browser, base, {}, FAILED),
        {page} = seen;
    await page.route(`**${CHAT}`, answer);
    await send(page, "Hi");
    await answered(page);
    const words = await page.locator(".notice.bad p").innerText();
    check(wanted.test(words), `${name}: ${words}`);
    await until(async () => (await page.locator("#alarm").innerText()) === words, "it is said");
    await page.unroute(`**${CHAT}`);
    await answerWith(page, "Fine.");
    await page.getByRole("button", {name: "Try again"}).click();
    await until(
        async () => (await page.locator(".answer .prose").innerText()) === "Fine.",
        `${name}: an answer at last`,
    );
    equal(await page.locator(".answer").count(), 1, "answers");
    await seen.close();
}

const REFUSALS = [
    [
        "full queue",
        refusal(429, "queue_full", "the queue is full", {}, {"Retry-After": "7"}),
        /busy.*Try again in 7 s/,
    ],
    [
        "limit of a key",
        refusal(429, "rate_limit_exceeded", "10 requests a minute", {}, {"Retry-After": "3"}),
        /10 requests a minute\. Try again in 3 s/,
    ],
    [
        "draining",
        refusal(503, "shutting_down", "the server is shutting down"),
        /shutting down.*when it is back/,
    ],
    [
        "not complete",
        refusal(503, "not_ready", "layers 0..3 have no node"),
        /not complete.*Layers 0\.\.3 have no node/,
    ],
    [
        "too long",
        refusal(400, "context_length_exceeded", "too long", {n_prompt_tokens: 9000, n_ctx: 8192}),
        /9000 tokens.*8192/,
    ],
    ["not allowed", refusal(403, "insufficient_permissions", "this key may not"), /This key may not\./],
    ["no JSON", (route) => route.fulfill({status: 502, body: "<html>"}), /status 502/],
    ["gone", (route) => route.abort("connectionrefused"), /does not answer.*still running/],
];

async function wantsKey(browser) {
    const seen = await open(browser, base, {}, FAILED),
        {page} = seen;
    const keys = [];
    await page.route(`**${CHAT}`, (route) => {
        const given = route.request().headers().authorization;
        keys.push(given);
        if (given === "Bearer right") return route.fallback();
        return refusal(401, "invalid_api_key", "this key is not known")(route);
    });
    await send(page, "Hi");
    const dialog = page.getByRole("dialog", {name: "A key, please"});
    await picture(page, "key");
    await dialog.getByLabel("API key").fill("wrong");
    await page.keyboard.press("Enter");
    await dialog.getByText("The key was not taken").waitFor();
    await dialog.getByLabel("API key").fill("right");
    await dialog.getByRole("button", {name: "Use this key"}).click();
    await until(async () => (await page.locator(".answer .prose").innerText()).length > 0, "an answer");
    await answered(page);
    check((await page.locator(".answer .prose").innerText()).length > 0, "the answer stays");
    equal(keys, [undefined, "Bearer wrong", "Bearer right"], "keys");
    equal(
        await page.evaluate(() => [localStorage.getItem("cobord.key"), sessionStorage.getItem("cobord.key")]),
        [null, "right"],
        "kept",
    );
    await page.unroute(`**${CHAT}`);
    await seen.close();
}

// What somebody else says in the server's place is no wish for a key.
async function isElsewhere(browser) {
    const seen = await open(browser, base, {}, FAILED),
        {page} = seen;
    await page.route("**/v1/models", (route) => route.fulfill({status: 502, body: "<html>"}));
    await page.reload();
    await until(
        async () => (await page.locator("#server-text").innerText()) === "no answer",
        "the state without an answer",
    );
    await seen.close();
}

async function isDegraded(browser) {
    const seen = await open(browser, base),
        {page} = seen;
    await answerWith(page, "Something.", {degraded: true});
    await send(page, "Hi");
    await answered(page);
    check((await page.locator(".notice.warn").innerText()).includes("Degraded"), "it is marked");
    await page.reload();
    equal(await page.locator(".notice.warn").count(), 1, "marks after a reload");
    await seen.close();
}

// What fails in the midst: what came stays, and "Go on" asks for the rest.
async function breaksWithError(browser) {
    const seen = await open(browser, base),
        {page} = seen;
    const numbered = (id, value) => `id: c:${id}\n${event(value)}`;
    const text = (content, finish = null) => ({choices: [{index: 0, delta: {content}, finish_reason: finish}]});
    const asked = [];
    await page.route(`**${CHAT}`, (route) => {
        const after = route.request().headers()["last-event-id"];
        asked.push([route.request().method(), after]);
        const body = after
            ? numbered(3, text(" two", "stop")) + "data: [DONE]\n\n"
            : ": idle\n\n" +
              numbered(1, text("one")) +
              numbered(2, text(",")) +
              event({error: {message: "station-1 was lost", code: "unreachable", retryable: true}});
        route.fulfill({status: 200, headers: {"Content-Type": "text/event-stream"}, body});
    });
    await send(page, "Hi");
    await answered(page);
    equal(await page.locator(".answer .prose").innerText(), "one,");
    equal(await page.locator(".notice.bad p").innerText(), "Station-1 was lost.");
    await page.getByRole("button", {name: "Go on"}).click();
    await until(async () => (await page.locator(".answer .prose").innerText()) === "one, two", "the rest");
    await answered(page);
    equal(await page.locator(".answer .prose").innerText(), "one, two");
    equal(
        asked,
        [
            ["POST", undefined],
            ["GET", "c:2"],
        ],
        "requests",
    );
    await seen.close();
}

// ---- A server that goes and comes back ----

function serve(...more) {
    const journal = path.join(folder, "journal.db");
    const listen = ["--context", "1024", "--listen", `127.0.0.1:${port}`, "--journal", journal];
    listen.push("--drafts", "0"); // with guesses an answer would be over before its server is killed
    const child = spawn(process.env.COBORD, ["serve", "smollm2-135m", ...listen, ...more], {
        stdio: ["ignore", "pipe", "inherit"],
    });
    const ready = new Promise((resolve, reject) => {
        child.stdout.once("data", resolve);
        child.once("exit", (code) => reject(new Error(`the server ended with ${code}`)));
    });
    return {
        child,
        ready,
        kill: (signal) =>
            new Promise((resolve) => {
                child.once("exit", resolve);
                child.kill(signal);
            }),
    };
}

// Keys that are real: asked for at once, since the model's name needs one; then the limit of one request a minute.
async function realKeys(browser) {
    const file = path.join(folder, "keys.json");
    fs.writeFileSync(
        file,
        JSON.stringify({keys: [{name: "a", key: "a-key-for-tests", requests_per_minute: 1}]}),
    );
    fs.chmodSync(file, 0o600);
    const server = serve("--api-keys", file);
    await server.ready;
    const seen = await open(browser, `http://127.0.0.1:${port}`, {}, FAILED),
        {page} = seen;
    const dialog = page.getByRole("dialog", {name: "A key, please"});
    await dialog.getByLabel("API key").fill("another-key");
    await page.keyboard.press("Enter");
    await dialog.getByText("The key was not taken").waitFor();
    await dialog.getByLabel("API key").fill("a-key-for-tests");
    await dialog.getByLabel("Keep it in this browser").check();
    await page.keyboard.press("Enter");
    await until(
        async () => (await page.locator("#server-text").innerText()) === "smollm2-135m",
        "the model's name",
    );
    await page.reload();
    await send(page, "Hi");
    await answered(page);
    equal(await page.locator(".notice").count(), 0, "notices");
    await send(page, "Hi again");
    await answered(page);
    const words = await page.locator(".notice.bad p").innerText();
    check(/Try again in \d+ s/.test(words), words);
    await seen.close();
    await server.kill("SIGTERM");
}

// Questions are asked for a long answer, always the same; its text.
async function withLong(page) {
    await page.route(`**${CHAT}`, (route) => {
        const data = route.request().postData();
        route.continue(data ? {postData: JSON.stringify({...JSON.parse(data), ...LONG})} : {});
    });
    const response = await fetch(`http://127.0.0.1:${port}${CHAT}`, {
        method: "POST",
        headers: {"Content-Type": "application/json"},
        body: JSON.stringify({
            messages: [{role: "user", content: "Tell me of the sea."}],
            temperature: 0.7,
            ...LONG,
        }),
    });
    return (await response.json()).choices[0].message.content;
}

const kept = (page) =>
    page.evaluate(() => {
        const [{id}] = JSON.parse(localStorage.getItem("cobord.chats"));
        return JSON.parse(localStorage.getItem(`cobord.chat.${id}`)).messages.at(-1);
    });

async function goesOn(browser) {
    let server = serve();
    await server.ready;
    const seen = await open(browser, `http://127.0.0.1:${port}`, {}, [...FAILED, "ERR_"]),
        {page} = seen;
    const whole = await withLong(page);
    await send(page, "Tell me of the sea.");
    await until(async () => (await page.locator(".answer .prose").innerText()).length > 60, "a beginning");
    await server.kill("SIGKILL");
    await page.getByText("The line is broken").waitFor();
    server = serve();
    await server.ready;
    await answered(page);
    equal((await kept(page)).text, whole, "after a server that was killed");
    equal((await kept(page)).tokens, LONG.max_tokens, "tokens");

    await page.keyboard.press("Alt+n");
    await send(page, "Tell me of the sea.");
    await until(async () => (await page.locator(".answer .prose").innerText()).length > 60, "a beginning");
    await page.reload();
    check((await page.locator(".answer .prose").innerText()).length > 40, "what had come is there");
    await answered(page);
    equal((await kept(page)).text, whole, "after a reload in the midst");
    equal(await page.locator(".answer").count(), 1, "answers");

    await server.kill("SIGTERM");
    await send(page, "Are you there?");
    await answered(page);
    check(
        (await page.locator(".notice.bad p").innerText()).includes("does not answer"),
        "words when it is gone",
    );
    await picture(page, "gone");
    await until(
        async () => (await page.locator("#server").getAttribute("data-state")) === "gone",
        "the state says so",
        15,
    );
    await page.unroute(`**${CHAT}`);
    await seen.close();
}

await run((browser) => ({
    ...Object.fromEntries(
        REFUSALS.map(([name, answer, words]) => [name, () => refused(browser, answer, words, name)]),
    ),
    "a key": () => wantsKey(browser),
    "keys of a server": () => realKeys(browser),
    "no server behind it": () => isElsewhere(browser),
    degraded: () => isDegraded(browser),
    "an error in the midst": () => breaksWithError(browser),
    "a server that is killed, a page that is loaded again": () => goesOn(browser),
}));
