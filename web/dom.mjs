// SPDX-License-Identifier: Apache-2.0
// Elements without HTML: text only ever becomes text nodes. Names of elements and attributes are the program's own.

const SVG = "http://www.w3.org/2000/svg";

// h("button", {class: "icon-button", type: "button", "aria-label": "Close", onclick: close}, icon("close"))
// Attributes that are null or false are left out; `on...` are listeners.
export function h(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
        if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
        else if (value !== null && value !== undefined && value !== false)
            element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
}

export function icon(name) {
    const svg = document.createElementNS(SVG, "svg"),
        use = document.createElementNS(SVG, "use");
    svg.setAttribute("class", "icon");
    svg.setAttribute("aria-hidden", "true");
    use.setAttribute("href", `#i-${name}`);
    svg.append(use);
    return svg;
}

export function iconButton(name, label, onclick, attributes = {}) {
    return h(
        "button",
        {class: "icon-button", type: "button", "aria-label": label, title: label, onclick, ...attributes},
        icon(name),
    );
}

export function quietButton(name, label, onclick, attributes = {}) {
    return h(
        "button",
        {class: "quiet-button", type: "button", onclick, ...attributes},
        icon(name),
        h("span", {}, label),
    );
}

const cameFrom = new WeakMap(); // of each dialog, the element that had the focus before it

function leaveDialog(dialog) {
    if (!dialog.isConnected) return;
    dialog.remove();
    const before = cameFrom.get(dialog);
    if (!before?.isConnected) return;
    before.blur(); // close() gave it the focus while it was inert: in Chromium without a caret, keys go nowhere
    before.focus();
}

// The "close" event comes only a task later, when keys may have been typed: the focus goes back at once.
export function closeDialog(dialog) {
    dialog.close();
    leaveDialog(dialog);
}

// A modal dialog with a title and a button that closes it; removed when it is closed (by closeDialog), and focus goes
// back to where it was.
export function openDialog(title, body, ends = []) {
    const close = () => closeDialog(dialog);
    const dialog = h(
        "dialog",
        {"aria-labelledby": "dialog-title"},
        h("header", {}, h("h2", {id: "dialog-title"}, title), iconButton("close", "Close", close)),
        h("div", {class: "body", tabindex: "0", role: "group", "aria-labelledby": "dialog-title"}, body),
        ends.length ? h("div", {class: "ends"}, ends) : null,
    );
    cameFrom.set(dialog, document.activeElement);
    dialog.addEventListener("click", (event) => event.target === dialog && close());
    dialog.addEventListener("cancel", (event) => {
        event.preventDefault();
        close();
    });
    dialog.addEventListener("close", () => leaveDialog(dialog)); // by the browser itself
    document.body.append(dialog);
    dialog.showModal();
    return dialog;
}

// Yes or no. Resolves to whether it was yes.
export function confirmDialog(title, text, yes) {
    return new Promise((resolve) => {
        let answer = false;
        const end = (value) => {
            answer = value;
            closeDialog(dialog);
        };
        const no = h("button", {class: "button", type: "button", onclick: () => end(false)}, "Cancel");
        const dialog = openDialog(title, h("p", {}, text), [
            no,
            h("button", {class: "button danger", type: "button", onclick: () => end(true)}, yes),
        ]);
        dialog.addEventListener("close", () => resolve(answer));
        no.focus();
    });
}

// For who hears the page: short, and seldom.
export function say(text) {
    const place = document.getElementById("said");
    place.textContent = "";
    setTimeout(() => {
        place.textContent = text;
    }, 50);
}

export function alarm(text) {
    document.getElementById("alarm").textContent = text;
}
