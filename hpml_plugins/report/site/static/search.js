"use strict";
// The search over the whole site. data.js loads it, and with it the index, when somebody first goes to its field.
(() => {
    const MOST = 40;
    const form = /** @type {HTMLFormElement} */ (document.getElementById("search-form"));
    const field = /** @type {HTMLInputElement} */ (document.getElementById("search"));
    const found = /** @type {HTMLElement} */ (document.getElementById("found"));
    const list = /** @type {HTMLElement} */ (document.getElementById("search-list"));
    const message = /** @type {HTMLElement} */ (document.getElementById("search-message"));
    const own_page = /(^|\/)search\.html$/.test(location.pathname);
    /** @typedef {{kind: string, title: string, more: string, address: string, text: string}} Entry */
    /** @type {{entries: Entry[], short: boolean, words: Set<string>, synonyms: Record<string, string>}} */
    let index;
    /** @type {Promise<void> | null} */
    let asked = null;

    function load() {
        asked = asked ?? hpml.read("search-index.js").then((/** @type {any} */ read) => {
            const entries = entries_of(read);
            const words = new Set(entries.flatMap((each) => each.text.split(/[^\p{L}\p{N}]+/u)));
            index = { entries, words, short: Boolean(read.short), synonyms: read.synonyms };
        }).catch(() => {
            asked = null;
            message.textContent = "The index of this site could not be loaded.";
            found.hidden = false;
            throw new Error("no index");
        });
        return asked;
    }

    /** Everything that can be found; text is what is searched.
     * @param {any} read @returns {Entry[]} */
    function entries_of(read) {
        /** @type {string[][]} kind, title, more, address, further words */
        const all = read.entries.map((/** @type {string[]} */ each) => [...each, ""]);
        for (const [address, title, plugin, , types] of read.benchmarks) {
            all.push(["benchmark", title, plugin, address, types]);
        }
        for (const [address, title, plugin, points] of read.benchmarks) {
            for (const point of read.points[points]) {
                const place = encodeURIComponent(point.replaceAll(", ", "&")).replace(/%(3D|26)/g, decodeURIComponent);
                all.push(["point", `${title}: ${point}`, plugin, `${address}?${place}`, ""]);
            }
        }
        return all.map(([kind, title, more, address, words]) => {
            return { kind, title, more, address, text: `${kind} ${title} ${more} ${words}`.toLowerCase() };
        });
    }

    /** The entries that have every word, those that have them in their title first.
     * @param {string[]} words */
    function matches(words) {
        const has = hpml.matcher(words.join(" "), index.synonyms);
        const all = index.entries.filter((each) => has(each.text));
        const in_title = all.filter((each) => has(each.title.toLowerCase()));
        return [...in_title, ...all.filter((each) => !in_title.includes(each))];
    }

    /** How many letters differ between two words.
     * @param {string} a @param {string} b */
    function distance(a, b) {
        let row = Array.from({ length: b.length + 1 }, (_, at) => at);
        for (let i = 1; i <= a.length; i += 1) {
            const next = [i];
            for (let j = 1; j <= b.length; j += 1) {
                next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
            }
            row = next;
        }
        return row[b.length];
    }

    /** Words of the index in the place of those that it lacks, and without those that nothing is near to.
     * @param {string[]} words */
    function near(words) {
        const most = (/** @type {string} */ word) => Math.max(1, Math.floor(word.length / 3));
        const known = words.map((word) => {
            if (matches([word]).length) return word;
            const alike = [...index.words].map((each) => /** @type {[number, string]} */ ([distance(word, each), each]));
            const best = alike.reduce((a, b) => (b[0] < a[0] ? b : a), [Infinity, ""]);
            return best[0] <= most(word) ? best[1] : "";
        }).filter(Boolean);
        while (known.length > 1 && !matches(known).length) known.pop();
        return known;
    }

    function show() {
        const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
        found.hidden = !words.length;
        let all = words.length ? matches(words) : [];
        let told = all.length > MOST ? `Showing ${MOST} of ${all.length}. Add a word to narrow the search.` : `${all.length} found`;
        if (words.length && !all.length) {
            const nearest = near(words);
            all = nearest.length ? matches(nearest) : [];
            told = `No results for “${field.value.trim()}”.${all.length ? ` Near it: “${nearest.join(" ")}”, ${all.length} found.` : ""}`;
        }
        list.replaceChildren(...all.slice(0, MOST).map((each) => {
            const item = document.createElement("li"), link = document.createElement("a"), kind = document.createElement("small");
            kind.textContent = ` ${each.kind}${each.kind === "chart" || each.kind === "benchmark" ? ` · ${each.more}` : ""}`;
            link.href = each.address;
            link.append(each.title, kind);
            item.append(link);
            return item;
        }));
        message.textContent = words.length ? told + (index.short ? " Points are not searched: there are too many." : "") : "";
    }

    function search() {
        if (own_page) {
            history.replaceState(null, "", field.value ? `#${new URLSearchParams({ q: field.value })}` : location.pathname);
        }
        return load().then(show).catch(() => {});
    }

    function close() {
        found.hidden = true;
    }

    function links() {
        return [...list.querySelectorAll("a")];
    }

    field.addEventListener("input", search);
    form.addEventListener("submit", async (event) => {
        event.preventDefault();
        await search();
        if (field.value.trim()) links()[0]?.click();
    });
    form.addEventListener("click", (event) => {
        if (/** @type {HTMLElement} */ (event.target).closest("a")) close();
    });
    form.addEventListener("keydown", (event) => {
        const all = links(), at = all.indexOf(/** @type {HTMLAnchorElement} */ (document.activeElement));
        if (event.key === "Escape") {
            field.focus();
            close();
        } else if (event.key === "ArrowDown" && found.hidden) {
            event.preventDefault();
            search();
        } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
            event.preventDefault();
            const next = at + (event.key === "ArrowDown" ? 1 : -1);
            (next < 0 ? field : all[Math.min(next, all.length - 1)] ?? field).focus();
        }
    });
    for (const kind of ["focusin", "click"]) {
        document.addEventListener(kind, (event) => {
            if (!form.contains(/** @type {Node} */ (event.target))) close();
        });
    }
    if (own_page) {
        field.value = new URLSearchParams(location.hash.slice(1)).get("q") ?? field.value;
        field.focus();
    }
    if (field.value) {
        search(); // what the address says, or was typed before this was here
    } else {
        load().catch(() => {});
    }
})();
