"use strict";
// Rows that a reader opens: what is known of a point is loaded and shown below its row. An address with a point opens it.
// Also a filter of rows, commands that are copied, and lines of charts that are hidden.
(() => {
    /** @param {string} selector @param {ParentNode} [inside] */
    function all(selector, inside = document) {
        return [...inside.querySelectorAll(selector)].map((each) => /** @type {HTMLElement} */ (each));
    }

    /** @param {string} id */
    function by_id(id) {
        return document.getElementById(id);
    }

    /** Show what is known of a row, or hide it.
     * @param {HTMLElement} row @param {boolean} [keep] leave it open */
    async function open(row, keep = false) {
        const link = row.querySelector("th a");
        const next = row.nextElementSibling;
        if (next?.classList.contains("drawer")) {
            if (!keep) {
                next.remove();
                link?.setAttribute("aria-expanded", "false");
            }
            return;
        }
        const file = `${row.closest("table")?.dataset.folder}/${row.dataset.file}.js`;
        const drawer = document.createElement("tr"), cell = document.createElement("td");
        const place = document.createElement("div");
        drawer.className = "drawer";
        cell.colSpan = row.children.length;
        place.textContent = "…";
        cell.append(place);
        drawer.append(cell);
        row.after(drawer);
        link?.setAttribute("aria-expanded", "true");
        try {
            const points = /** @type {Record<string, string>[]} */ (await hpml.read(file));
            const point = points.find((each) => row.id in each);
            if (!point) throw new Error(row.id);
            place.innerHTML = `${point[row.id]}${point[""]}`;
            prepare(place);
        } catch {
            place.textContent = `${file} could not be loaded.`;
        }
    }

    /** The buttons that need this script.
     * @param {ParentNode} place */
    function prepare(place) {
        all("[data-copy]", place).forEach((each) => { each.hidden = false; });
    }

    /** Open the point that the address names. */
    function follow() {
        const name = decoded(location.hash.slice(1));
        const row = by_id(name), missing = by_id("missing");
        if (missing) {
            missing.hidden = !name.includes("?") || row !== null;
            missing.textContent = missing.hidden ? "" : `No point ${name.slice(name.indexOf("?") + 1)} has results here.`;
        }
        if (row?.dataset.file) {
            row.hidden = false;
            open(row, true);
            row.scrollIntoView({ block: "start" });
        }
    }

    /** @param {string} text */
    function decoded(text) {
        try {
            return decodeURIComponent(text);
        } catch {
            return text; // not an address of ours
        }
    }

    /** @param {HTMLElement} button */
    async function copy(button) {
        const code = /** @type {HTMLElement} */ (button.parentElement?.querySelector("code"));
        let told = "Copied";
        try {
            await navigator.clipboard.writeText(code.textContent ?? "");
        } catch {
            getSelection()?.selectAllChildren(code); // for the reader's own keys
            told = "Selected";
        }
        button.textContent = told;
        setTimeout(() => { button.textContent = "Copy"; }, 2000);
    }

    document.addEventListener("click", (event) => {
        const target = /** @type {HTMLElement} */ (event.target);
        if (target.matches("[data-copy]")) {
            copy(target);
        }
        const row = /** @type {HTMLElement | null} */ (target.closest("tr.row[data-file]"));
        if (row && !event.ctrlKey && !event.metaKey && !event.shiftKey && !getSelection()?.toString()) {
            event.preventDefault();
            history.replaceState(null, "", row.querySelector("a")?.href);
            open(row);
        }
    });
    document.addEventListener("change", (event) => {
        const field = /** @type {HTMLInputElement} */ (event.target), histories = field.closest(".histories");
        if (field.type === "checkbox" && histories) {
            all("[data-line]", histories).filter((each) => each.dataset.line === field.value).forEach((each) => {
                each.classList.toggle("off", !field.checked);
            });
        }
    });

    const filter = /** @type {HTMLInputElement | null} */ (by_id("filter"));
    function apply() {
        const has = hpml.matcher(filter?.value ?? "", JSON.parse(filter?.dataset.synonyms ?? "{}"));
        const rows = all("main .row");
        all(".drawer").forEach((each) => { each.remove(); });
        rows.forEach((row) => {
            row.hidden = !has(`${row.id} ${row.textContent}`.toLowerCase());
        });
        const count = by_id("count");
        if (count) {
            count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
        }
    }
    if (filter) {
        filter.addEventListener("input", apply);
        filter.form?.addEventListener("submit", (event) => event.preventDefault());
        hpml.on_key("/", filter);
        /** @type {HTMLElement} */ (by_id("controls")).hidden = false;
        apply();
    }
    all("tr.row[data-file] th a").forEach((link) => link.setAttribute("aria-expanded", "false"));
    prepare(document);
    window.addEventListener("hashchange", follow);
    follow();
})();
