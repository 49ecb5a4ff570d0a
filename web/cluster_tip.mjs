// SPDX-License-Identifier: Apache-2.0
// One short text beside what the pointer or the focus is on: of elements with data-tip. Esc hides it
// (WCAG 1.4.13); what it says stands in the page for everybody else, too.

import {h} from "./dom.mjs";

const GAP = 8;

export function followTips(root) {
    const tip = h("div", {class: "tip-box", role: "tooltip", id: "cluster-tip", hidden: true});
    let owner = null;
    const hide = () => {
        owner?.removeAttribute("aria-describedby");
        owner = null;
        tip.hidden = true;
    };
    const show = (event) => {
        const target = event.target.closest?.("[data-tip]");
        if (target === owner || (target && !root.contains(target))) return;
        hide();
        if (!target) return;
        owner = target;
        tip.textContent = target.dataset.tip;
        tip.hidden = false;
        if (target.tagName === "BUTTON") target.setAttribute("aria-describedby", tip.id);
        put(tip, target.getBoundingClientRect());
    };
    const key = (event) => event.key === "Escape" && hide();
    const listeners = [
        ["pointerover", show],
        ["focusin", show],
        ["focusout", hide],
        ["keydown", key],
        ["pointerleave", hide],
    ];
    for (const [name, listener] of listeners) root.addEventListener(name, listener);
    root.parentElement.addEventListener("scroll", hide, {passive: true});
    root.append(tip);
    return () => root.parentElement?.removeEventListener("scroll", hide);
}

function put(tip, at) {
    const {offsetWidth: width, offsetHeight: height} = tip;
    const left = Math.min(Math.max(GAP, at.left + at.width / 2 - width / 2), innerWidth - width - GAP);
    const above = at.top - height - GAP;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > GAP ? above : at.bottom + GAP}px`;
}
