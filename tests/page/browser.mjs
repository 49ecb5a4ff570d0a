// SPDX-License-Identifier: Apache-2.0
// A headless Chromium for tests of the page, and a runner for them. What every test wants without saying so:
// nothing in
// the console, no request to another origin, no error in the page.
//
//     await run(async (browser) => ({
//         "a name": async () => {
//             const seen = await open(browser, base, {viewport: {width: 375, height: 740}});
//             ...
//             await seen.close();      checks the above
//         },
//     }));
//
// CHROMIUM is the program, PAGE_PACKAGES the folder with node_modules/, PAGE_SHOTS (optional) a folder for pictures.
import fs from "node:fs";
import {createRequire} from "node:module";
import path from "node:path";

const require = createRequire(path.join(process.env.PAGE_PACKAGES, "package.json"));
const {chromium} = require("playwright-core");
const AXE = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const SECONDS_MAX = 60;

export const CHAT = "/v1/chat/completions";

export async function run(makeTests) {
    const browser = await chromium.launch({
        executablePath: process.env.CHROMIUM,
        args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
    });
    let failed = 0;
    for (const [name, test] of Object.entries(await makeTests(browser))) {
        const since = performance.now();
        try {
            await test();
            console.log(`ok ${name} (${Math.round(performance.now() - since)} ms)`);
        } catch (error) {
            failed++;
            console.log(`FAILED ${name}: ${error.stack}`);
            await keepPictures(browser, name);
        }
        for (const context of browser.contexts()) await context.close();
    }
    await browser.close();
    console.log(failed ? `${failed} failed` : "all passed");
    process.exitCode = failed ? 1 : 0;
}

async function keepPictures(browser, name) {
    if (!process.env.PAGE_SHOTS) return;
    for (const context of browser.contexts())
        for (const page of context.pages()) await picture(page, `failed-${name.replace(/\W+/g, "-")}`);
}

// A page of `base`, watched. `expect`: texts of the console that this test brings about itself.
export async function open(browser, base, options = {}, expect = []) {
    const context = await browser.newContext({baseURL: base, ...options});
    context.setDefaultTimeout(SECONDS_MAX * 1000);
    const page = await context.newPage();
    const faults = [];
    page.on("console", (message) => {
        if (["error", "warning"].includes(message.type()) && !expect.some((e) => message.text().includes(e)))
            faults.push(`console: ${message.text()}`);
    });
    page.on("pageerror", (error) => faults.push(`error: ${error.stack}`));
    context.on("request", (request) => {
        if (new URL(request.url()).origin !== new URL(base).origin) faults.push(`asked: ${request.url()}`);
    });
    await page.goto("/");
    return {
        page,
        context,
        async close() {
            if (faults.length) throw new Error(faults.join("\n"));
            await context.close();
        },
    };
}

export async function picture(page, name) {
    if (process.env.PAGE_SHOTS) await page.screenshot({path: path.join(process.env.PAGE_SHOTS, `${name}.png`)});
}

// Throws what axe finds, each with the elements.
export async function checkAccess(page, name) {
    const violations = await page.evaluate(`${AXE}; axe.run(document, {resultTypes: ["violations"]})
        .then((found) => found.violations.map((v) => [v.id, v.help, ...v.nodes.map((n) => n.html.slice(0, 160))]))`);
    if (violations.length) throw new Error(`${name}: ${violations.map((v) => v.join("\n    ")).join("\n  ")}`);
}

