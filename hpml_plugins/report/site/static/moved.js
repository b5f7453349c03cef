"use strict";
// An address of an earlier page leads to the new one: the whole fragment to `data-to`, or what stands in the list, with
// the point behind "?". Works from the disk.
(() => {
    const moved = /** @type {HTMLElement} */ (document.getElementById("moved"));

    /** @param {string} text */
    function decoded(text) {
        try {
            return decodeURIComponent(text);
        } catch {
            return text; // not an address of ours
        }
    }

    /** The link of the list that a name means: its id, its other name, or the first that begins with it.
     * @param {string} name */
    function find(name) {
        const all = [...document.querySelectorAll("main li a")].map((each) => /** @type {HTMLAnchorElement} */ (each));
        const exact = all.find((each) => each.parentElement?.id === name || each.dataset.alias === name);
        return exact ?? all.find((each) => each.dataset.alias?.startsWith(`${name}.`));
    }

    function follow() {
        const hash = location.hash.slice(1);
        const at = hash.indexOf("?");
        const name = decoded(at < 0 ? hash : hash.slice(0, at));
        if (!document.querySelector("main li")) {
            return location.replace(moved.dataset.to + (hash && !moved.dataset.to?.includes("#") ? `#${hash}` : ""));
        }
        if (!name) {
            return location.replace(moved.dataset.to ?? "");
        }
        const link = find(name);
        if (!link) {
            moved.textContent = `No benchmark ${name} has results. It may have been renamed or removed.`;
            return undefined;
        }
        const point = at < 0 ? "" : decoded(hash.slice(at + 1)).replaceAll(", ", "&");
        return location.replace(link.href + (point ? `?${encodeURIComponent(point).replace(/%(3D|26)/g, decodeURIComponent)}` : ""));
    }

    window.addEventListener("hashchange", follow);
    follow();
})();
