"use strict";
// The first page: another base, values per joule or price, GPUs of a node, the cards behind a row, and all points below.
// What the page shows at first is in its HTML; the choices are kept in the address.
(() => {
    const form = /** @type {HTMLFormElement | null} */ (document.getElementById("switches"));
    if (!form) {
        return;
    }
    const filter = /** @type {HTMLInputElement} */ (by_id("filter"));
    const base = /** @type {HTMLSelectElement | null} */ (by_id("base"));
    const first = base?.value ?? "";
    const synonyms = JSON.parse(filter.dataset.synonyms ?? "{}");
    let drawn = first; // the base of the verdicts that are shown
    let unfolded = false; // to all points
    let asked = 0;

    /** @param {string} id */
    function by_id(id) {
        return /** @type {HTMLElement} */ (document.getElementById(id));
    }

    /** @param {string} selector @param {ParentNode} [inside] */
    function all(selector, inside = document) {
        return [...inside.querySelectorAll(selector)].map((each) => /** @type {HTMLElement} */ (each));
    }

    function fields() {
        return all("#switches [name]").map((each) => /** @type {HTMLInputElement | HTMLSelectElement} */ (each));
    }

    /** The value of the chosen button of a group, "" where the page has no such group.
     * @param {string} name */
    function chosen(name) {
        return /** @type {HTMLInputElement | null} */ (document.querySelector(`#switches [name=${name}]:checked`))?.value ?? "";
    }

    /** Show the nodes of all counts of GPUs: what a filter finds may be of any. */
    function show_all_counts() {
        const every = /** @type {HTMLInputElement | null} */ (document.querySelector("#switches [name=count][value=all]"));
        if (every) every.checked = true;
    }

    /** Keep the choices that differ from the page's own in the address.
     * @param {Event} event */
    function keep(event) {
        if (event.target === filter) {
            if (!unfolded) show_all_counts();
            unfolded = filter.value !== "";
        }
        const choices = new URLSearchParams();
        for (const field of fields()) {
            if (field instanceof HTMLSelectElement) {
                if (field.value !== first) choices.set(field.name, field.selectedOptions[0].text);
            } else if (field.type === "radio") {
                if (field.checked && !field.defaultChecked) choices.set(field.name, field.value);
            } else if (field.value !== field.defaultValue || field === filter && unfolded) {
                choices.set(field.name, field.value);
            }
        }
        history.replaceState(null, "", location.pathname + location.search + (choices.size ? `#${choices}` : ""));
        show();
    }

    function restore() {
        const choices = new URLSearchParams(location.hash.slice(1)), told = choices.get("base");
        for (const field of fields()) {
            const value = choices.get(field.name);
            if (field instanceof HTMLSelectElement) {
                const known = [...field.options].find((each) => value === each.text || value === each.value);
                field.value = known?.value ?? first;
            } else if (field.type === "radio") {
                const offered = fields().some((each) => each.name === field.name && each.value === value);
                field.checked = offered ? field.value === value : field.defaultChecked;
            } else {
                field.value = value ?? field.defaultValue;
            }
        }
        // names of the page of all points that there was, and a type that is no column here
        const words = ["plugin", "group", "precision", "open"].flatMap((name) => choices.getAll(name));
        if (told && (!base || ![base.value, base.selectedOptions[0].text].includes(told))) words.push(told);
        filter.value = [filter.value, ...words].filter(Boolean).join(" ");
        unfolded = choices.has("filter") || words.length > 0;
        if (unfolded && !choices.has("count")) show_all_counts();
        show();
    }

    async function show() {
        const turn = asked += 1, matches = hpml.matcher(filter.value, synonyms);
        try {
            if (unfolded) {
                const show_points = await hpml.read("all_points.js");
                await show_points(matches, () => turn === asked, paint);
            }
        } catch (error) {
            by_id("problem").textContent = `${/** @type {Error} */ (error).message}.`;
            by_id("problem").hidden = false;
        }
        if (turn === asked) {
            by_id("all").hidden = by_id("count").hidden = !unfolded;
            by_id("further").hidden = !unfolded || by_id("further").dataset.left === "0";
            all("#tasks tbody:not(#all) tr.row").forEach((row) => {
                row.classList.toggle("unlike", !matches((row.textContent ?? "").toLowerCase()));
            });
            paint();
        }
    }

    /** Show what was chosen in the rows that there are. */
    function paint() {
        const by = chosen("by"), count = chosen("count") || "all";
        by_id("prices").hidden = by !== "money";
        const heads = all("#tasks thead [data-column]");
        const left_out = heads.filter(({ dataset }) => count !== "all" && dataset.count !== count && dataset.column !== base?.value);
        const hidden = new Set(left_out.map((head) => head.dataset.column));
        all("#tasks [data-column], #prices label").forEach((each) => { each.hidden = hidden.has(each.dataset.column); });
        all("#tasks tr.row").forEach((row) => {
            const cells = all("a.cell", row);
            row.hidden = cells.length > 0 && cells.every((cell) => cell.parentElement?.hidden);
        });
        heads.forEach((head) => { head.classList.toggle("base", head.dataset.column === base?.value); });
        all("#tasks a.cell").forEach((cell) => {
            const value = all(".value", cell)[0];
            value.dataset.speed ??= value.textContent ?? "";
            value.textContent = by === "money" ? per_price(cell) : by === "joule" ? cell.dataset.joule ?? "no power measured" :
                value.dataset.speed;
            value.classList.toggle("other", by !== "speed");
            const about = all("small", cell)[0];
            about.dataset.speed ??= about.innerHTML;
            if (by === "joule") about.textContent = cell.dataset.jouleCards ?? "";
            else about.innerHTML = about.dataset.speed;
        });
        draw_verdicts(by);
    }

    /** What a node of a cell's type costs for an hour; 0 where that is not known.
     * @param {HTMLElement} cell */
    function price_of(cell) {
        const field = document.querySelector(`#prices [name="price-${cell.parentElement?.dataset.column}"]`);
        return Number(/** @type {HTMLInputElement | null} */ (field)?.value ?? 0);
    }

    /** The work for one unit of price, or the price of one run, or of a million of what is counted, such as tokens.
     * @param {HTMLElement} cell */
    function per_price(cell) {
        const price = price_of(cell), value = Number(cell.dataset.value), unit = cell.closest("tr")?.dataset.unit ?? "";
        const currency = form?.dataset.currency ?? "";
        if (!price) return "enter a price";
        /** @param {number} cost */
        const shown = (cost) => `${Number(cost.toPrecision(4))} ${currency}`;
        const of_one = price * (unit === "s" ? value : 1 / value) / 3600;
        if (unit === "s" && of_one >= 0.001) return `${shown(of_one)} a run`;
        if (unit === "s") return `${shown(1e6 * of_one)} per million runs`;
        if (unit === "/s") return `${shown(1e6 * of_one)} per million`;
        return /^Hz$|\/s$/.test(unit) ? `${scaled(value * 3600 / price)}${unit.replace("/s", "")} per ${currency}` : "no price of this";
    }

    /** @param {number} value */
    function scaled(value) {
        const power = Math.min(6, Math.max(-4, Math.floor(Math.log10(value) / 3)));
        return `${(value / 1000 ** power).toPrecision(4)} ${["p", "n", "µ", "m", "", "k", "M", "G", "T", "P", "E"][power + 4]}`;
    }

    /** The verdicts against the chosen base: those of the page, or loaded.
     * @param {string} by */
    async function draw_verdicts(by) {
        const turn = asked, number = base?.value;
        if (!number || drawn === number && by === "speed" && !unfolded) {
            return;
        }
        const names = by === "joule" ? ["joules"] : ["verdicts", ...(unfolded ? ["points"] : [])];
        const found = await Promise.all(names.map((name) => hpml.read(`compare/${name}-${number}.js`)));
        if (turn !== asked) {
            return;
        }
        drawn = by === "speed" ? number : "";
        all("#tasks td[data-column]").forEach((cell) => {
            const place = all(".verdict", cell)[0], row = cell.parentElement;
            if (place && row) {
                const of_column = found.map((each) => each[cell.dataset.column ?? ""]);
                place.innerHTML = of_column.map((each) => each?.[row.dataset.row ?? ""] ?? "").join("");
                if (by === "money") rescale(place, all(`td[data-column="${number}"] a.cell`, row)[0], all("a.cell", cell)[0]);
            }
        });
    }

    /** The ratio of the speeds, as one per price: multiplied by what the base costs over what this costs.
     * @param {HTMLElement} place @param {HTMLElement | undefined} of_base @param {HTMLElement} cell */
    function rescale(place, of_base, cell) {
        const told = all("[data-low]", place)[0];
        const [of_other, here] = [of_base, cell].map((each) => each ? price_of(each) : 0);
        if (!told || !of_other || !here) {
            place.textContent = "";
            return;
        }
        const ends = [told.dataset.low, told.dataset.high].map((end) => (Number(end) * of_other / here).toFixed(2));
        place.textContent = `${[...new Set(ends)].join(" to ")}× for the price`;
    }

    /** Unfold what stands behind a row, or fold it.
     * @param {HTMLTableRowElement} row */
    function open(row) {
        const next = row.nextElementSibling, opened = next?.classList.contains("drawer");
        all("a.cell", row).forEach((cell) => { cell.setAttribute("aria-expanded", String(!opened)); });
        if (opened) {
            next?.remove();
            return;
        }
        const drawer = document.createElement("tr"), place = document.createElement("td");
        drawer.className = "drawer";
        place.colSpan = row.children.length;
        place.textContent = "…";
        drawer.append(place);
        row.after(drawer);
        hpml.read(`compare/row-${row.dataset.row}.js`).then((html) => { place.innerHTML = html; }).catch(() => {
            place.textContent = "The cards of this row could not be loaded.";
        });
    }

    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", keep);
    hpml.on_key("/", filter);
    window.addEventListener("hashchange", restore);
    by_id("tasks").addEventListener("click", (event) => {
        const cell = /** @type {HTMLElement} */ (event.target).closest("tbody:not(#all) a.cell");
        const row = /** @type {HTMLTableRowElement | null} */ (cell?.closest("tr") ?? null);
        if (row && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
            event.preventDefault();
            open(row);
        }
    });
    all("tbody:not(#all) a.cell").forEach((cell) => {
        cell.setAttribute("role", "button");
        cell.setAttribute("aria-expanded", "false");
    });
    restore();
})();
