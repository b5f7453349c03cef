/* What the mended copies of asv's scripts call: text as text in HTML, and which direction of a benchmark is better. */
function hpml_text(text) {
    'use strict';
    return String(text === undefined || text === null ? '' : text)
        .replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;')
        .replace(/"/g, '&quot;').replace(/'/g, '&#39;');
}

function hpml_higher_is_better(name) {
    'use strict';
    var benchmark = window.$.asv.main_json.benchmarks[name];
    return benchmark !== undefined && benchmark.direction === 'higher';
}

function hpml_worse_by(name, before, after) {
    'use strict';
    return hpml_higher_is_better(name) ? before / after : after / before;
}
