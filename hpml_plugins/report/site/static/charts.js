// Charts stand in the pages as SVG. A reader who explores one gets it drawn by Vega, which is loaded then: each is a
// Vega-Lite specification with its data. The page's policy allows no eval: `ast` has expressions interpreted.
"use strict";
(() => {
    const options = {
        ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true, theme: "site" },
    };

    function loadVega() {
        return window.vegaEmbed ? Promise.resolve() : new Promise((resolve, reject) => {
            const script = document.createElement("script");
            script.src = "vendor/vega.js";
            script.onload = resolve;
            script.onerror = () => reject(new Error("vendor/vega.js could not be loaded"));
            document.head.append(script);
        });
    }

    // The specification's ink is for a light page.
    function inked(specification) {
        const [from, to] = [specification.config.text.color, getComputedStyle(document.body).color];
        return JSON.parse(JSON.stringify(specification).replaceAll(`"${from}"`, `"${to}"`));
    }

    async function explore(chart, button) {
        const place = chart.querySelector("[role=img]");
        button.disabled = true;
        try {
            const [specification] = await Promise.all([hpml.read(chart.dataset.chart), loadVega()]);
            await vegaEmbed(place, inked(specification), options);
            place.querySelector("svg").setAttribute("aria-hidden", "true"); // `place` is one picture, with a description
            chart.dataset.explored = "";
            button.hidden = true;
        } catch (error) {
            button.disabled = false;
            button.textContent = `Explore again (${error.message})`;
        }
    }

    function save(chart) {
        const picture = chart.querySelector("svg").cloneNode(true);
        picture.removeAttribute("aria-hidden");
        picture.setAttribute("color", "#1a1d21");
        picture.setAttribute("font-family", "sans-serif");
        const download = document.createElement("a");
        download.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(picture)], { type: "image/svg+xml" }));
        download.download = `${chart.id}.svg`;
        download.click();
        URL.revokeObjectURL(download.href);
    }

    for (const chart of document.querySelectorAll(".vega")) {
        chart.querySelector("figcaption").hidden = false;
        const [exploring, saving] = chart.querySelectorAll("button");
        exploring.addEventListener("click", () => explore(chart, exploring));
        saving.addEventListener("click", () => save(chart));
    }
})();
