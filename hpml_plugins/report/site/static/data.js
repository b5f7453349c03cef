/* Reads the site's data. A page that was opened from the disk may load scripts, but fetch nothing: each file of data is
   a script that calls hpml.put with its own address and its value. */
window.hpml = (function () {
    'use strict';
    var values = Object.create(null), asked = Object.create(null);

    function put(address, value) {
        values[address] = value;
    }

    /* A promise of the value at an address below the site, loaded once; rejected where it cannot be loaded. */
    function read(address) {
        asked[address] = asked[address] || new Promise(function (resolve, reject) {
            var script = document.createElement('script');
            script.src = address;
            script.onload = function () {
                script.remove();
                if (address in values) {
                    resolve(values[address]);
                } else {
                    script.onerror();
                }
            };
            script.onerror = function () {
                delete asked[address];
                script.remove();
                reject(new Error(address + ' could not be loaded'));
            };
            document.head.append(script);
        });
        return asked[address];
    }

    /* What parameters and values mean: "recipe=lab: …" of each.  terms: term → text. */
    function glossary(terms) {
        return Object.keys(terms).map(function (term) {
            var made = document.createElement('span'), name = document.createElement('b');
            made.className = 'term';
            name.textContent = term;
            made.append(name, ': ' + terms[term]);
            return made;
        });
    }

    return {put: put, read: read, glossary: glossary};
})();
