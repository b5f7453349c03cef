"use strict";
// Reads the site's data. A page that was opened from the disk may load scripts, but fetch nothing: each file of data is a
// script that calls hpml.put with its own address and its value, or hpml.unpack with the deflated value.
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

    /** What parameters and values mean: "recipe=lab: …" of each.
     * @param {Record<string, string>} terms */
    function glossary(terms) {
        return Object.entries(terms).map(([term, text]) => {
            const made = document.createElement("span"), name = document.createElement("b");
            made.className = "term";
            name.textContent = term;
            made.append(name, `: ${text}`);
            return made;
        });
    }

    return { put, unpack, read, glossary };
})();
