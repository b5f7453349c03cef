"use strict";
// Reads the site's data. A page that was opened from the disk may load scripts, but fetch nothing: each file of data is a
// script that calls hpml.put with its own address and its value, or hpml.unpack with the deflated value. On every page;
// the search is loaded when somebody first goes to its field.
window.hpml = (() => {
    /** @type {Map<string, any>} */
    const values = new Map();
    /** @type {Map<string, Promise<any>>} */
    const asked = new Map();

    /** @param {string} address @param {any} value */
    function put(address, value) {
        values.set(address, value);
    }

    /** @param {string} address @param {string} packed raw deflate, as base64 */
    function unpack(address, packed) {
        const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
        const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
        values.set(address, new Response(stream).json());
    }

    /** The value at an address below the site, loaded once; rejected where it cannot be loaded.
     * @param {string} address
     * @returns {Promise<any>} */
    function read(address) {
        const loading = asked.get(address) ?? new Promise((resolve, reject) => {
            const script = document.createElement("script");
            script.src = address;
            script.onload = () => {
                script.remove();
                resolve(values.get(address));
            };
            script.onerror = () => {
                asked.delete(address);
                script.remove();
                reject(new Error(`${address} could not be loaded`));
            };
            document.head.append(script);
        });
        asked.set(address, loading);
        return loading;
    }

    /** What says whether a text in lower case has every word of a query, or another spelling of it.
     * @param {string} query @param {Record<string, string>} synonyms word → another spelling
     * @returns {(text: string) => boolean} */
    function matcher(query, synonyms) {
        const pairs = Object.entries(synonyms);
        const wanted = query.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
            const others = pairs.filter((pair) => pair.includes(word)).flat().filter((each) => each !== word);
            // only from its beginning on: "float16", for "fp16", is no "bfloat16"
            return { word, other: others.length ? new RegExp(`(?<![\\p{L}\\p{N}])(${others.join("|")})`, "u") : null };
        });
        return (text) => wanted.every(({ word, other }) => text.includes(word) || other?.test(text));
    }

    /** Let "/" go to a field from everywhere on the page, and "s" to that of the search.
     * @param {string} key @param {HTMLInputElement} field */
    function on_key(key, field) {
        document.addEventListener("keydown", (event) => {
            const typing = /INPUT|SELECT|TEXTAREA/.test(/** @type {HTMLElement} */ (event.target).tagName);
            if (event.key === key && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
                event.preventDefault();
                field.focus();
                field.select();
            }
        });
    }

    const search = /** @type {HTMLInputElement} */ (document.getElementById("search"));
    const load = () => read("search.js").catch(() => { asked.delete("search.js"); });
    search.addEventListener("focus", load);
    on_key("s", search);
    /** @type {HTMLElement} */ (search.form).hidden = false;
    if (/(^|\/)search\.html$/.test(location.pathname)) {
        load();
    }

    return { put, unpack, read, matcher, on_key };
})();
