"use strict";
// Puts asv's pages right from outside, without changing its scripts: text that is shown as HTML, directions, a history of
// one commit, and room for the navbar.
//
// Loaded behind jQuery, Flot and asv.js and in front of asv's other scripts: what is registered with $(document).ready here
// runs when $.asv is there and its pages are not.
(() => {
    const $ = window.jQuery;

    // --- Text is text: asv puts names, machine facts, code, units and tags into HTML as they are. Facts, code and tags,
    // which it uses for nothing else, are escaped in its index. All HTML that jQuery is given loses what asv, Flot and
    // Bootstrap never write: another element becomes its own text, another attribute is dropped.

    const ELEMENTS = /^(a|b|br|button|canvas|div|h1|h3|i|label|li|p|small|span|strong|sup|table|tbody|td|th|thead|tr|ul)$/;
    const ATTRIBUTES = /^(class|colspan|href|id|role|style|title|type|target|align|valign|width|height|data-[a-z-]+|aria-[a-z]+)$/;
    /** @type {Record<string, string>} */
    const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

    /** @param {unknown} text */
    function escaped(text) {
        return String(text ?? "").replace(/[&<>"']/g, (letter) => ENTITIES[letter]);
    }

    /** @param {string} address */
    function is_safe_address(address) {
        try {
            return /^(https?|file):$/.test(new URL(address, location.href).protocol);
        } catch {
            return false;
        }
    }

    /** Where asv's own HTML leads out of this site: to the project and its commits, as asv.conf.json says.
     * @type {string[]} */
    const elsewhere = [];

    /** @param {string} address */
    function is_own_address(address) {
        const starts = [location.href.replace(/[^/]*([?#].*)?$/, ""), ...elsewhere];
        return is_safe_address(address) && starts.some((start) => new URL(address, location.href).href.startsWith(start));
    }

    // Put in front of what may be the name of an event handler, which a browser reports even where nothing can run.
    const MARK = "\ue000";

    $.htmlPrefilter = (/** @type {string} */ html) => {
        const holder = document.createElement("template");
        holder.innerHTML = html.replace(/on(?=[a-z]+\s*=)/gi, `${MARK}$&`);
        for (const element of holder.content.querySelectorAll("*")) {
            if (!ELEMENTS.test(element.localName) || element.namespaceURI !== "http://www.w3.org/1999/xhtml") {
                element.replaceWith(document.createTextNode(element.outerHTML));
                continue;
            }
            for (const { name, value } of [...element.attributes]) {
                if (!ATTRIBUTES.test(name) || name === "href" && !is_own_address(value)) element.removeAttribute(name);
            }
        }
        return holder.innerHTML.replaceAll(MARK, "");
    };

    /** @param {Record<string, unknown> | undefined} object */
    function escape_all(object) {
        const found = Object.create(null);
        for (const [key, value] of Object.entries(object ?? {})) found[escaped(key)] = escaped(value);
        return found;
    }

    /** @param {any} index */
    function safe_index(index) {
        for (const name of Object.keys(index.machines)) index.machines[name] = escape_all(index.machines[name]);
        for (const benchmark of /** @type {any[]} */ (Object.values(index.benchmarks))) {
            benchmark.code = escaped(benchmark.code);
            if (benchmark.pretty_name) benchmark.pretty_name = escaped(benchmark.pretty_name);
        }
        const tags = Object.create(null);
        for (const tag of Object.keys(index.tags)) tags[escaped(tag)] = index.tags[tag];
        index.tags = tags;
        for (const key of ["project_url", "show_commit_url"]) {
            index[key] = is_safe_address(index[key]) ? index[key] : "#";
            elsewhere.push(new URL(index[key], location.href).href);
        }
        return index;
    }

    $.ajaxPrefilter("json", (/** @type {any} */ options) => {
        if (/^index\.json\?/.test(options.url)) {
            const read = (/** @type {string} */ text) => safe_index(JSON.parse(text));
            options.converters = { ...options.converters, "text json": read };
        }
    });

    /** What asv's index says of a benchmark.
     * @param {string} name @returns {any} */
    function declared(name) {
        return $.asv.main_json.benchmarks[name] ?? {};
    }

    /** Which way is better: asv takes more for worse, whatever is measured.
     * @param {Element} table */
    function fix_summary(table) {
        for (const cell of table.querySelectorAll("td.change")) {
            const name = cell.parentElement?.querySelector("a")?.getAttribute("href")?.slice(1).split("?")[0] ?? "";
            const { direction } = declared(name);
            if (direction === "none") { // neither is better
                cell.classList.remove("positive-change", "negative-change");
            } else if (direction === "higher" && cell.matches(".positive-change, .negative-change")) {
                cell.classList.toggle("positive-change");
                cell.classList.toggle("negative-change");
            }
        }
    }

    /** Call `fix` with each table that asv puts somewhere below an element; before it is sorted, which asv does later.
     * @param {Element} place @param {(table: Element) => void} fix */
    function on_new_tables(place, fix) {
        new MutationObserver((changes) => {
            for (const node of changes.flatMap((change) => [...change.addedNodes])) {
                if (node instanceof Element) [node, ...node.querySelectorAll("table")].filter((each) => each.matches("table")).forEach(fix);
            }
        }).observe(place, { childList: true });
    }

    // A history of one commit is a dot, where asv's grid draws a line between its commits.
    const plot = $.plot;
    $.plot = Object.assign((/** @type {any} */ place, /** @type {any} */ data, /** @type {any} */ options) => {
        if ($(place).is(".benchmark-plot") && data[0].data.length === 1) options.series.points = { show: true, radius: 2 };
        return plot(place, data, options);
    }, plot);

    /** asv's grid asks for the summary also of a benchmark without any number, which has no file.
     * @param {(url: string) => any} load @returns {(url: string) => any} */
    function without_empty(load) {
        return (url) => {
            const name = /^graphs\/summary\/(.*)\.json$/.exec(url)?.[1] ?? "";
            return declared(name).hpml_empty ? $.Deferred().resolve([]).promise() : load(url);
        };
    }

    /** What asv asks for as JSON, of the deflated file in its place.
     * @param {string} url @returns {any} */
    function unpacked(url) {
        const loading = $.Deferred();
        fetch(`${url.replace(/json$/, "deflate")}?timestamp=${$.asv.main_timestamp}`).then((answer) => {
            if (!answer.ok || !answer.body) throw new Error(answer.statusText);
            return new Response(answer.body.pipeThrough(new DecompressionStream("deflate-raw"))).json();
        }).then(loading.resolve, loading.reject);
        return loading.promise();
    }

    /** The graphs of a benchmark are one file, graphs/NAME.deflate: the folder that asv asks in → the graph.
     * @returns {(url: string) => any} */
    function from_merged() {
        let newest = "";
        /** @type {any} */
        let merged;
        return (url) => {
            const parts = url.split("/"), name = parts.pop() ?? "";
            if (name === "summary.json") return unpacked(url); // asv's list of a machine
            if (newest !== name || merged.state() === "rejected") {
                newest = name;
                merged = unpacked(`graphs/${name}`);
            }
            return merged.then((/** @type {Record<string, unknown>} */ graphs) => {
                return graphs[decodeURIComponent(parts.slice(1).join("/"))] ?? $.Deferred().reject().promise();
            });
        };
    }

    /** A graph opens with the machines that have one, which the index names; asv asks for those of all.
     * @param {any} params */
    function with_machines(params) {
        /** @type {string[]} */
        const named = declared(params.benchmark).hpml_machines ?? [];
        const machines = named.filter((name) => $.asv.main_json.params.machine.includes(name));
        if (!params.machine && machines.length) params.machine = machines;
        return params;
    }

    /** Buttons and headings that asv makes of links without an address, and of labels, are reached by the keyboard. */
    function make_reachable() {
        $('a[role="button"]:not([href], [tabindex]), label.nav-header:not([tabindex])').attr({ tabindex: 0, role: "button" });
        $("#range").attr("aria-label", "Range of commits");
    }

    $(document).on("keydown", 'a[role="button"]:not([href]), label.nav-header', (/** @type {any} */ event) => {
        if (event.key === "Enter" || event.key === " ") {
            event.preventDefault();
            event.currentTarget.click();
        }
    });

    $(document).ready(() => {
        $.asv.load_graph_data = without_empty(from_merged());
        const register = $.asv.register_page;
        $.asv.register_page = (/** @type {string} */ name, /** @type {(params: any) => void} */ show) => {
            const ours = () => location.replace("changes.html"); // it knows which way is better
            const opened = (/** @type {any} */ params) => show(with_machines(params));
            register(name, name === "regressions" ? ours : name === "graphdisplay" ? opened : show);
        };
        $("#error").on("show.bs.modal", () => {
            if (location.protocol === "file:") { // a browser lets no page read JSON from the disk
                $("#error-message").text("These pages of asv need a web server: asv preview. All other pages work from the disk.");
            }
        });
        new MutationObserver(make_reachable).observe(document.body, { childList: true, subtree: true });
        make_reachable();
        on_new_tables(/** @type {Element} */ (document.getElementById("summarylist-body")), fix_summary);

        // asv's panes begin 55 px from the top, below a navbar of one line. With our pages in it, or on a narrow screen, it has
        // more lines: everything below moves down by what is more.
        const navbar = /** @type {HTMLElement} */ (document.getElementById("nav"));
        document.body.style.position = "relative";
        new ResizeObserver(() => {
            const more = Math.max(0, navbar.offsetHeight - 55);
            document.body.style.marginTop = `${more}px`;
            document.body.style.height = `calc(100vh - ${more}px)`;
        }).observe(navbar);
    });
})();
