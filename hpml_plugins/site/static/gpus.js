/* Two comforts of gpus.html: another base GPU type, kept in the address, and a filter. The page is whole without. */
(function () {
    'use strict';

    var controls = document.getElementById('controls');
    if (!controls) {
        return;
    }
    var base = document.getElementById('base');
    var filter = document.getElementById('filter');
    var count = document.getElementById('count');
    var table = document.getElementById('matrix');
    var default_base = base.value;
    var SIGNS = {better: '▲', worse: '▼', equal: '='};

    /* These three repeat better_by, _times and ratio of display.py; a browser test holds them together. */
    function better_by(value, against, direction) {
        if (!(value > 0) || !(against > 0) || (direction !== 'lower' && direction !== 'higher')) {
            return null;
        }
        return direction === 'lower' ? against / value : value / against;
    }

    function times_text(times) {
        if (times < 0.0001) {
            return '<0.0001';
        }
        return times.toFixed(times >= 100 ? 0 : times >= 10 ? 1 : times >= 0.1 ? 2 : 4);
    }

    function judge(times) {
        return times_text(times) === '1.00' ? 'equal' : times > 1 ? 'better' : 'worse';
    }

    function number_in(cell) {
        return cell && cell.dataset.value !== undefined ? parseFloat(cell.dataset.value) : NaN;
    }

    function show_ratio(cell, is_base, times) {
        var shown = cell.querySelector('.ratio');
        if (!shown) {
            return;
        }
        var judgement = is_base || times === null ? '' : judge(times);
        shown.className = 'ratio ' + judgement;
        shown.textContent = is_base ? 'base' : judgement ? SIGNS[judgement] + ' ' + times_text(times) + '×' : '';
    }

    function show_base() {
        var column = base.selectedIndex;
        Array.from(table.tHead.rows[0].cells).forEach(function (th, i) {
            th.classList.toggle('base', i === column + 1);
        });
        table.querySelectorAll('tr.row').forEach(function (row) {
            var cells = row.querySelectorAll('td');
            var direction = row.parentNode.dataset.direction;
            cells.forEach(function (cell, i) {
                show_ratio(cell, i === column, better_by(number_in(cell), number_in(cells[column]), direction));
            });
        });
    }

    function read_address() {
        var wanted = new URLSearchParams(location.hash.slice(1)).get('base');
        var labels = Array.from(base.options).map(function (option) { return option.value; });
        base.value = labels.indexOf(wanted) >= 0 ? wanted : default_base;
        show_base();
    }

    function apply_filter() {
        var words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        var shown = 0;
        Array.from(table.tBodies).forEach(function (group) {
            var title = group.rows[0].textContent.toLowerCase();
            var left = 0;
            Array.from(group.rows).slice(1).forEach(function (row) {
                var text = title + ' ' + row.cells[0].textContent.toLowerCase();
                row.hidden = !words.every(function (word) { return text.indexOf(word) >= 0; });
                left += row.hidden ? 0 : 1;
            });
            group.hidden = left === 0;
            shown += left;
        });
        count.textContent = shown + (shown === 1 ? ' point' : ' points');
    }

    base.addEventListener('change', function () {
        location.hash = new URLSearchParams({base: base.value}).toString();
    });
    window.addEventListener('hashchange', read_address);
    filter.addEventListener('input', apply_filter);
    controls.addEventListener('submit', function (event) { event.preventDefault(); });

    controls.hidden = false;
    read_address();
    apply_filter();
})();
