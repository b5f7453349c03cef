/* The first page: another base, values per joule or price, GPUs of a node, and the cards behind a row. What the page
   shows at first is in its HTML; the choices are kept in the address. */
(function () {
    'use strict';
    var table = document.getElementById('tasks'), form = document.getElementById('switches');
    if (!table) {
        return;
    }
    var first = form.elements.base ? form.elements.base.value : '';
    var asked = 0, drawn = first + ' speed';

    form.hidden = false;
    form.addEventListener('submit', function (event) { event.preventDefault(); });
    form.addEventListener('change', keep);
    form.addEventListener('input', function (event) {
        if (event.target.type === 'number') {
            keep();
        }
    });
    window.addEventListener('hashchange', restore);
    table.addEventListener('click', function (event) {
        var cell = event.target.closest('a.cell');
        if (cell && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
            event.preventDefault();
            open(cell.closest('tr'));
        }
    });
    all('a.cell').forEach(function (cell) {
        cell.setAttribute('role', 'button');
        cell.setAttribute('aria-expanded', 'false');
    });
    restore();

    function all(selector) {
        return Array.from(document.querySelectorAll(selector));
    }

    /* The choices that differ from the page's own, as parameters of the address. */
    function keep() {
        var chosen = new URLSearchParams();
        all('#switches [name], #base').forEach(function (field) {
            var name = field.name || field.id, initial = field.defaultValue;
            if (field.type === 'radio') {
                if (field.checked && !field.defaultChecked) {
                    chosen.set(name, field.value);
                }
            } else if (field.id === 'base' ? field.value !== first : field.value !== initial) {
                chosen.set(name, field.value);
            }
        });
        history.replaceState(null, '', location.pathname + location.search + (String(chosen) ? '#' + chosen : ''));
        show();
    }

    function restore() {
        var chosen = new URLSearchParams(location.hash.slice(1));
        all('#switches [name], #base').forEach(function (field) {
            var told = chosen.get(field.name || field.id);
            if (field.type === 'radio') {
                var offered = told !== null && all('#switches [name=' + field.name + ']').some(function (each) { return each.value === told; });
                field.checked = offered ? field.value === told : field.defaultChecked;
            } else if (field.id === 'base') {
                var known = Array.from(field.options).some(function (option) { return option.value === told; });
                field.value = known ? told : first;
            } else {
                field.value = told === null ? field.defaultValue : told;
            }
        });
        show();
    }

    function show() {
        var by = form.elements.by.value, base = form.elements.base ? form.elements.base.value : '';
        var count = form.elements.count ? form.elements.count.value : 'all';
        document.getElementById('prices').hidden = by !== 'money';
        all('#tasks [data-column], #prices [data-count]').forEach(function (each) {
            each.hidden = count !== 'all' && each.dataset.count !== count && each.dataset.column !== base;
        });
        all('#tasks tr.row').forEach(function (row) {
            var cells = Array.from(row.querySelectorAll('a.cell'));
            row.hidden = cells.length > 0 && cells.every(function (cell) { return cell.parentNode.hidden; });
        });
        all('#tasks thead [data-column]').forEach(function (head) {
            head.classList.toggle('base', head.dataset.column === base);
        });
        all('a.cell').forEach(function (cell) {
            var price = Number((form.elements['price-' + cell.parentNode.dataset.column] || {}).value) || 0;
            cell.querySelector('.money').textContent = per_price(cell.dataset, price);
            ['speed', 'joule', 'money'].forEach(function (name) {
                cell.querySelector('.' + name).hidden = name !== by;
            });
        });
        draw_verdicts(base, by);
    }

    /* The work for one unit of price, or the price of one run.  price: of the whole node, an hour. */
    function per_price(data, price) {
        var value = Number(data.value), unit = data.unit, currency = form.elements.by[2].parentNode.textContent.trim().slice(4);
        if (!price || !data.per) {
            return price ? 'no price of this' : 'enter a price';
        }
        if (data.per === 'time') {
            return scaled(price * value / 3600) + currency;
        }
        return scaled(value * 3600 / price) + unit.replace('/s', '') + ' per ' + currency;
    }

    function scaled(value) {
        var power = Math.min(6, Math.max(-4, Math.floor(Math.log10(value) / 3)));
        return (value / Math.pow(1000, power)).toPrecision(4) + ' ' + ['p', 'n', 'µ', 'm', '', 'k', 'M', 'G', 'T', 'P', 'E'][power + 4];
    }

    /* The verdicts of the page against this base; those against another one are loaded. */
    function draw_verdicts(base, by) {
        var number = asked += 1;
        if (!base || drawn === base + ' ' + by && by === 'speed') {
            return;
        }
        hpml.read('compare/verdicts-' + base + '.js').then(function (verdicts) {
            if (number !== asked) {
                return;
            }
            drawn = base + ' ' + by;
            all('#tasks td[data-column]').forEach(function (cell) {
                var place = cell.querySelector('.verdict'), row = cell.parentNode.dataset.row;
                if (place) {
                    place.innerHTML = (verdicts[cell.dataset.column] || {})[row] || '';
                    if (by !== 'speed') {
                        rescale(cell, cell.parentNode.querySelector('td[data-column="' + base + '"] a.cell'), by);
                    }
                }
            });
        });
    }

    /* The ratio of the speeds, as one per joule or price: multiplied by what the base takes over what this takes. */
    function rescale(cell, of_base, by) {
        var verdict = cell.querySelector('.verdict'), told = verdict.querySelector('[data-low]');
        var costs = [of_base, cell.querySelector('a.cell')].map(function (each) {
            var price = each && form.elements['price-' + each.parentNode.dataset.column];
            return each && (by === 'joule' ? Number(each.dataset.watts) : Number(price.value)) || 0;
        });
        if (!told || !costs[0] || !costs[1]) {
            verdict.textContent = '';
            return;
        }
        var factor = costs[0] / costs[1];
        var ends = [told.dataset.low, told.dataset.high].map(function (end) { return (end * factor).toFixed(2); });
        verdict.textContent = (ends[0] === ends[1] ? ends[0] : ends.join(' to ')) + (by === 'joule' ? '× per joule' : '× for the price');
    }

    /* Unfold what stands behind a row, or fold it. */
    function open(row) {
        var next = row.nextElementSibling, opened = next && next.classList.contains('drawer');
        row.querySelectorAll('a.cell').forEach(function (cell) { cell.setAttribute('aria-expanded', String(!opened)); });
        if (opened) {
            next.remove();
            return;
        }
        var drawer = document.createElement('tr'), place = document.createElement('td');
        drawer.className = 'drawer';
        place.colSpan = row.children.length;
        place.textContent = '…';
        drawer.append(place);
        row.after(drawer);
        hpml.read('compare/row-' + row.dataset.row + '.js').then(function (html) {
            place.innerHTML = html;
        }).catch(function () {
            place.textContent = 'The cards of this row could not be loaded.';
        });
    }
}());
