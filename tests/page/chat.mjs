// SPDX-License-Identifier: Apache-2.0
// The chat against a real server, whose address is the argument.
import {
    answered,
    answerWith,
    CHAT,
    check,
    checkWidth,
    equal,
    open,
    picture,
    randomTexts,
    RICH,
    run,
    send,
    until,
} from "./browser.mjs";

const base = process.argv[2];
const QUESTION = "Write a story about the sea.";
const NO_END = {logit_bias: {2: -100, 0: -100}}; // smollm2-135m's tokens that end an answer

const ask = async (path, body) => {
    const options = body && {
        method: "POST",
        headers: {"Content-Type": "application/json"},
        body: JSON.stringify(body),
    };
    return (await fetch(base + path, options)).json();
};
const stored = (page) =>
    page.evaluate(() => JSON.parse(localStorage.getItem("cobord.chats") ?? "[]").map((c) => c.title));

// Requests for answers as the page sent them; with `more` in them.
async function watchRequests(page, more = {}) {
    const bodies = [];
    await page.route(`**${CHAT}`, (route) => {
        const body = {...JSON.parse(route.request().postData()), ...more};
        bodies.push(body);
        route.continue({postData: JSON.stringify(body)});
    });
    return bodies;
}

async function set(page, fields) {
    await page.keyboard.press("Alt+s");
    const dialog = page.getByRole("dialog", {name: "Settings of this conversation"});
    for (const [label, value] of Object.entries(fields))
        await dialog.getByLabel(label, {exact: true}).fill(value);
    await dialog.getByRole("button", {name: "Save"}).click();
}

async function streamAndStop(browser) {
    const seen = await open(browser, base),
        {page} = seen;
    await watchRequests(page, NO_END);
    await send(page, QUESTION);
    await page.waitForSelector(".answer.running .prose > *");
    const early = await page.locator(".answer .prose").innerText();
    await until(
        async () => (await page.locator(".answer .prose").innerText()).length > early.length + 20,
        "growth",
    );
    equal((await ask("/ready")).active, 1, "slots in use");
    equal(await page.getByRole("button", {name: "Stop"}).count(), 1, "buttons to stop");
    await page.keyboard.press("Escape");
    await answered(page);
    check(
        (await page.locator(".answer .notes").innerText()).includes("Stopped."),
        "the answer says that it was stopped",
    );
    await until(async () => (await ask("/ready")).active === 0, "the slot is free");
    await until(async () => (await page.locator("#said").innerText()) === "Stopped", "it is said");
    await page.unroute(`**${CHAT}`);
    await seen.close();
}

async function settingsHold(browser) {
    const seen = await open(browser, base),
        {page} = seen;
    const bodies = await watchRequests(page);
    await set(page, {
        "System prompt": "Answer in rhymes.",
        Temperature: "1.1",
        "Top k": "40",
        "Top p": "0.9",
        "Min p": "0.02",
        Seed: "7",
        "Tokens at most": "24",
        "Repetition penalty": "1.05",
        "Presence penalty": "0.1",
        "Frequency penalty": "-0.1",
        "Stop at": "@@\n##",
    });
    await send(page, "Name a colour.");
    const answer = await answered(page);
    const {stream, stream_options: _, ...body} = bodies[0];
    equal(stream, true);
    equal(
        body,
        {
            model: "any",
            messages: [
                {role: "system", content: "Answer in rhymes."},
                {role: "user", content: "Name a colour."},
            ],
            temperature: 1.1,
            top_p: 0.9,
            top_k: 40,
            min_p: 0.02,
            max_tokens: 24,
            seed: 7,
            repetition_penalty: 1.05,
            presence_penalty: 0.1,
            frequency_penalty: -0.1,
            stop: ["@@", "##"],
        },
        "the request",
    );
    const whole = await ask(CHAT, body),
        figures = await answer.locator(".figures").innerText();
    const kept = await page.evaluate(() =>
        JSON.parse(
            localStorage.getItem(`cobord.chat.${JSON.parse(localStorage.getItem("cobord.chats"))[0].id}`),
        ),
    );
    equal(kept.messages[1].text, whole.choices[0].message.content, "the answer");
    check(figures.startsWith(`${whole.usage.completion_tokens} tokens`), figures);
    check(/first after \d+\.\d\d s/.test(figures), figures);
    await page.keyboard.press("Alt+r"); // the same again: the seed is set
    await until(() => bodies.length === 2, "a second request");
    await answered(page);
    equal(bodies[1].messages, body.messages, "asked again");
    equal(await page.locator(".answer").count(), 1, "answers");
    await seen.close();
}

