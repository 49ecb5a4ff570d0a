// SPDX-License-Identifier: Apache-2.0
// axe-core over every state of the chat, in light, dark and on a phone. Argument 1 is the address of a server.
import {answered, answerWith, CHAT, checkAccess, open, picture, RICH, run, send} from "./browser.mjs";

const base = process.argv[2];
const SIZES = {
    light: {colorScheme: "light", viewport: {width: 1280, height: 860}},
    dark: {colorScheme: "dark", viewport: {width: 1280, height: 860}},
    phone: {colorScheme: "light", viewport: {width: 375, height: 740}, isMobile: true, hasTouch: true},
};

async function look(page, name) {
    await picture(page, name.replaceAll(" ", "-"));
    await checkAccess(page, name);
}

async function everywhere(browser, name, options) {
    const seen = await open(browser, base, {...options, reducedMotion: "reduce"}),
        {page} = seen;
    await page.waitForSelector("#server[data-state=ready]");
    await look(page, `${name} empty`);
    await answerWith(page, RICH, {degraded: true});
    await send(page, "How does a binary search work?");
    if (name === "phone") await page.getByRole("button", {name: "Send"}).tap();
    await answered(page);
    await look(page, `${name} answer`);
    await page.getByRole("log").evaluate((e) => {
        e.scrollTop = 0;
    });
    await look(page, `${name} answer top`);
    await page.getByRole("button", {name: "Edit"}).focus();
    await page.keyboard.press("Enter");
    await look(page, `${name} editing`);
    await page.keyboard.press("Escape");
    for (const [keys, what] of [
        ["Alt+s", "settings"],
        ["Control+/", "shortcuts"],
    ]) {
        await page.keyboard.press(keys);
        await page.getByRole("dialog").waitFor();
        await look(page, `${name} ${what}`);
        await page.keyboard.press("Escape");
    }
    if (name === "phone") await page.getByRole("button", {name: "Conversations"}).tap();
    await page.locator(".side .entry").hover();
    await look(page, `${name} list`);
    await page.getByRole("button", {name: /^Delete/}).click();
    await look(page, `${name} question`);
    await page.getByRole("button", {name: "Cancel"}).click();
    await seen.close();
}

async function failures(browser) {
    const seen = await open(browser, base, SIZES.light, ["Failed to load resource"]),
        {page} = seen;
    await page.route(`**${CHAT}`, (route) =>
        route.fulfill({
            status: 503,
            body: JSON.stringify({error: {code: "shutting_down", message: "x", retryable: true}}),
        }),
    );
    await send(page, "Hi");
    await answered(page);
    await look(page, "failed");
    await page.route(`**${CHAT}`, (route) => route.fulfill({status: 401, body: "{}"}));
    await page.getByRole("button", {name: "Try again"}).click();
    await page.getByRole("dialog").waitFor();
    await look(page, "key wanted");
    await page.keyboard.press("Escape");
    await seen.close();
}

await run((browser) => ({
    ...Object.fromEntries(
        Object.entries(SIZES).map(([name, options]) => [name, () => everywhere(browser, name, options)]),
    ),
    failures: () => failures(browser),
}));
