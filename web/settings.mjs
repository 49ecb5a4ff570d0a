// SPDX-License-Identifier: Apache-2.0
// What can be set of a conversation: the system prompt, and how tokens are chosen. An empty field is not sent: the
// server's own
// value holds. The same limits as in docs/api.md, so that a slip is told beside its field.

import {closeDialog, h, openDialog} from "./dom.mjs";

// Models here are small: by default a little cooler than the server's 1.
export const DEFAULTS = {temperature: 0.7};

const STOPS_MAX = 16;
const COUNT_MAX = 2147483647;

export const FIELDS = [
    {
        name: "temperature",
        label: "Temperature",
        hint: "0 always takes the likeliest token; higher is livelier",
        from: 0,
        to: 2,
        step: 0.1,
        usual: "1",
    },
    {
        name: "top_p",
        label: "Top p",
        hint: "only the likeliest that sum up to this share",
        from: 0,
        to: 1,
        step: 0.05,
        usual: "1",
    },
    {
        name: "top_k",
        label: "Top k",
        hint: "only so many of the likeliest; 0 is off",
        from: 0,
        to: COUNT_MAX,
        step: 1,
        usual: "0",
    },
    {
        name: "min_p",
        label: "Min p",
        hint: "none below this share of the likeliest",
        from: 0,
        to: 1,
        step: 0.01,
        usual: "0",
    },
    {
        name: "max_tokens",
        label: "Tokens at most",
        hint: "of one answer",
        from: 1,
        to: COUNT_MAX,
        step: 1,
        usual: "up to the context",
    },
    {
        name: "seed",
        label: "Seed",
        hint: "the same seed gives the same answer",
        from: -Number.MAX_SAFE_INTEGER,
        to: Number.MAX_SAFE_INTEGER,
        step: 1,
        usual: "a new one each time",
    },
    {
        name: "repetition_penalty",
        label: "Repetition penalty",
        hint: "above 1 avoids what occurred, prompt included",
        from: 0.01,
        to: 10,
        step: 0.05,
        usual: "1",
    },
    {
        name: "presence_penalty",
        label: "Presence penalty",
        hint: "above 0 avoids what was said once",
        from: -2,
        to: 2,
        step: 0.1,
        usual: "0",
    },
    {
        name: "frequency_penalty",
        label: "Frequency penalty",
        hint: "above 0 avoids what was said often",
        from: -2,
        to: 2,
        step: 0.1,
        usual: "0",
    },
];

// Empty on purpose (null) is not the same as never set.
const valueOf = (settings, name) => (name in settings ? settings[name] : DEFAULTS[name]);
// Half of the world writes 0,7.
const readNumber = (text) => Number(text.trim().replace(",", "."));

// Words for what is wrong with a text, or null.
export function faultOf(field, text) {
    if (!text) return null;
    const value = readNumber(text);
    if (!Number.isFinite(value)) return "This is not a number.";
    if (field.step === 1 && !Number.isInteger(value)) return "This must be a whole number.";
    if (value >= field.from && value <= field.to) return null;
    if (field.to < COUNT_MAX) return `This must be from ${field.from} to ${field.to}.`;
    return value < field.from ? `This must be ${field.from} or more.` : "This number is too large.";
}

// The fields of a request.
export function requestFields(settings) {
    const fields = {};
    for (const {name} of FIELDS) {
        const value = valueOf(settings, name);
        if (typeof value === "number") fields[name] = value;
    }
    if (Array.isArray(settings.stop) && settings.stop.length) fields.stop = settings.stop.slice(0, STOPS_MAX);
    return fields;
}

// For the button: what is not as usual.
export function summary(settings) {
    const parts = [`temperature ${valueOf(settings, "temperature") ?? 1}`];
    if (typeof settings.seed === "number") parts.push(`seed ${settings.seed}`);
    if (settings.system) parts.push("system prompt");
    return parts.join(" \u00b7 ");
}

// ---- The dialog ----