// Keys, not fill(): the field has the caret again, and not only the focus.
async function typingGoesOn(browser) {
    const seen = await open(browser, base),
        {page} = seen;
    const ends = {
        Escape: () => page.keyboard.press("Escape"),
        Save: () => page.getByRole("dialog").getByRole("button", {name: "Save"}).click(),
    };
    const field = page.getByLabel("Message", {exact: true});
    await field.click();
    let wanted = "";
    for (const name of ["Escape", "Save", "Save", "Escape", "Save", "Save"]) {
        await page.keyboard.type("a");
        await page.keyboard.press("Alt+s");
        await page.getByRole("dialog").waitFor();
        await ends[name]();
        await page.getByRole("dialog").waitFor({state: "detached"});
        await page.keyboard.type("b");
        wanted += "ab";
        equal(await field.inputValue(), wanted, `typed behind ${name}`);
    }
    await seen.close();
}

async function settingsAreChecked(browser) {
    const seen = await open(browser, base),
        {page} = seen;
    await set(page, {Temperature: "3", "Top k": "1.5", Seed: "x"});
    const faults = await page.locator(".fault").allInnerTexts();
    equal(
        faults.filter((text) => text),
        ["This must be from 0 to 2.", "This must be a whole number.", "This is not a number."],
    );
    equal(await page.evaluate(() => document.activeElement.id), "set-temperature", "focus");
    await page.keyboard.press("ArrowDown");
    equal(await page.locator("#set-temperature").inputValue(), "2", "a step");
    await page.keyboard.press("Escape");
    await seen.close();
}

async function conversations(browser) {
    const seen = await open(browser, base),
        {page} = seen;
    await answerWith(page, "An answer.");
    await send(page, "The first question");
    await answered(page);
    await page.keyboard.press("Alt+n");
    await send(page, "The second question");
    await answered(page);
    equal(await stored(page), ["The second question", "The first question"]);
    await page.keyboard.press("Alt+ArrowDown");
    equal(await page.locator(".bubble").allInnerTexts(), ["The first question"], "the one below");
    await page.reload();
    equal(
        await page.locator(".bubble").allInnerTexts(),
        ["The second question"],
        "after a reload the newest is there",
    );
    await page.getByRole("button", {name: "The first question", exact: true}).focus();
    await page.keyboard.press("F2");
    await page.keyboard.type("A <b>name</b>");
    await page.keyboard.press("Enter");
    equal(await stored(page), ["The second question", "A <b>name</b>"], "renamed");
    await page.getByRole("button", {name: "Delete: The second question"}).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").getByRole("button", {name: "Delete"}).click();
    await until(async () => (await stored(page)).length === 1, "deleted");
    equal(await page.locator(".bubble").allInnerTexts(), ["The first question"], "shown instead");
    await page.reload();
    equal(await stored(page), ["A <b>name</b>"], "after a reload");
    await seen.close();
}

// One that is deleted in the midst of its answer stays deleted; one whose page died is not taken for running.
async function unfinished(browser) {
    const seen = await open(browser, base),
        {page} = seen;
    await watchRequests(page, NO_END);
    await send(page, QUESTION);
    await page.waitForSelector(".answer.running .prose > *");
    await page.getByRole("button", {name: `Delete: ${QUESTION}`}).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").getByRole("button", {name: "Delete"}).click();
    await until(async () => (await ask("/ready")).active === 0, "the slot is free");
    await page.waitForTimeout(100);
    equal(await stored(page), [], "conversations");
    await page.evaluate(() => {
        const messages = [
            {role: "user", text: "q"},
            {role: "assistant", text: "half", state: "streaming", beat: 1},
        ];
        localStorage.setItem("cobord.chat.a", JSON.stringify({id: "a", title: "q", settings: {}, messages}));
        localStorage.setItem("cobord.chats", JSON.stringify([{id: "a", title: "q", updated: 1}]));
    });
    await page.reload();
    await page.getByText("Stopped.").waitFor();
    equal(await page.locator(".answer .prose").innerText(), "half");
    await page.unroute(`**${CHAT}`);
    await seen.close();
}

