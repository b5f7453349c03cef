/* The comforts of gpus.html: another base GPU type, filters, order and prices, all kept in the address. The page is
   whole without. */
(function () {
    'use strict';

    var controls = document.getElementById('controls');
    if (!controls) {
        return;
    }
    var base = document.getElementById('base');
    var count = document.getElementById('count');
    var table = document.getElementById('matrix');
    var heads = Array.from(table.tHead.rows[0].cells).slice(1);
    var groups = Array.from(table.tBodies);
    var listed = groups.map(function (group) { return Array.from(group.rows).slice(1); });
    var SIGNS = {better: '▲', worse: '▼', equal: '='};
    var NAMES = ['base', 'plugin', 'group', 'gpus', 'precision', 'per', 'filter'];
    var defaults = {base: base.value};
    var sorted = '';

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

    function spell(shown, kind, times) {
        var judgement = times === null ? '' : judge(times);
        shown.className = kind + ' ' + judgement;
        shown.textContent = judgement ? SIGNS[judgement] + ' ' + times_text(times) + '×' : '';
    }

    function number_in(cell) {
        return cell && cell.dataset.value !== undefined ? parseFloat(cell.dataset.value) : NaN;
    }

    function chosen(name) {
        var field = document.getElementById(name);
        return field ? field.value : '';
    }

    /* How much more the column costs than the base; NaN where a price or the watts are not known. */
    function costs_more(column) {
        var per = chosen('per');
        return per ? parseFloat(heads[column].dataset[per]) / parseFloat(heads[base.selectedIndex].dataset[per]) : 1;
    }

    function show_ratios() {
        var column = base.selectedIndex;
        heads.forEach(function (th, i) { th.classList.toggle('base', i === column); });
        groups.forEach(function (group, g) {
            var direction = group.dataset.direction;
            var payable = !chosen('per') || group.dataset.paid !== undefined;
            var logs = heads.map(function () { return []; });
            listed[g].forEach(function (row) {
                var cells = Array.from(row.cells).slice(1);
                var against = number_in(cells[column]);
                cells.forEach(function (cell, i) {
                    var shown = cell.querySelector('.ratio');
                    if (!shown) {
                        return;
                    }
                    var times = better_by(number_in(cell), against, direction);
                    times = times === null || !payable ? null : times / costs_more(i);
                    times = times === null || isNaN(times) ? null : times;
                    cell.ratio = times;
                    if (times !== null && !row.hidden) {
                        logs[i].push(Math.log(times));
                    }
                    spell(shown, 'ratio', i === column ? null : times);
                    if (i === column) {
                        shown.textContent = 'base';
                    }
                });
            });
            var rows = listed[g].filter(function (row) { return !row.hidden; }).length;
            Array.from(group.rows[0].cells).slice(1).forEach(function (cell, i) {
                var sum = logs[i].reduce(function (a, b) { return a + b; }, 0);
                cell.ratio = logs[i].length ? Math.exp(sum / logs[i].length) : null;
                spell(cell.querySelector('.mean'), 'mean', i === column ? null : cell.ratio);
                cell.querySelector('small').textContent =
                    i === column || !logs[i].length ? '' : logs[i].length + ' of ' + rows;
            });
        });
    }

    function apply_filters() {
        var words = chosen('filter').toLowerCase().split(/\s+/).filter(Boolean);
        var shown = 0;
        groups.forEach(function (group, g) {
            var title = group.rows[0].cells[0].textContent.toLowerCase();
            var out = ['plugin', 'group'].some(function (name) {
                return chosen(name) && group.dataset[name] !== chosen(name);
            });
            var left = 0;
            listed[g].forEach(function (row) {
                var text = title + ' ' + row.cells[0].textContent.toLowerCase();
                row.hidden = out || (chosen('precision') && row.dataset.precision !== chosen('precision')) ||
                    !words.every(function (word) { return text.indexOf(word) >= 0; });
                left += row.hidden ? 0 : 1;
            });
            group.hidden = left === 0;
            shown += left;
        });
        count.textContent = shown + (shown === 1 ? ' point' : ' points');
        heads.forEach(function (th, i) {
            var out = Boolean(chosen('gpus')) && th.dataset.gpus !== chosen('gpus') && i !== base.selectedIndex;
            if (th.hidden !== out) {
                table.querySelectorAll('tr').forEach(function (row) { row.cells[i + 1].hidden = out; });
            }
        });
    }

    /* sorted: "", or a column's label with "-" in front for the worst first. */
    function sort() {
        var label = sorted.replace(/^-/, '');
        var column = heads.findIndex(function (th) { return th.querySelector('.label').textContent === label; });
        var sign = sorted[0] === '-' ? 1 : -1;
        function order(cells, i) {
            var ratio = column < 0 ? null : cells[column + 1].ratio;
            return [ratio === null || ratio === undefined ? Infinity : sign * ratio, i];
        }
        function arrange(parent, rows) {
            rows.map(function (row, i) { return {row: row, key: order((row.rows ? row.rows[0] : row).cells, i)}; })
                .sort(function (a, b) { return a.key[0] - b.key[0] || a.key[1] - b.key[1]; })
                .forEach(function (each) { parent.append(each.row); });
        }
        arrange(table, groups);
        groups.forEach(function (group, g) { arrange(group, listed[g]); });
        heads.forEach(function (th, i) {
            th.setAttribute('aria-sort', i !== column ? 'none' : sign < 0 ? 'descending' : 'ascending');
        });
    }

    function show() {
        apply_filters();
        show_ratios();
        sort();
    }

    function read_address() {
        var wanted = new URLSearchParams(location.hash.slice(1));
        NAMES.forEach(function (name) {
            var field = document.getElementById(name);
            if (field) {
                field.value = wanted.get(name) || defaults[name] || '';
                if (field.selectedIndex === -1) {
                    field.value = defaults[name] || '';
                }
            }
        });
        sorted = wanted.get('sort') || '';
        show();
    }

    function address() {
        var wanted = new URLSearchParams();
        NAMES.forEach(function (name) {
            if (chosen(name) && chosen(name) !== defaults[name]) {
                wanted.set(name, chosen(name));
            }
        });
        if (sorted) {
            wanted.set('sort', sorted);
        }
        return wanted.toString() ? '#' + wanted : location.pathname + location.search;
    }

    /* Every cell of a row leads where its head does; spelled once, the page is a quarter smaller. */
    listed.forEach(function (rows) {
        rows.forEach(function (row) {
            var address = row.cells[0].querySelector('a').getAttribute('href');
            row.querySelectorAll('td > a').forEach(function (link) { link.setAttribute('href', address); });
        });
    });

    heads.forEach(function (th) {
        var button = document.createElement('button');
        button.type = 'button';
        button.className = 'sort';
        button.title = 'Sort by the ratio in this column';
        var label = th.querySelector('.label');
        label.replaceWith(button);
        button.append(label);
        button.addEventListener('click', function () {
            var name = label.textContent;
            sorted = sorted === name ? '-' + name : sorted === '-' + name ? '' : name;
            history.pushState(null, '', address());
            sort();
        });
    });
    controls.addEventListener('change', function (event) {
        if (event.target.id !== 'filter') {
            history.pushState(null, '', address());
            show();
        }
    });
    document.getElementById('filter').addEventListener('input', function () {
        history.replaceState(null, '', address());
        show();
    });
    document.addEventListener('keydown', function (event) {
        if (event.key === '/' && !/INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) {
            event.preventDefault();
            document.getElementById('filter').focus();
        }
    });
    window.addEventListener('hashchange', read_address);
    window.addEventListener('popstate', read_address);
    controls.addEventListener('submit', function (event) { event.preventDefault(); });

    controls.hidden = false;
    read_address();
})();
