/* The comforts of gpus.html: another base GPU type, filters, order, columns per price and per watt, all kept in the address. The page is
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
    /* row → its cells, one a GPU type; the columns per price and per watt beside them are made here: see add_columns. */
    var own = new Map(), extra = [];
    table.querySelectorAll('tr').forEach(function (row) { own.set(row, Array.from(row.cells).slice(1)); });
    /* Letter of a verdict → its class and sign; see Cell.verdicts in gpu_types.py. */
    var VERDICTS = {b: ['better', '▲ '], w: ['worse', '▼ '], s: ['same', '= '], a: ['ambiguous', '? ']};
    var NAMES = ['base', 'plugin', 'group', 'gpus', 'precision', 'filter'];
    var PREFIXES = ['f', 'p', 'n', 'µ', 'm', '', 'k', 'M', 'G', 'T', 'P', 'E', 'Z'];
    var currency = table.dataset.currency || 'price';
    /* kind → its word, and the two units: of what one run takes, and of what a rate is divided by. */
    var KINDS = {
        price: {word: 'per ' + currency, unit: currency, about: 'What one run costs, or how much comes for that, by the prices given'},
        watts: {word: 'per watt', unit: 'J', about: 'What one run takes, or how much comes for that, by the measured power; by the published board power where it says so'}
    };
    var defaults = {base: base.value};
    var sorted = '';

    /* These two repeat Difference.times of variability.py and times of formatting.py; a browser test holds them together. */
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

    function spell(shown, kind, times, verdict) {
        var found = times !== null && VERDICTS[verdict] || ['', ''];
        shown.className = kind + ' ' + found[0];
        shown.textContent = times === null ? '' : found[1] + times_text(times) + '×';
    }

    function number_in(cell) {
        return cell && cell.dataset.value !== undefined ? parseFloat(cell.dataset.value) : NaN;
    }

    function chosen(name) {
        var field = document.getElementById(name);
        return field ? field.value : '';
    }

    /* What one run of a time takes, or how much of a rate comes, for one unit of currency or one joule. */
    function normalised(value, kind, column, group, cell) {
        var costs = parseFloat(kind === 'watts' && cell.dataset.watts || heads[column].dataset[kind]) / (kind === 'price' ? 3600 : 1);
        return is_time(group) ? value * costs : value / costs;
    }

    function is_time(group) {
        return group.dataset.paid === 's';
    }

    function quantity_text(value, unit) {
        var power = value > 0 ? Math.floor(Math.log10(value) / 3 + 1e-9) : 0;
        power = Math.max(-5, Math.min(7, power));
        var text = (value / Math.pow(1000, power)).toPrecision(4);
        return text + ' ' + PREFIXES[power + 5] + unit;
    }

    function unit_of(kind, group) {
        var unit = KINDS[kind].unit;
        return is_time(group) ? unit : (group.dataset.paid === 'Hz' ? '1' : group.dataset.paid.replace(/\/s$/, '')) + '/' + unit;
    }

    /* Beside each GPU type whose price or watts are known a column of its values per price and per watt. */
    function add_columns() {
        Object.keys(KINDS).forEach(function (kind) {
            heads.forEach(function (th, column) {
                if (th.dataset[kind]) {
                    extra.push({kind: kind, column: column, cells: new Map()});
                }
            });
        });
        extra.sort(function (a, b) { return a.column - b.column; });
        own.forEach(function (cells, row) {
            var group = row.parentNode;
            extra.forEach(function (each) {
                var cell = document.createElement(group === table.tHead ? 'th' : 'td');
                cell.className = 'per ' + each.kind;
                if (group === table.tHead) {
                    cell.scope = 'col';
                    cell.title = KINDS[each.kind].about;
                    cell.innerHTML = '<span class="label"></span>';
                    cell.firstChild.textContent = KINDS[each.kind].word;
                    cell.label = heads[each.column].querySelector('.label').textContent + ' ' + KINDS[each.kind].word;
                    each.head = cell;
                } else if (group.dataset.paid !== undefined) {
                    fill(cell, each, row, group, cells);
                }
                each.cells.set(row, cell);
            });
            cells.forEach(function (cell, column) {
                cell.after.apply(cell, extra.filter(function (each) { return each.column === column; })
                    .map(function (each) { return each.cells.get(row); }));
            });
        });
    }

    function fill(cell, each, row, group, cells) {
        var value = number_in(cells[each.column]);
        if (row === group.rows[0]) {
            cell.innerHTML = '<span class="mean"></span>';
        } else if (value > 0) {
            var measured = cells[each.column].dataset.watts;
            cell.number = normalised(value, each.kind, each.column, group, cells[each.column]);
            cell.innerHTML = (each.kind === 'watts' && !measured ? ' <small>published</small>' : '') + '<span class="times"></span>';
            if (each.kind === 'watts' && measured) {
                cell.title = 'by ' + measured + ' W, measured under this load';
            }
            cell.prepend(quantity_text(cell.number, unit_of(each.kind, group)));
        }
    }

    function show_ratios() {
        var column = base.selectedIndex;
        heads.forEach(function (th, i) { th.classList.toggle('base', i === column); });
        groups.forEach(function (group, g) {
            heads.forEach(function (th, i) {
                compare(group, g, i === column, function (row) { return own.get(row)[i]; }, number_in,
                    function (row) { return own.get(row)[column]; }, 'ratio');
            });
            extra.forEach(function (each) {
                var against = extra.find(function (other) { return other.kind === each.kind && other.column === column; });
                compare(group, g, each === against, function (row) { return each.cells.get(row); },
                    function (cell) { return cell && cell.number !== undefined ? cell.number : NaN; },
                    function (row) { return against && against.cells.get(row); }, 'times');
            });
        });
    }

    /* The ratios of one column in one group, and their mean in the group's row. */
    function compare(group, g, is_base, cell_of, number_of, against_of, kind) {
        var logs = [], rows = 0;
        listed[g].forEach(function (row) {
            var cell = cell_of(row), shown = cell.querySelector('.' + kind);
            rows += row.hidden ? 0 : 1;
            if (!shown) {
                return;
            }
            cell.ratio = better_by(number_of(cell), number_of(against_of(row)), group.dataset.direction);
            if (cell.ratio !== null && !row.hidden) {
                logs.push(Math.log(cell.ratio));
            }
            spell(shown, kind, is_base ? null : cell.ratio, (cell.dataset.verdicts || '')[base.selectedIndex]);
            if (is_base) {
                shown.textContent = 'base';
            }
        });
        var head = cell_of(group.rows[0]), mean = head.querySelector('.mean'), small = head.querySelector('small');
        var sum = logs.reduce(function (a, b) { return a + b; }, 0);
        head.ratio = logs.length ? Math.exp(sum / logs.length) : null;
        if (mean) {
            spell(mean, 'mean', is_base ? null : head.ratio);
        }
        if (small) {
            small.textContent = is_base || !logs.length ? '' : logs.length + ' of ' + rows;
        }
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
                own.forEach(function (cells) { cells[i].hidden = out; });
            }
        });
        extra.forEach(function (each) {
            var out = heads[each.column].hidden || !document.getElementById(each.kind).checked;
            if (each.head.hidden !== out) {
                each.cells.forEach(function (cell) { cell.hidden = out; });
            }
        });
    }

    /* Every column that can be sorted by: its head, its name, its cell in a row. */
    function columns() {
        return heads.map(function (th, i) {
            return {head: th, name: th.querySelector('.label').textContent, cell: function (row) { return own.get(row)[i]; }};
        }).concat(extra.map(function (each) {
            return {head: each.head, name: each.head.label, cell: function (row) { return each.cells.get(row); }};
        }));
    }

    /* sorted: "", or a column's label with "-" in front for the worst first. */
    function sort() {
        var label = sorted.replace(/^-/, '');
        var column = columns().find(function (each) { return each.name === label; });
        var sign = sorted[0] === '-' ? 1 : -1;
        function order(row, i) {
            var ratio = column ? column.cell(row).ratio : null;
            return [ratio === null || ratio === undefined ? Infinity : sign * ratio, i];
        }
        function arrange(parent, rows) {
            rows.map(function (row, i) { return {row: row, key: order(row.rows ? row.rows[0] : row, i)}; })
                .sort(function (a, b) { return a.key[0] - b.key[0] || a.key[1] - b.key[1]; })
                .forEach(function (each) { parent.append(each.row); });
        }
        arrange(table, groups);
        groups.forEach(function (group, g) { arrange(group, listed[g]); });
        columns().forEach(function (each) {
            var is_it = column && each.head === column.head;
            each.head.setAttribute('aria-sort', !is_it ? 'none' : sign < 0 ? 'descending' : 'ascending');
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
        ticks().forEach(function (tick) { tick.checked = wanted.get(tick.id) !== 'no'; });
        sorted = wanted.get('sort') || '';
        show();
    }

    function ticks() {
        return Array.from(controls.querySelectorAll('input[type=checkbox]'));
    }

    function address() {
        var wanted = new URLSearchParams();
        ticks().filter(function (tick) { return !tick.checked; }).forEach(function (tick) { wanted.set(tick.id, 'no'); });
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

    add_columns();
    columns().forEach(function (each) {
        var button = document.createElement('button');
        button.type = 'button';
        button.className = 'sort';
        button.title = 'Sort by the ratio in this column';
        var label = each.head.querySelector('.label');
        label.replaceWith(button);
        button.append(label);
        if (each.head.label) {
            button.setAttribute('aria-label', each.name);
        }
        button.addEventListener('click', function () {
            sorted = sorted === each.name ? '-' + each.name : sorted === '-' + each.name ? '' : each.name;
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