// A second tab shows what the first one gets, asks nothing itself, and sees what is deleted.
async function twoTabs(browser) {
    const seen = await open(browser, base),
        {page} = seen;
    await watchRequests(page, {...NO_END, max_tokens: 150});
    await send(page, QUESTION);
    await page.waitForSelector(".answer.running .prose > *");
    const other = await seen.context.newPage();
    const asked = await watchRequests(other);
    await other.goto("/");
    equal(await other.locator(".bubble").allInnerTexts(), [QUESTION]);
    await answered(page);
    const text = await page.locator(".answer .prose").innerText();
    await until(
        async () => (await other.locator(".answer .prose").innerText()) === text,
        "the same text in both",
    );
    await until(async () => (await other.locator(".answer.running").count()) === 0, "it runs in neither");
    equal(asked, [], "requests of the second");
    await page.getByRole("button", {name: `Delete: ${QUESTION}`}).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").getByRole("button", {name: "Delete"}).click();
    await until(async () => (await other.locator(".entry").count()) === 0, "gone from the other list");
    for (const each of [page, other]) await each.unroute(`**${CHAT}`);
    await seen.close();
}

async function editing(browser) {
    const seen = await open(browser, base),
        {page} = seen;
    await answerWith(page, "An answer.");
    for (const text of ["one", "two"]) {
        await send(page, text);
        await answered(page);
    }
    await page.getByRole("button", {name: "Edit"}).first().focus();
    await page.keyboard.press("Enter");
    await page.getByLabel("Your message, changed").fill("three");
    await page.keyboard.press("Enter");
    await answered(page);
    equal(await page.locator(".bubble").allInnerTexts(), ["three"], "what came after is gone");
    await seen.close();
}

async function keyboardOnly(browser) {
    const seen = await open(browser, base),
        {page} = seen;
    await answerWith(page, "Text.\n\n```c\nint x;\n```\n");
    const focused = () =>
        page.evaluate(
            () =>
                document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent.trim(),
        );
    equal(await focused(), "Message", "at first");
    await page.keyboard.type("Hi");
    await page.keyboard.press("Shift+Enter");
    await page.keyboard.type("there");
    await page.keyboard.press("Enter");
    await answered(page);
    equal(await page.locator(".bubble").innerText(), "Hi\nthere");
    equal(await focused(), "Message", "after sending");
    await page.evaluate(() => document.activeElement.blur());
    const met = [];
    for (let i = 0; i < 40 && met.at(-1) !== "Message"; i++) {
        await page.keyboard.press("Tab");
        met.push(await focused());
    }
    for (const name of [
        "Skip to the content",
        "Chat",
        "Cluster",
        "Keyboard shortcuts",
        "New conversation",
        "Hi",
        "Delete: Hi",
        "Conversation",
        "Copy this c code",
        "c code",
        "Message",
    ])
        check(met.includes(name), `Tab does not meet ${name}: ${met.join(", ")}`);
    await page.keyboard.press("Control+/");
    await page.getByRole("dialog", {name: "Keyboard shortcuts"}).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({state: "detached"});
    await until(async () => (await focused()) === "Message", "the focus after a dialog");
    await seen.close();
}

async function colours(browser) {
    const seen = await open(browser, base, {colorScheme: "dark"}),
        {page} = seen;
    const theme = () =>
        page.evaluate(() => [
            document.documentElement.dataset.theme,
            getComputedStyle(document.body).backgroundColor,
        ]);
    equal(await theme(), ["dark", "rgb(22, 23, 24)"], "as the system");
    await page.emulateMedia({colorScheme: "light"});
    await until(async () => (await theme()).join() === "light,rgb(251, 250, 248)", "when the system changes");
    const button = page.getByRole("button", {name: /^Colours/});
    await button.click();
    await button.click();
    equal((await theme())[0], "dark", "chosen");
    await page.reload();
    equal((await theme())[0], "dark", "kept");
    await seen.close();
}

