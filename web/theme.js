// SPDX-License-Identifier: Apache-2.0
// Light or dark, before anything is drawn: what was chosen here, else what the system says. shell.mjs has the button.
{
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const chosen = () => {
        try {
            return localStorage.getItem("cobord.theme");
        } catch {
            return null; // storage is switched off
        }
    };
    const apply = () => {
        document.documentElement.dataset.theme = chosen() ?? (dark.matches ? "dark" : "light");
    };
    dark.addEventListener("change", apply);
    addEventListener("storage", apply);
    addEventListener("cobord-theme", apply);
    apply();
}