export function openSettings(settings, changed) {
    const system = h("textarea", {id: "set-system", rows: "4", "aria-describedby": "set-system-hint"});
    system.value = settings.system ?? "";
    const rows = FIELDS.map((field) => makeRow(field, valueOf(settings, field.name)));
    const stop = makeStops(settings.stop);
    const save = (event) => {
        event.preventDefault();
        const wrong = rows.find((row) => !row.check());
        if (wrong) return wrong.input.focus();
        changed(collect(system, rows, stop));
        closeDialog(dialog);
    };
    const reset = () => {
        system.value = stop.value = "";
        for (const row of rows) row.set(DEFAULTS[row.field.name]);
    };
    const form = h(
        "form",
        {id: "settings-form", class: "settings", novalidate: true, onsubmit: save},
        h(
            "div",
            {class: "field wide"},
            h("label", {for: "set-system"}, "System prompt"),
            system,
            h(
                "p",
                {class: "hint", id: "set-system-hint"},
                "What the model is told before the conversation begins",
            ),
        ),
        rows.map((row) => row.element),
        h(
            "div",
            {class: "field wide"},
            h("label", {for: "set-stop"}, "Stop at"),
            stop,
            h(
                "p",
                {class: "hint", id: "set-stop-hint"},
                "The answer ends before any of these texts; one a line",
            ),
        ),
    );
    const dialog = openDialog("Settings of this conversation", form, [
        h("button", {class: "button", type: "button", onclick: reset}, "Use defaults"),
        h("button", {class: "button primary", type: "submit", form: "settings-form"}, "Save"),
    ]);
    dialog.classList.add("wide");
    system.focus();
}

function makeStops(stops) {
    const area = h("textarea", {
        id: "set-stop",
        rows: "2",
        spellcheck: "false",
        "aria-describedby": "set-stop-hint",
    });
    area.value = Array.isArray(stops) ? stops.join("\n") : "";
    return area;
}

function makeRow(field, value) {
    const id = `set-${field.name}`;
    const input = h("input", {
        id,
        inputmode: field.step === 1 ? "numeric" : "decimal",
        autocomplete: "off",
        placeholder: field.usual,
        "aria-describedby": `${id}-hint ${id}-fault`,
        onchange: () => row.check(),
        onkeydown: (event) => stepBy(event, field, input),
    });
    const fault = h("p", {class: "fault", id: `${id}-fault`});
    const row = {
        field,
        input,
        element: h(
            "div",
            {class: "field"},
            h("label", {for: id}, field.label),
            input,
            h("p", {class: "hint", id: `${id}-hint`}, field.hint),
            fault,
        ),
        set(to) {
            input.value = to ?? "";
            row.check();
        },
        check() {
            const words = faultOf(field, input.value.trim());
            fault.textContent = words ?? "";
            if (words) input.setAttribute("aria-invalid", "true");
            else input.removeAttribute("aria-invalid");
            return !words;
        },
    };
    row.set(value);
    return row;
}

// Arrows up and down go a step on, as in a field of numbers.
function stepBy(event, field, input) {
    const direction = {ArrowUp: 1, ArrowDown: -1}[event.key];
    if (!direction) return;
    event.preventDefault();
    const now = readNumber(input.value || (Number.isNaN(Number(field.usual)) ? field.from : field.usual));
    const next = Math.min(field.to, Math.max(field.from, now + direction * field.step));
    if (Number.isFinite(next)) input.value = String(Number(next.toFixed(4)));
}

function collect(system, rows, stop) {
    const settings = {};
    if (system.value.trim()) settings.system = system.value;
    for (const {field, input} of rows) {
        const text = input.value.trim();
        if (text) settings[field.name] = readNumber(text);
        else if (field.name in DEFAULTS) settings[field.name] = null; // empty on purpose: the server's own
    }
    const stops = stop.value.split("\n").filter((line) => line);
    if (stops.length) settings.stop = stops.slice(0, STOPS_MAX);
    return settings;
}
