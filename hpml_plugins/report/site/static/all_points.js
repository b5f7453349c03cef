"use strict";
// The first page's table unfolded: the rows of all points are loaded when a reader first asks, and some are made at a time.
hpml.put("all_points.js", (() => {
    const STEP = 100;
    const [body, count, further, more] = ["all", "count", "further", "more"].map((id) => {
        return /** @type {HTMLElement} */ (document.getElementById(id));
    });
    /** @type {[string, string][]} what is searched, and the row */
    let found = [];
    let made = 0;
    /** @type {() => void} */
    let after = () => {};

    function make() {
        const next = found.slice(made, made + STEP);
        body.insertAdjacentHTML("beforeend", next.map((each) => each[1]).join(""));
        made += next.length;
        further.dataset.left = String(found.length - made);
        further.hidden = made === found.length;
    }

    more.addEventListener("click", () => {
        make();
        after();
    });

    /** Show the first of the points that match.
     * @param {(text: string) => boolean} matches @param {() => boolean} wanted whether nothing else was asked meanwhile
     * @param {() => void} paint called when more rows were made */
    return async (matches, wanted, paint) => {
        /** @type {[string, string][]} */
        const rows = await hpml.read("compare/points.js");
        if (!wanted()) {
            return;
        }
        found = rows.filter((each) => matches(each[0]));
        after = paint;
        made = 0;
        body.querySelectorAll(".row").forEach((each) => each.remove());
        make();
        count.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} points`;
    };
})());
