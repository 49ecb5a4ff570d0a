// SPDX-License-Identifier: Apache-2.0
// Text into the clipboard. Resolves to whether it is there: a page over plain HTTP from another machine has no
// navigator.clipboard, and goes the old way.

import {h} from "./dom.mjs";

export async function copyText(text) {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch {
        return copySelection(text);
    }
}

function copySelection(text) {
    const before = document.activeElement;
    const area = h("textarea", {class: "unseen", "aria-hidden": "true", tabindex: "-1"});
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    before?.focus();
    return done;
}
