// The table of gpus.html: its rows, and the cells of its columns, are made as they scroll into view, from the data that gpu_types.py writes. What a
// reader chooses (base, GPU types, filters, order, unfolded benchmarks) is kept in the address.
"use strict";
(async () => {
    const of = id => document.getElementById(id);
    const controls = of("controls");
    if (!controls) {
        return;
    }
    const [box, table, count, base, picker] = ["box", "matrix", "count", "base", "picker"].map(of);
    const [head, body, widths] = [table.tHead.rows[0], table.tBodies[0], table.querySelector("colgroup")];
    // Letter of a verdict → its class, sign and words; see Matrix.verdicts in gpu_types.py.
    const VERDICTS = {
        b: ["better", "▲", "better"], w: ["worse", "▼", "worse"], s: ["same", "=", "same"],
        r: ["ambiguous", "?", "undecided"], a: ["ambiguous", "?", "no verdict"], d: ["ambiguous", "?", "different problems"],
    };
    const SELECTS = ["plugin", "group", "precision", "filter"].filter(of);
    const TICKS = { all: false, price: true, watts: true };  // and whether they are set at first
    const BEYOND = 600;  // px of rows that are made above and below the view

    // ---- data ------------------------------------------------------------------------------------------------------
    let data;
    try {
        data = await hpml.read("gpus/rows.js");
    } catch (error) {
        fail(error);
        return;
    }
    const columns = data.columns.map(([label, machines, newest, price, watts]) =>
        ({ label, machines, newest, price, watts, cells: null, verdicts: null }));
    const KINDS = {
        price: {
            word: `per ${data.currency || "price"}`, unit: data.currency || "price", cost: column => column.price / 3600,
            about: "What one run costs, or how much work comes for that, by the prices given",
        },
        watts: {
            word: "per watt", unit: "J", cost: (column, measured) => measured || column.watts,
            about: "What one run takes, or how much work comes for that, by the measured power; by the published board power where it says so",
        },
    };
    let rowCount = 0;
    // Benchmarks in order, each with its metrics (the headline first), each with its rows.
    const benchmarks = [];
    for (const [name, title, heading, plugin, unit, direction, paid, points, terms, label] of data.groups) {
        if (benchmarks.at(-1)?.heading !== heading || benchmarks.at(-1).plugin !== plugin) {
            benchmarks.push({ heading, plugin, groups: [] });
        }
        const group = { key: `group-${name}`, name, title, heading, plugin, unit, direction, paid, terms, label };
        group.rows = data.points[points].map(([point, precision, regime]) => ({
            place: rowCount, key: `row-${rowCount++}`, point, precision, regime, group, words: `${title} ${point} ${regime}`.toLowerCase(),
        }));
        benchmarks.at(-1).groups.push(group);
    }

    async function readColumn(column) {
        const found = await hpml.read(`gpus/column-${columns.indexOf(column)}.js`);
        column.at = new Int32Array(rowCount).fill(-1);
        found.rows.forEach((place, at) => { column.at[place] = at; });
        column.cells = found;
    }

    async function readVerdicts(column) {
        column.verdicts = await hpml.read(`gpus/verdicts-${columns.indexOf(column)}.js`);
    }

    function fail(error) {
        of("problem").textContent = `${error.message}.`;
        of("problem").hidden = false;
    }

    // ---- numbers ---------------------------------------------------------------------------------------------------
    // Repeats Difference.times of variability.py.
    function betterBy(value, against, direction) {
        if (!(value > 0) || !(against > 0) || (direction !== "lower" && direction !== "higher")) {
            return null;
        }
        return direction === "lower" ? against / value : value / against;
    }

    // Repeats times of formatting.py; a browser test holds the two together.
    function timesText(times) {
        if (times < 0.0001) {
            return "<0.0001";
        }
        return times.toFixed(times >= 100 ? 0 : times >= 10 ? 1 : times >= 0.1 ? 2 : 4);
    }

    function valueOf(column, row, kind) {
        const at = column.at[row.place], value = at < 0 ? null : column.cells.values[at];
        if (value === null || !kind) {
            return value;
        }
        const cost = KINDS[kind].cost(column, column.cells.watts[at]);
        if (!row.group.paid || !cost || (kind === "watts" && row.regime)) {  // no sensor tells the power of a burst
            return null;
        }
        return row.group.paid === "time" ? value * cost : value / cost;
    }

    function verdictOf(column, row) {
        return columns[state.base].verdicts[columns.indexOf(column)][row.place];
    }

    function ratioOf(column, row, kind) {
        if (verdictOf(column, row) === "d") {
            return null;
        }
        return betterBy(valueOf(column, row, kind), valueOf(columns[state.base], row, kind), row.group.direction);
    }

    // Geometric mean of the ratios of some rows, and of how many.
    function meanOf(column, rows, kind) {
        const ratios = rows.map(row => ratioOf(column, row, kind)).filter(ratio => ratio !== null);
        const sum = ratios.reduce((total, ratio) => total + Math.log(ratio), 0);
        return [ratios.length ? Math.exp(sum / ratios.length) : null, ratios.length];
    }

    // ---- what is shown ---------------------------------------------------------------------------------------------
    let state;  // what the address says
    let shownColumns = [];  // [{column, kind, name}] from left to right; kind "" for the values themselves
    let edges = [0];  // px from the first shown column to the left of each, and to the right of the last
    let across = [0, 0];  // the first shown column of which cells are in the document, and the one behind the last
    let items = [];  // groups and rows from top to bottom: {key, make, size}
    let asked = 0;

    function usualTypes(number) {
        const partner = data.partners[number];
        return partner === null ? [number] : [number, partner];
    }

    function readAddress() {
        const wanted = new URLSearchParams(location.hash.slice(1));
        const numberOf = label => columns.findIndex(column => column.label === label);
        const known = numberOf(wanted.get("base"));
        state = { base: known < 0 ? data.base : known, sort: wanted.get("sort") || "", open: new Set(wanted.getAll("open")) };
        const types = wanted.getAll("type").map(numberOf).filter(number => number >= 0);
        state.types = new Set([state.base, ...(types.length ? types : usualTypes(state.base))]);
        base.selectedIndex = state.base;
        for (const name of SELECTS) {
            const field = of(name), value = wanted.get(name) || "";
            field.value = name === "precision" && Object.hasOwn(data.precisions, value) ? data.precisions[value] : value;
            if (field.selectedIndex === -1) {
                field.value = "";
            }
        }
        for (const [name, first] of Object.entries(TICKS)) {
            if (of(name)) {
                of(name).checked = wanted.has(name) ? wanted.get(name) !== "no" : first;
            }
        }
        update();
    }

    function address() {
        const wanted = new URLSearchParams();
        if (state.base !== data.base) {
            wanted.set("base", columns[state.base].label);
        }
        const usual = usualTypes(state.base);
        if (state.types.size !== usual.length || !usual.every(number => state.types.has(number))) {
            state.types.forEach(number => wanted.append("type", columns[number].label));
        }
        SELECTS.filter(name => of(name).value).forEach(name => wanted.set(name, of(name).value));
        for (const [name, first] of Object.entries(TICKS)) {
            if (of(name) && of(name).checked !== first) {
                wanted.set(name, first ? "no" : "yes");
            }
        }
        state.open.forEach(heading => wanted.append("open", heading));
        if (state.sort) {
            wanted.set("sort", state.sort);
        }
        return wanted.toString() ? `#${wanted}` : location.pathname + location.search;
    }

    // Load what the choice needs, then show it; a later choice overtakes an earlier one that is still loading.
    async function update() {
        const turn = ++asked;
        const chosen = columns.filter((_, number) => state.types.has(number));
        const against = columns[state.base];
        picker.querySelectorAll("input").forEach(tick => { tick.checked = state.types.has(Number(tick.value)); });
        of("types-count").textContent = `${chosen.length} of ${columns.length}`;
        box.setAttribute("aria-busy", "true");
        try {
            await Promise.all([
                ...chosen.filter(column => !column.cells).map(readColumn), ...(against.verdicts ? [] : [readVerdicts(against)]),
            ]);
        } catch (error) {
            fail(error);
            return;
        }
        if (turn === asked) {
            shownColumns = chosen.flatMap(column => ["", "price", "watts"]
                .filter(kind => !kind || (column[kind] && of(kind)?.checked))
                .map(kind => ({ column, kind, name: kind ? `${column.label} ${KINDS[kind].word}` : column.label })));
            arrange(chosen);
            box.removeAttribute("aria-busy");
        }
    }

    function arrange(chosen) {
        const words = of("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
        const [plugin, heading, precision] = ["plugin", "group", "precision"].map(name => of(name)?.value || "");
        const matches = row => (!precision || row.precision === precision) && words.every(word => row.words.includes(word));
        const has = (column, row) => column.at[row.place] >= 0 && column.cells.status[column.at[row.place]] !== "s";
        const sorter = shownColumns.find(each => each.name === state.sort.replace(/^-/, ""));
        const sign = state.sort.startsWith("-") ? 1 : -1;
        const order = ratio => ratio === null ? Infinity : sign * ratio;
        const blocks = [];
        for (const benchmark of benchmarks) {
            if ((plugin && benchmark.plugin !== plugin) || (heading && benchmark.heading !== heading)) {
                continue;
            }
            const open = state.open.has(benchmark.heading);
            const found = benchmark.groups.map(group => {
                const any = group.rows.filter(row => matches(row) && chosen.some(column => has(column, row)));
                const shared = any.filter(row => chosen.every(column => valueOf(column, row) !== null));
                return { group, any, rows: of("all").checked ? any : shared };
            });
            // The headline of a folded benchmark stays first when it is unfolded.
            const lead = found.find(each => each.rows.length) || found[0];
            found.sort((a, b) => (b === lead) - (a === lead));
            if (open) {
                found.forEach(each => { each.rows = each.any; });
            }
            const shown = found.filter(each => each.rows.length).slice(0, open ? undefined : 1);
            if (!shown.length) {
                continue;
            }
            const more = found.reduce((total, each) => total + each.any.length, 0) - shown[0].rows.length;
            const block = { benchmark, shown, open, foldable: open || more > 0, more, key: 0 };
            if (sorter) {
                for (const each of shown) {
                    const keys = new Map(each.rows.map(row => [row, order(ratioOf(sorter.column, row, sorter.kind))]));
                    each.rows.sort((a, b) => keys.get(a) - keys.get(b) || a.place - b.place);
                }
                block.key = order(meanOf(sorter.column, shown[0].rows, sorter.kind)[0]);
            }
            blocks.push(block);
        }
        blocks.sort((a, b) => a.key === b.key ? 0 : a.key - b.key);
        items = blocks.flatMap(block => block.shown.flatMap(({ group, rows }, place) => [
            { key: group.key, make: () => groupRow(group, rows, place === 0 ? block : null), size: 64 },
            ...rows.map(row => ({ key: row.key, make: () => pointRow(row), size: 58 })),
        ]));
        const points = blocks.reduce((total, block) => total + block.shown.reduce((sum, each) => sum + each.rows.length, 0), 0);
        count.textContent = `${points} of ${rowCount} points` +
            (points || of("all").checked ? "" : ": these GPU types share none that match; tick “all rows”");
        showHead();
        table.setAttribute("aria-rowcount", items.length + 1);
        made = new Map();
        paint(true);
    }

    // ---- rows ------------------------------------------------------------------------------------------------------
    function make(tag, className, ...children) {
        const element = document.createElement(tag);
        element.className = className;
        element.append(...children);
        return element;
    }

    function link(href, text) {
        const element = make("a", "", text);
        element.href = href;
        return element;
    }

    function historyOf(group, point) {
        return `history.html#${encodeURIComponent(group.name)}${point ? `?${encodeURIComponent(point)}` : ""}`;
    }

    function showHead() {
        const focused = document.activeElement?.id;
        const point = make("th", "point", "Benchmark and point");
        point.scope = "col";
        head.replaceChildren(point, ...shownColumns.map(({ column, kind, name }, place) => {
            const isSorted = state.sort.replace(/^-/, "") === name;
            const button = make("button", "sort", kind ? KINDS[kind].word : column.label);
            button.type = "button";
            button.id = `sort-${place}`;
            button.title = "Sort by the ratio in this column";
            button.setAttribute("aria-label", name);
            button.addEventListener("click", () => choose(() => {
                state.sort = state.sort === name ? `-${name}` : state.sort === `-${name}` ? "" : name;
            }));
            const cell = make("th", kind ? `per ${kind}` : column === columns[state.base] ? "base" : "", button);
            cell.scope = "col";
            cell.title = kind ? KINDS[kind].about : "";
            cell.setAttribute("aria-sort", !isSorted ? "none" : state.sort.startsWith("-") ? "ascending" : "descending");
            if (!kind) {
                const facts = [
                    column.machines.join(", "), column.newest && `newest ${column.newest}`,
                    column.price && `${Number(column.price.toPrecision(4))} ${data.currency}/h`,
                    column.watts && `${Number(column.watts.toPrecision(4))} W`,
                ].filter(Boolean);
                cell.append(make("small", "", ...facts.flatMap((fact, i) => i ? [document.createElement("br"), fact] : [fact])));
            }
            return cell;
        }));
        widths.replaceChildren(make("col", "point"), ...shownColumns.map(({ kind }) => make("col", kind ? "per" : "value")));
        table.setAttribute("aria-colcount", shownColumns.length + 1);
        const cells = [...head.cells].slice(1).map(cell => cell.getBoundingClientRect()), origin = cells[0]?.left;
        edges = [0, ...cells.map(cell => cell.right - origin)];
        if (focused?.startsWith("sort-")) {
            of(focused)?.focus({ preventScroll: true });
        }
    }

    // A ratio with what it means: sign, number, words.
    function verdictText(className, ratio, letter) {
        const [kind, sign, words] = VERDICTS[letter];
        return make("span", `${className} ${kind}`, ratio === null ? `${sign} ${words}` : `${sign} ${timesText(ratio)}×, ${words}`);
    }

    function groupRow(group, rows, block) {
        const direction = group.direction === "lower" || group.direction === "higher";
        const facts = [
            group.unit && `in ${group.unit}`, direction ? `${group.direction} is better` : "not ranked",
            group.plugin && `plugin ${group.plugin}`,
        ].filter(Boolean);
        const title = make("th", "point", link(historyOf(group, ""), group.title), make("small", "", facts.join(", ")));
        title.scope = "row";
        if (Object.keys(group.terms).length) {
            const terms = make("details", "terms", make("summary", "", "Names explained"), ...hpml.glossary(group.terms));
            terms.addEventListener("toggle", () => paint(true));
            title.append(terms);
        }
        if (block?.foldable) {
            const button = make("button", "unfold", block.open ? "fewer rows" : `${block.more} more ${block.more === 1 ? "row" : "rows"}`);
            button.type = "button";
            button.id = `unfold-${benchmarks.indexOf(block.benchmark)}`;
            button.setAttribute("aria-expanded", String(block.open));
            button.setAttribute("aria-label", `${button.textContent}: other metrics and points of ${group.heading}`);
            button.addEventListener("click", () => choose(() => {
                state.open[block.open ? "delete" : "add"](group.heading);
            }));
            title.append(button);
        }
        return make("tr", "group", title, ...cellsOf(({ column, kind }) => {
            const cell = make("td", kind ? `per ${kind}` : "");
            const [mean, number] = column === columns[state.base] ? [null, 0] : meanOf(column, rows.filter(row => !row.regime), kind);
            if (mean !== null) {
                cell.append(make("span", "mean", `${timesText(mean)}×`));
                if (!kind) {
                    cell.append(" ", make("small", "", `mean of ${number} point${number === 1 ? "" : "s"}`));
                }
            }
            return cell;
        }));
    }

    function pointRow(row) {
        const title = make("th", "point", link(historyOf(row.group, row.point), row.point || "one point"),
            ...(row.regime ? [" ", make("small", "", `at ${row.regime}`)] : []));
        title.scope = "row";
        const made = make("tr", "row", title, ...cellsOf(({ column, kind }) =>
            kind ? costCell(column, row, kind) : valueCell(column, row)));
        made.dataset.metric = row.group.title;
        return made;
    }

    // The cells of the columns in view, in their places: what lies left and right of them is one empty cell each.
    function cellsOf(make) {
        const [first, last] = across;
        const made = shownColumns.slice(first, last).map((shown, place) => {
            const cell = make(shown);
            cell.setAttribute("aria-colindex", first + place + 2);
            return cell;
        });
        return [gap(first), ...made, gap(shownColumns.length - last)].filter(Boolean);
    }

    function gap(count) {
        const cell = count > 0 && make("td", "gap");
        if (cell) {
            cell.colSpan = count;
        }
        return cell;
    }

    function valueCell(column, row) {
        const at = column.at[row.place], cell = make("td", "");
        if (at < 0) {
            return cell;
        }
        const { status, texts, intervals, titles } = column.cells;
        cell.className = { f: "failed", s: "skipped" }[status[at]] || "";
        cell.append(status[at] === "s" ? texts[at] : link(historyOf(row.group, row.point), texts[at]));
        if (intervals[at]) {
            cell.append(" ", make("small", "", intervals[at]));
        }
        if (titles[at]) {
            cell.title = titles[at];
        }
        const letter = verdictOf(column, row), ratio = ratioOf(column, row, "");
        if (column === columns[state.base]) {
            cell.append(ratio === null ? "" : make("span", "ratio", "base"));
        } else if (ratio !== null || (letter === "d" && row.group.direction)) {
            cell.append(verdictText("ratio", ratio, letter));
        }
        return cell;
    }

    // Of what one run costs, or of the work that comes for one unit of that.
    function costUnit(group, unit) {
        const work = group.label.replace(/\/s$/, "");
        return { label: group.paid === "time" ? unit : `${work === "Hz" ? 1 : work}/${unit}`, lowest: -12, highest: 18, count: false };
    }

    function costCell(column, row, kind) {
        const at = column.at[row.place], cell = make("td", `per ${kind}`);
        const value = valueOf(column, row, kind);
        if (!(value > 0)) {
            return cell;
        }
        cell.append(make("span", "told", hpml_chart.quantity(value, costUnit(row.group, KINDS[kind].unit))));
        if (kind === "watts") {
            const measured = column.cells.watts[at];
            cell.append(measured ? "" : make("small", "", " published"));
            cell.title = measured ? `by ${Number(measured.toPrecision(4))} W, measured under this load` : "";
        }
        const ratio = ratioOf(column, row, kind);
        if (ratio !== null) {
            cell.append(make("span", "times", column === columns[state.base] ? "base" : `${timesText(ratio)}×`));
        }
        return cell;
    }

    // ---- only the rows in view are in the document -----------------------------------------------------------------
    const heights = new Map();  // key → px, of rows that have been measured
    let made = new Map();  // key → its row, of those in the document
    let painted = [0, 0];
    const [above, below] = [spacer(), spacer()];  // as high as the rows that are not there

    function offsets() {
        const found = [0];
        items.forEach(item => found.push(found.at(-1) + (heights.get(item.key) ?? item.size)));
        return found;
    }

    function spacer() {
        const row = make("tr", "spacer");
        row.setAttribute("aria-hidden", "true");
        body.append(row);
        return row;
    }

    // Which columns are in view; whether that is another choice than before.
    function spread(whole) {
        const left = whole ? 0 : box.scrollLeft - BEYOND, right = whole ? Infinity : box.scrollLeft + box.clientWidth + BEYOND;
        const inView = shownColumns.map((_, place) => place).filter(place => edges[place + 1] > left && edges[place] < right);
        const found = inView.length ? [inView[0], inView.at(-1) + 1] : [0, 0];
        const same = found[0] === across[0] && found[1] === across[1];
        across = found;
        return !same;
    }

    function paint(again, whole) {
        const had = made;
        if (spread(whole)) {
            made = new Map();
            again = true;
        }
        const tops = offsets();
        // The box is as high as its rows are, at most nearly as the window.
        const [from, to] = whole ? [0, Infinity] : [box.scrollTop - BEYOND, box.scrollTop + window.innerHeight + BEYOND];
        let first = tops.findIndex((_, place) => tops[place + 1] > from), last = tops.findIndex(top => top >= to);
        first = first < 0 ? 0 : first;
        last = last < 0 ? items.length : last;
        if (!again && first === painted[0] && last === painted[1]) {
            return;
        }
        painted = [first, last];
        const focused = body.contains(document.activeElement) ? document.activeElement : null, at = box.scrollTop;
        const focusedKey = focused && [...had].find(([, row]) => row.contains(focused))?.[0];
        const now = new Map(items.slice(first, last).map(item => [item.key, made.get(item.key) || item.make()]));
        const rows = [...now.values()], staying = new Set(rows);
        // Rows that stay are not touched: one may have the focus.
        [...body.rows].filter(row => row !== above && row !== below && !staying.has(row)).forEach(row => row.remove());
        let next = above.nextSibling;
        rows.forEach((row, place) => {
            row.setAttribute("aria-rowindex", first + place + 2);
            if (row === next) {
                next = next.nextSibling;
            } else {
                next.before(row);
            }
        });
        made = now;
        above.style.height = `${tops[first]}px`;
        below.style.height = `${tops.at(-1) - tops[last]}px`;
        box.scrollTop = at;
        measure(tops, first, last, rows);
        if (focused && !focused.isConnected) {
            const cell = focused.closest("[aria-colindex]"), link = cell ? `[aria-colindex="${cell.ariaColIndex}"] a` : "a";
            (focused.id && of(focused.id) || made.get(focusedKey)?.querySelector(link) || box).focus({ preventScroll: true });
        }
    }

    // Rows get the heights that they turn out to have; what is in view stays where it is.
    function measure(tops, first, last, rows) {
        let moved = 0;
        rows.forEach((row, place) => {
            const { key, size } = items[first + place], height = row.getBoundingClientRect().height;
            moved += tops[first + place + 1] <= box.scrollTop ? height - (heights.get(key) ?? size) : 0;
            heights.set(key, height);
        });
        if (Math.abs(moved) >= 1) {
            box.scrollTop += moved;
        }
    }

    // ---- what a reader does ----------------------------------------------------------------------------------------
    function choose(change, method = "pushState") {
        change();
        history[method](null, "", address());
        update();
    }

    controls.addEventListener("change", event => {
        const field = event.target;
        if (field.id !== "filter") {
            choose(() => {
                if (field === base) {
                    state.base = base.selectedIndex;
                    state.types.add(state.base);
                } else if (field.name === "type") {
                    const number = Number(field.value);
                    state.types[field.checked || number === state.base ? "add" : "delete"](number);
                }
            });
        }
    });
    of("filter").addEventListener("input", () => choose(() => {}, "replaceState"));
    document.addEventListener("keydown", event => {
        if (event.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) {
            event.preventDefault();
            of("filter").focus();
        }
    });
    box.addEventListener("scroll", () => paint(false), { passive: true });
    window.addEventListener("resize", () => { heights.clear(); showHead(); paint(true); });
    window.addEventListener("beforeprint", () => paint(true, true));
    window.addEventListener("afterprint", () => paint(true));
    window.addEventListener("hashchange", readAddress);
    window.addEventListener("popstate", readAddress);
    controls.addEventListener("submit", event => event.preventDefault());

    of("filters").open = window.innerWidth > 700;
    controls.hidden = box.hidden = false;
    readAddress();
})();
