/* A filter over the rows of a list; "/" goes to it. */
(function () {
    'use strict';
    var controls = document.getElementById('controls');
    if (!controls) {
        return;
    }
    var filter = document.getElementById('filter');
    var rows = Array.from(document.querySelectorAll('table.list tbody tr'));

    function apply() {
        var words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        var shown = 0;
        rows.forEach(function (row) {
            var text = row.textContent.toLowerCase();
            row.hidden = !words.every(function (word) { return text.indexOf(word) >= 0; });
            shown += row.hidden ? 0 : 1;
        });
        document.getElementById('count').textContent = shown + ' of ' + rows.length;
    }

    function read_address() {
        filter.value = new URLSearchParams(location.hash.slice(1)).get('filter') || '';
        apply();
    }

    filter.addEventListener('input', function () {
        var hash = filter.value ? '#' + new URLSearchParams({filter: filter.value}) : location.pathname;
        history.replaceState(null, '', hash);
        apply();
    });
    document.addEventListener('keydown', function (event) {
        if (event.key === '/' && !/INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) {
            event.preventDefault();
            filter.focus();
        }
    });
    window.addEventListener('hashchange', read_address);
    controls.addEventListener('submit', function (event) { event.preventDefault(); });
    controls.hidden = false;
    read_address();
})();