// Throws when anything of the page is wider than the screen, but for what scrolls by itself.
export async function checkWidth(page, name) {
    const wide = await page.evaluate(() => {
        const scrolls = (e) =>
            e && (/auto|scroll|hidden/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
        const inView = (e) =>
            e.checkVisibility({visibilityProperty: true}) && !e.closest(".unseen, .skip, .sprite");
        const out = Array.from(document.querySelectorAll("body *"))
            .filter((e) => inView(e) && e.getBoundingClientRect().right > innerWidth + 0.5)
            .filter(
                (e) => !(e.parentElement !== document.body && scrolls(e.parentElement.closest("pre, .table"))),
            );
        const root = document.documentElement;
        if (root.scrollWidth > innerWidth) out.push(root);
        return out.map((e) => `${e.tagName}.${e.className}`).slice(0, 5);
    });
    if (wide.length) throw new Error(`${name}: wider than the screen: ${wide.join(", ")}`);
}

export function equal(got, wanted, what = "") {
    if (JSON.stringify(got) !== JSON.stringify(wanted))
        throw new Error(`${what}: got ${JSON.stringify(got)}, wanted ${JSON.stringify(wanted)}`);
}

export function check(fact, what) {
    if (!fact) throw new Error(what);
}

// Until `ask` gives something true.
export async function until(ask, what, seconds = SECONDS_MAX) {
    const end = Date.now() + seconds * 1000;
    for (;;) {
        const value = await ask();
        if (value) return value;
        if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
        await new Promise((resolve) => setTimeout(resolve, 30));
    }
}

// ---- What tests of the chat do again and again ----

export async function send(page, text) {
    await page.getByLabel("Message", {exact: true}).fill(text);
    await page.keyboard.press("Enter");
}

export async function answered(page) {
    await page.waitForFunction(() => {
        const all = document.querySelectorAll(".answer");
        return all.length && !all[all.length - 1].classList.contains("running");
    });
    return page.locator(".answer").last();
}

export const event = (value) => `data: ${JSON.stringify(value)}\n\n`;

// Every question gets this text, as a stream; `more` is of its last event.
export async function answerWith(page, text, more = {}) {
    await page.route(`**${CHAT}`, (route) => {
        const piece = (content, finish, extra = {}) =>
            event({id: "x", choices: [{index: 0, delta: {content}, finish_reason: finish}], ...extra});
        const pieces = text.match(/[^]{1,24}/g) ?? [];
        route.fulfill({
            status: 200,
            headers: {"Content-Type": "text/event-stream"},
            body: pieces.map((p) => piece(p, null)).join("") + piece("", "stop", more) + "data: [DONE]\n\n",
        });
    });
}

// Texts of marks in any order, the same each time.
export function* randomTexts(count, length) {
    const marks = [
        "\n",
        "\n\n",
        "- ",
        "1. ",
        "  ",
        "    ",
        "> ",
        "# ",
        "```\n",
        "~~~",
        "`",
        "``",
        "*",
        "**",
        "_",
        "~~",
        "[",
        "](",
        "https://a.b/c",
        ")",
        "|",
        "|-|\n",
        "---\n",
        "===\n",
        "a",
        "b c",
        "\\",
        "<br>",
        "<b>",
        "&lt;",
        "- [x] ",
        "!",
        "\t",
    ];
    let state = 12345;
    const next = (n) => {
        state = (Math.imul(state, 1103515245) + 12345) >>> 0;
        return (state >>> 8) % n;
    };
    for (let i = 0; i < count; i++)
        yield Array.from({length: 1 + next(length)}, () => marks[next(marks.length)]).join("");
}

export const RICH = `## A binary search

It halves the range at each step, so that it needs about **log2 n** steps. Two things go wrong often:

1. the middle of two large numbers *overflows*;
2. the range never becomes empty.
   - with \`<=\` it must shrink by one
   - with \`<\` it must not

\`\`\`c
#include <stddef.h>

/* The place of \`key\`, or n: one line of this is long enough for a phone to be too narrow for it. */
size_t search(const int *a, size_t n, int key)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2; // no overflow
        if (a[middle] < key) low = middle + 1;
        else high = middle;
    }
    return low < n && a[low] == key ? low : n;
}
\`\`\`

| n | steps | what it is good for, in many words | linear |
|--:|--:|---|:-:|
| 10 | 4 | little, but it does not matter either | 10 |
| 1,000,000 | 20 | much | 1,000,000 |

> What is sorted once is searched often.

- [x] sorted
- [ ] compared in [constant time](https://example.org/time)

Averylongwordthatnobodywouldeverwritebutamodelmightifitisaskedforthelongestwordthatitknowsandthensome.

\`\`\`python
def search(a, key):
    """The place of key, or None."""
    return 1
\`\`\`
`;
