/* What the mended copies of asv's pages call: text as text in HTML, which direction of a benchmark is better, and room
   for the navbar. */
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

/* asv's panes begin 55 px from the top, below a navbar of one line. With our pages in it, or on a narrow screen, it has
   more lines: everything below moves down by what is more. */
window.addEventListener('DOMContentLoaded', function() {
    'use strict';
    var navbar = document.getElementById('nav');
    document.body.style.position = 'relative';
    new ResizeObserver(function() {
        var more = Math.max(0, navbar.offsetHeight - 55);
        document.body.style.marginTop = more + 'px';
        document.body.style.height = 'calc(100vh - ' + more + 'px)';
    }).observe(navbar);
});
