// SPDX-License-Identifier: Apache-2.0
// Where a message is written: it grows with its text, Enter sends, and the button stops an answer while there is one.

import {h, icon} from "./dom.mjs";

const COARSE = matchMedia("(pointer: coarse)"); // there Enter is a new line, and the button sends
const HEIGHT_MAX = 240;

export class Composer {
    // `act`: send(text), stop(), settings()
    constructor(act) {
        this.act = act;
        this.running = false;
        this.field = h("textarea", {
            id: "message",
            rows: "1",
            placeholder: "Write a message",
            "aria-label": "Message",
            enterkeyhint: COARSE.matches ? "enter" : "send",
            oninput: () => this.grow(),
            onkeydown: (event) => this.key(event),
        });
        this.use = h("span", {});
        this.settings = h(
            "button",
            {
                class: "quiet-button settings-button",
                type: "button",
                title: "Settings (Alt S)",
                onclick: () => act.settings(),
            },
            icon("sliders"),
            h("span", {class: "unseen"}, "Settings: "),
            this.use,
        );
        this.send = h(
            "button",
            {class: "send", type: "submit", "aria-label": "Send", title: "Send (Enter)"},
            icon("send"),
        );
        this.element = h(
            "form",
            {
                class: "composer",
                onsubmit: (event) => {
                    event.preventDefault();
                    if (this.running) act.stop();
                    else this.submit();
                },
            },
            this.field,
            h("div", {class: "composer-row"}, this.settings, this.send),
        );
        this.draw();
    }

    key(event) {
        if (event.key === "Escape" && this.running) {
            event.preventDefault();
            this.act.stop();
        }
        if (
            event.key !== "Enter" ||
            event.shiftKey ||
            event.isComposing ||
            (COARSE.matches && !event.ctrlKey && !event.metaKey)
        )
            return;
        event.preventDefault();
        if (!this.running) this.submit();
    }

    submit() {
        const text = this.field.value.trim();
        if (!text) return;
        this.field.value = "";
        this.grow();
        this.act.send(text);
    }

    grow() {
        this.field.style.height = "auto";
        this.field.style.height = `${Math.min(this.field.scrollHeight, HEIGHT_MAX)}px`;
        this.field.style.overflowY = this.field.scrollHeight > HEIGHT_MAX ? "auto" : "hidden";
        this.draw();
    }

    setRunning(running) {
        this.running = running;
        this.draw();
    }

    setSettings(text) {
        this.use.textContent = text;
    }

    draw() {
        const name = this.running ? "Stop" : "Send";
        this.send.setAttribute("aria-label", name);
        this.send.title = this.running ? "Stop (Esc)" : "Send (Enter)";
        this.send.classList.toggle("stops", this.running);
        this.send.firstElementChild.firstElementChild.setAttribute(
            "href",
            this.running ? "#i-stop" : "#i-send",
        );
        this.send.setAttribute("aria-disabled", String(!this.running && !this.field.value.trim()));
    }

    // Unasked, not where that opens a keyboard on the screen.
    focus(asked = false) {
        if (asked || !COARSE.matches) this.field.focus();
    }
}
