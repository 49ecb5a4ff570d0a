// SPDX-License-Identifier: Apache-2.0
// The list of conversations: choose, rename, delete. On a phone it slides over the page, and is closed again by
// choosing.

import {confirmDialog, h, icon, iconButton, say} from "./dom.mjs";
import * as store from "./conversations.mjs";

const NARROW = matchMedia("(max-width: 760px)");
const DAY_MS = 86400000;

export class Side {
    // `act`: create(), choose(id), rename(id, title), drop(id), isRunning(id)
    constructor(act, menu) {
        this.act = act;
        this.menu = menu;
        this.behind = null; // what it covers on a phone: not to be reached meanwhile
        this.list = h("div", {class: "side-list"});
        this.element = h(
            "nav",
            {
                id: "side",
                class: "side",
                "aria-label": "Conversations",
            },
            h(
                "button",
                {
                    class: "button new",
                    type: "button",
                    title: "New conversation (Alt N)",
                    onclick: () => {
                        this.close(false);
                        act.create();
                    },
                },
                icon("plus"),
                "New conversation",
            ),
            this.list,
        );
        this.scrim = h("div", {class: "scrim", hidden: true, onclick: () => this.close()});
        menu.addEventListener("click", () => (this.isOver() ? this.close() : this.open()));
        document.addEventListener("keydown", (event) => {
            if (event.key === "Escape" && this.isOver() && !document.querySelector("dialog[open]"))
                this.close();
        });
        NARROW.addEventListener("change", () => this.close(false));
        this.close(false);
    }

    isOver() {
        return NARROW.matches && !this.scrim.hidden;
    }

    open() {
        this.scrim.hidden = false;
        this.element.inert = false;
        if (this.behind) this.behind.inert = true;
        this.element.classList.add("open");
        this.menu.setAttribute("aria-expanded", "true");
        this.element.querySelector("[aria-current], button")?.focus();
    }

    close(focus = true) {
        const was = !this.scrim.hidden;
        this.scrim.hidden = true;
        this.element.classList.remove("open");
        this.element.inert = NARROW.matches;
        if (this.behind) this.behind.inert = false;
        this.menu.setAttribute("aria-expanded", "false");
        if (was && focus) this.menu.focus();
    }

    // The list anew, but where the focus is, it stays; a name that is being written is waited for.
    draw(current) {
        this.current = current;
        if (this.list.querySelector("input")) return;
        const at = Array.from(this.list.querySelectorAll("button")).indexOf(document.activeElement);
        this.fill();
        if (at >= 0) this.list.querySelectorAll("button")[at]?.focus();
    }

    fill() {
        const groups = new Map();
        for (const entry of store.list()) {
            const name = groupOf(entry.updated);
            if (!groups.has(name)) groups.set(name, []);
            groups.get(name).push(entry);
        }
        this.list.replaceChildren(
            ...Array.from(groups, ([name, entries]) =>
                h(
                    "section",
                    {},
                    h("h2", {}, name),
                    h(
                        "ul",
                        {},
                        entries.map((entry) => this.makeEntry(entry)),
                    ),
                ),
            ),
        );
        if (!groups.size)
            this.list.append(h("p", {class: "side-empty"}, "Conversations are kept in this browser only."));
    }

    makeEntry({id, title}) {
        const running = this.act.isRunning(id);
        const choose = h(
            "button",
            {
                class: "entry",
                type: "button",
                title,
                "aria-current": id === this.current ? "true" : null,
                ondblclick: () => this.rename(item, id),
                onkeydown: (event) => this.entryKey(event, item, id),
                onclick: () => {
                    this.close(false);
                    this.act.choose(id);
                },
            },
            h("span", {class: "entry-title"}, title),
            running ? h("span", {class: "pulse", role: "img", "aria-label": "answering"}) : null,
        );
        const item = h(
            "li",
            {},
            choose,
            iconButton("pen", `Rename: ${title}`, () => this.rename(item, id)),
            iconButton("bin", `Delete: ${title}`, () => this.drop(id, title)),
        );
        return item;
    }

    entryKey(event, item, id) {
        if (event.key === "F2") this.rename(item, id);
        else if (event.key === "Delete") this.drop(id, item.textContent);
    }

    rename(item, id) {
        const conversation = store.load(id);
        if (!conversation) return;
        const field = h("input", {"aria-label": "Name of this conversation", maxlength: "60"});
        field.value = conversation.title;
        let over = false;
        const end = (keep) => {
            if (over) return;
            over = true;
            if (keep && field.value.trim()) this.act.rename(id, field.value.trim());
            field.remove();
            this.draw(this.current);
            this.focusOn(id);
        };
        field.addEventListener("keydown", (event) => {
            event.stopPropagation();
            if (event.key === "Enter" && !event.isComposing) end(true);
            if (event.key === "Escape") end(false);
        });
        field.addEventListener("blur", () => end(true));
        item.replaceChildren(field);
        field.focus();
        field.select();
    }

    async drop(id, title) {
        const ids = store.list().map((entry) => entry.id),
            at = ids.indexOf(id);
        if (
            !(await confirmDialog(
                "Delete this conversation?",
                `\u201c${title}\u201d is removed from this browser. There is no copy anywhere else.`,
                "Delete",
            ))
        )
            return;
        this.act.drop(id);
        say("Conversation deleted");
        this.focusOn(ids[at + 1] ?? ids[at - 1]);
    }

    focusOn(id) {
        const at = store.list().findIndex((entry) => entry.id === id);
        const entry =
            at < 0 ? this.element.querySelector("button") : this.list.querySelectorAll("button.entry")[at];
        entry?.focus();
    }
}

function groupOf(updated) {
    const today = new Date().setHours(0, 0, 0, 0);
    if (updated >= today) return "Today";
    if (updated >= today - DAY_MS) return "Yesterday";
    return updated >= today - 7 * DAY_MS ? "This week" : "Earlier";
}
