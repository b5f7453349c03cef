// Draws the charts of a plugin's page when they come into view: each is a Vega-Lite specification with its data.
// The page's policy allows no eval: `ast` has expressions interpreted.
"use strict";
(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const options = {
        ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true, theme: "site" },
    };
    const specifications = new Map();
    const drawn = new Map();

    // The specification's ink is for a light page.
    function inked(specification) {
        const copy = structuredClone(specification);
        const [from, to] = [copy.config.text.color, getComputedStyle(document.body).color];
        for (const part of Object.values(copy.config)) {
            for (const [name, value] of Object.entries(part)) {
                if (value === from) part[name] = to;
            }
        }
        return copy;
    }

    async function draw(place) {
        try {
            if (!specifications.has(place)) {
                specifications.set(place, await hpml.read(place.dataset.chart));
            }
            drawn.get(place)?.finalize();
            drawn.set(place, await vegaEmbed(place, inked(specifications.get(place)), options));
            place.querySelector("svg").setAttribute("aria-hidden", "true"); // `place` is one picture, with a description
            place.dataset.drawn = "";
        } catch (error) {
            place.textContent = `The chart cannot be drawn (${error.message}); its numbers are in the table below.`;
            console.error(error);
        }
    }

    async function save(link) {
        const place = document.getElementById(link.dataset.save);
        if (!drawn.has(place)) await draw(place);
        const picture = await drawn.get(place).view.toSVG();
        const download = document.createElement("a");
        download.href = URL.createObjectURL(new Blob([picture], { type: "image/svg+xml" }));
        download.download = `${place.id}.svg`;
        download.click();
        URL.revokeObjectURL(download.href);
    }

    const seen = new IntersectionObserver((entries) => {
        for (const entry of entries.filter((each) => each.isIntersecting)) {
            seen.unobserve(entry.target);
            draw(entry.target);
        }
    }, { rootMargin: "400px" });
    for (const place of document.querySelectorAll(".vega")) {
        place.hidden = false;
        place.closest("section").querySelector("details")?.removeAttribute("open"); // the chart shows what the table says
        seen.observe(place);
    }
    for (const link of document.querySelectorAll("[data-save]")) {
        link.hidden = false;
        link.addEventListener("click", () => save(link));
    }
    dark.addEventListener("change", () => [...drawn.keys()].forEach(draw));
})();