async function phone(browser) {
    const seen = await open(browser, base, {
            viewport: {width: 375, height: 700},
            isMobile: true,
            hasTouch: true,
        }),
        {page} = seen;
    await page.waitForSelector("#server[data-state=ready]");
    await checkWidth(page, "empty");
    await answerWith(page, RICH, {degraded: true});
    await page.getByLabel("Message", {exact: true}).fill("x".repeat(300));
    await page.getByRole("button", {name: "Send"}).tap();
    await answered(page);
    await checkWidth(page, "an answer");
    await picture(page, "phone");
    equal(await page.locator("#side").evaluate((e) => e.inert), true, "the list is away");
    await page.getByRole("button", {name: "Conversations"}).tap();
    await page.getByRole("button", {name: "New conversation"}).waitFor();
    await until(async () => (await page.locator("#side").boundingBox()).x === 0, "the list is there");
    await checkWidth(page, "the list");
    equal(await page.locator(".talk").evaluate((e) => e.inert), true, "what is behind it is away");
    await picture(page, "phone-list");
    await page.keyboard.press("Escape");
    await until(() => page.locator("#side").evaluate((e) => e.inert), "the list is closed by a key");
    equal(await page.evaluate(() => document.activeElement.id), "menu", "focus");
    await page.getByRole("button", {name: "Conversations"}).tap();
    await page.getByRole("button", {name: "New conversation"}).tap();
    await until(() => page.locator("#side").evaluate((e) => e.inert), "the list is away again");
    await page.getByRole("button", {name: /^Settings/}).tap();
    await checkWidth(page, "settings");
    await seen.close();
}

const HOSTILE = `<script>window.bad = 1</script> <img src=x onerror="window.bad=1"> <svg onload=window.bad=1>

[click](javascript:window.bad=1) [data](data:text/html,<script>window.bad=1</script>) ![i](http://192.0.2.1/x.png)
[ok](https://example.org/a?b=c&d="e") <https://example.org/f> <iframe src="http://192.0.2.1/"></iframe>

| <img src=x onerror=window.bad=1> | b |
|---|---|
| <script>window.bad=1</script> | \`<b>\` |

\`\`\`html"><img src=x onerror=window.bad=1>
<script>window.bad = 1</script>
\`\`\`
`;

async function hostileText(browser) {
    const seen = await open(browser, base, {}, ["requires 'TrustedHTML'"]),
        {page} = seen;
    await answerWith(page, HOSTILE);
    await send(page, "<img src=x onerror=window.bad=1>");
    const prose = (await answered(page)).locator(".prose");
    const text = await prose.innerText();
    for (const part of [
        "<script>window.bad = 1</script>",
        '<img src=x onerror="window.bad=1">',
        "[click](javascript:",
        "<iframe",
    ])
        check(text.includes(part), `${part} is text in ${text}`);
    equal(
        await page
            .locator("img, iframe, object, embed, .prose script, .prose svg:not(.icon), .bubble *")
            .count(),
        0,
        "elements",
    );
    const links = await prose
        .locator("a")
        .evaluateAll((all) => all.map((a) => [new URL(a.href).protocol, a.rel, a.target]));
    check(
        links.length >= 2 &&
            links.every(([protocol, rel]) => /^https?:$/.test(protocol) && rel.includes("noopener")),
        JSON.stringify(links),
    );
    equal(await page.evaluate(() => window.bad), undefined, "what ran");
    const refused = await page.evaluate(() => {
        try {
            document.createElement("p").innerHTML = "<b>";
            return null;
        } catch (error) {
            return error.name;
        }
    });
    equal(refused, "TypeError", "HTML made from text");
    await page.reload();
    equal(await page.evaluate(() => window.bad), undefined, "what ran after a reload");
    await seen.close();
}

