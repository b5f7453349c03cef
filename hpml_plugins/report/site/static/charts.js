// Charts are pictures, SVG, embedded in the pages. A reader who explores one gets it drawn by Vega, which is loaded then: each is a
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

    /** Build what stands inside as text for readers without script.
     * @param {ParentNode} inside */
    function build(inside) {
        inside.querySelectorAll("noscript").forEach((each) => { each.outerHTML = each.textContent ?? ""; });
    }

    for (const folded of document.querySelectorAll("details:has(> noscript)")) {
        folded.addEventListener("toggle", () => build(folded));
    }
    for (const found of document.querySelectorAll(".vega")) {
        const chart = /** @type {HTMLElement} */ (found);
        const button = /** @type {HTMLButtonElement} */ (chart.querySelector("button"));
        button.hidden = false;
        button.addEventListener("click", () => explore(chart, button));
    }
})();
