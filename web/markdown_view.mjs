// SPDX-License-Identifier: Apache-2.0
// The tree of markdown.mjs as elements. While an answer grows, only what may change is made anew: all blocks but
// the last two stay as they are, so that selections and copy buttons live.

import {copyText} from "./clipboard.mjs";
import {h, icon, say} from "./dom.mjs";
import {highlight} from "./highlight.mjs";
import {parse} from "./markdown.mjs";

const HEADING_FIRST = 3,
    HEADING_LAST = 6; // the page has h1, a message h2
const COPIED_MS = 1600;
const GROWING = 2; // "Title", "-": with two more dashes they are one heading

export class MarkdownView {
    constructor(root) {
        this.root = root;
        this.text = "";
        this.settled = 0; // where what is made again begins
        this.level = HEADING_FIRST - 1;
    }

    // The whole text so far.
    show(whole) {
        const text = whole.replace(/\r\n?/g, "\n");
        if (text === this.text) return;
        if (!text.startsWith(this.text)) this.clear();
        this.text = text;
        const blocks = parse(text.slice(this.settled));
        for (const element of this.root.querySelectorAll(":scope > .growing")) element.remove();
        const firm = Math.max(0, blocks.length - GROWING);
        this.append(blocks.slice(0, firm), false);
        const level = this.level;
        this.append(blocks.slice(firm), true);
        this.level = level; // these are made again
        if (blocks.length) this.settled += blocks[firm].at;
    }

    append(blocks, growing) {
        for (const block of blocks) {
            const element = this.makeBlock(block);
            element.classList.toggle("growing", growing);
            this.root.append(element);
        }
    }

    clear() {
        this.root.replaceChildren();
        this.text = "";
        this.settled = 0;
        this.level = HEADING_FIRST - 1;
    }

    makeBlock(block) {
        switch (block.type) {
            case "heading":
                return this.makeHeading(block);
            case "code":
                return makeCode(block);
            case "rule":
                return h("hr");
            case "quote":
                return h(
                    "blockquote",
                    {},
                    block.blocks.map((b) => this.makeBlock(b)),
                );
            case "list":
                return this.makeList(block);
            case "table":
                return makeTable(block);
            default:
                return h("p", {}, makeInline(block.inline));
        }
    }

    // No level is left out: who goes from heading to heading does not fall into a hole.
    makeHeading({level, inline}) {
        this.level = Math.min(HEADING_LAST, this.level + 1, HEADING_FIRST - 1 + level);
        return h(`h${this.level}`, {class: `rank-${level}`}, makeInline(inline));
    }

    makeList({start, items}) {
        const list = h(start === null ? "ul" : "ol", start !== null && start !== 1 ? {start} : {});
        for (const item of items) {
            const box =
                item.checked === null
                    ? null
                    : h("input", {
                          type: "checkbox",
                          disabled: true,
                          checked: item.checked,
                          "aria-label": item.checked ? "done" : "to do",
                      });
            const blocks = item.blocks.map((b) =>
                b.type === "paragraph" && item.tight ? h("span", {}, makeInline(b.inline)) : this.makeBlock(b),
            );
            list.append(h("li", box ? {class: "task"} : {}, box, blocks));
        }
        return list;
    }
}

function makeInline(parts) {
    return parts.map((part) => {
        if (typeof part === "string") return part;
        switch (part.type) {
            case "code":
                return h("code", {}, part.text);
            case "break":
                return h("br");
            case "link":
                return h(
                    "a",
                    {href: part.href, target: "_blank", rel: "noopener noreferrer nofollow"},
                    makeInline(part.children),
                );
            default:
                return h(part.type, {}, makeInline(part.children));
        }
    });
}

function makeTable({align, head, rows}) {
    const cell = (name, attributes) => (inline, i) =>
        h(name, {...attributes, class: align[i] ? `to-${align[i]}` : null}, makeInline(inline));
    return h(
        "div",
        {class: "table", role: "group", "aria-label": "Table", tabindex: "0"},
        h(
            "table",
            {},
            h("thead", {}, h("tr", {}, head.map(cell("th", {scope: "col"})))),
            h(
                "tbody",
                {},
                rows.map((row) => h("tr", {}, row.map(cell("td", {})))),
            ),
        ),
    );
}

// ---- Code ----

function makeCode({language, text}) {
    const code = h(
        "code",
        {},
        highlight(text, language).map(([kind, part]) => (kind ? h("span", {class: `c-${kind}`}, part) : part)),
    );
    const name = /^[\w+#.-]{1,20}$/.test(language) ? language : "";
    const label = h("span", {}, "Copy");
    const button = h(
        "button",
        {
            class: "quiet-button",
            type: "button",
            "aria-label": name ? `Copy this ${name} code` : "Copy this code",
            onclick: () => copyCode(button, label, text),
        },
        icon("copy"),
        label,
    );
    return h(
        "figure",
        {class: "code"},
        h("figcaption", {}, h("span", {}, name || "text"), button),
        h("pre", {tabindex: "0", role: "group", "aria-label": name ? `${name} code` : "Code"}, code),
    );
}

async function copyCode(button, label, text) {
    const done = await copyText(text);
    label.textContent = done ? "Copied" : "Not allowed";
    say(done ? "Code copied" : "The browser does not allow copying");
    button.firstElementChild.firstElementChild.setAttribute("href", done ? "#i-check" : "#i-alert");
    setTimeout(() => {
        label.textContent = "Copy";
        button.firstElementChild.firstElementChild.setAttribute("href", "#i-copy");
    }, COPIED_MS);
}