async function copying(browser) {
    const seen = await open(browser, base, {permissions: ["clipboard-read", "clipboard-write"]}),
        {page} = seen;
    await answerWith(page, "See:\n\n```c\nint x;\n```\n");
    await send(page, "code");
    await answered(page);
    await page.getByRole("button", {name: "Copy this c code"}).click();
    await page.getByText("Copied", {exact: true}).waitFor();
    equal(await page.evaluate(() => navigator.clipboard.readText()), "int x;");
    await page.keyboard.press("Alt+c");
    await until(
        async () => (await page.evaluate(() => navigator.clipboard.readText())).startsWith("See:"),
        "the whole answer",
    );
    await seen.close();
}

// However a text is cut into pieces, what is shown at the end is what the whole text shows.
async function pieces(browser) {
    const seen = await open(browser, base),
        {page} = seen;
    const texts = [
        RICH,
        HOSTILE,
        "a\r\n\r\nb\r\n- c\r\n",
        "Title\n---\n\ntext\n# h\n### g\n",
        "1. a\n\n   b\n2. c\n\n\nd\n> e\nf\n\n> g",
        "x\n```js\na\n```\ny\n| a |\n|-|\n| b |\nz",
        "- a\n  - b\n    - c\n- d\n\ne",
        "*a **b** c*\n***\n**d",
        ...randomTexts(400, 24),
    ];
    const different = await page.evaluate(async (texts) => {
        const {MarkdownView} = await import("/web/markdown_view.mjs");
        const rendered = (parts) => {
            const root = document.createElement("div"),
                view = new MarkdownView(root);
            let text = "";
            for (const part of parts) view.show((text += part));
            root.querySelectorAll(".growing").forEach((e) => e.classList.remove("growing"));
            return root.innerHTML.replaceAll(' class=""', "");
        };
        const cuts = [/[^]/g, /[^]{1,7}/g, /[^]{1,40}/g];
        return texts.filter((text) => cuts.some((cut) => rendered(text.match(cut)) !== rendered([text])));
    }, texts);
    equal(different, [], "texts that come out otherwise in pieces");
    await seen.close();
}

async function following(browser) {
    const seen = await open(browser, base, {viewport: {width: 900, height: 500}}),
        {page} = seen;
    await watchRequests(page, NO_END);
    await send(page, QUESTION);
    const log = page.getByRole("log");
    await until(() => log.evaluate((e) => e.scrollHeight > e.clientHeight + 300), "a long answer");
    const place = () => log.evaluate((e) => e.scrollTop), height = () => log.evaluate((e) => e.scrollHeight);
    // Pieces may just have come that are not scrolled to yet.
    const follows = () => log.evaluate((e) => e.scrollHeight - e.scrollTop - e.clientHeight < 100);
    await until(follows, "it follows the answer");
    await log.hover();
    await page.mouse.wheel(0, -400);
    await page.getByRole("button", {name: "To the end"}).waitFor();
    await until(async () => {
        const before = await place();
        await page.waitForTimeout(100);
        return before === (await place());
    }, "the wheel has come to rest");
    const read = await place(), grown = await height();
    await until(async () => (await height()) > grown + 20, "more of the answer");
    check(Math.abs((await place()) - read) < 2, "it stays where somebody reads");
    await page.getByRole("button", {name: "To the end"}).click();
    await until(follows, "and follows again");
    await page.keyboard.press("Alt+m");
    await page.keyboard.press("Escape");
    await answered(page);
    await page.unroute(`**${CHAT}`);
    await seen.close();
}

await run((browser) => ({
    "stream and stop": () => streamAndStop(browser),
    "settings hold": () => settingsHold(browser),
    "typing goes on": () => typingGoesOn(browser),
    "settings are checked": () => settingsAreChecked(browser),
    conversations: () => conversations(browser),
    unfinished: () => unfinished(browser),
    "two tabs": () => twoTabs(browser),
    editing: () => editing(browser),
    "keyboard only": () => keyboardOnly(browser),
    colours: () => colours(browser),
    phone: () => phone(browser),
    "hostile text": () => hostileText(browser),
    copying: () => copying(browser),
    pieces: () => pieces(browser),
    following: () => following(browser),
}));
