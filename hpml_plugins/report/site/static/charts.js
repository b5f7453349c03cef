// Charts stand in the pages as SVG. A reader who explores one gets it drawn by Vega, which is loaded then: each is a
// Vega-Lite specification with its data. The page's policy allows no eval: `ast` has expressions interpreted.
"use strict";
(() => {
    const options = {
        ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true, theme: "site" },
    };

    /** @returns {Promise<unknown>} */
    function loadVega() {
        return window.vegaEmbed ? Promise.resolve() : new Promise((resolve, reject) => {
            const script = document.createElement("script");
            script.src = "vendor/vega.js";
            script.onload = resolve;
            script.onerror = () => reject(new Error("vendor/vega.js could not be loaded"));
            document.head.append(script);
        });
    }

    /** The specification's ink is for a light page.
     * @param {any} specification */
    function inked(specification) {
        const [from, to] = [specification.config.text.color, getComputedStyle(document.body).color];
        return JSON.parse(JSON.stringify(specification).replaceAll(`"${from}"`, `"${to}"`));
    }

    /** @param {HTMLElement} chart @param {HTMLButtonElement} button */
    async function explore(chart, button) {
        const place = /** @type {Element} */ (chart.querySelector("[role=img]"));
        button.disabled = true;
        build(chart);
        try {
            const [specification] = await Promise.all([hpml.read(chart.dataset.chart ?? ""), loadVega()]);
            await vegaEmbed(place, inked(specification), options);
            place.querySelector("svg")?.setAttribute("aria-hidden", "true"); // `place` is one picture, with a description
            chart.dataset.explored = "";
            button.hidden = true;
        } catch (error) {
            button.disabled = false;
            button.textContent = `Explore again (${/** @type {Error} */ (error).message})`;
        }
    }

    /** @param {HTMLElement} chart */
    function save(chart) {
        build(chart);
        const drawn = /** @type {SVGElement} */ (chart.querySelector("svg"));
        const picture = /** @type {SVGElement} */ (drawn.cloneNode(true));
        picture.removeAttribute("aria-hidden");
        picture.setAttribute("color", "#1a1d21");
        picture.setAttribute("font-family", "sans-serif");
        const download = document.createElement("a");
        download.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(picture)], { type: "image/svg+xml" }));
        download.download = `${chart.id}.svg`;
        download.click();
        URL.revokeObjectURL(download.href);
    }

    /** Build what stands inside as text for readers without script.
     * @param {ParentNode} inside */
    function build(inside) {
        inside.querySelectorAll("noscript").forEach((each) => { each.outerHTML = each.textContent ?? ""; });
    }

    const near = new IntersectionObserver((entries) => {
        entries.filter((entry) => entry.isIntersecting).forEach((entry) => build(entry.target));
    }, { rootMargin: "50%" });
    for (const folded of document.querySelectorAll("details:has(> noscript)")) {
        folded.addEventListener("toggle", () => build(folded));
    }
    window.addEventListener("beforeprint", () => document.querySelectorAll(".vega").forEach(build));
    for (const found of document.querySelectorAll(".vega")) {
        const chart = /** @type {HTMLElement} */ (found);
        near.observe(chart);
        const [exploring, saving] = chart.querySelectorAll("button");
        /** @type {HTMLElement} */ (chart.querySelector("figcaption")).hidden = false;
        exploring.addEventListener("click", () => explore(chart, exploring));
        saving.addEventListener("click", () => save(chart));
    }
})();
