/* Lets a reader of the first page compare other GPU types. The choice is kept in the address, #types=BASE,OTHER,… */
(function () {
    'use strict';

    var controls = document.getElementById('controls');
    if (!controls) {
        return;
    }
    var base = document.getElementById('base');
    var ticks = Array.from(controls.querySelectorAll('input[type=checkbox]'));
    var labels = Array.from(base.options).map(function (option) { return option.textContent; });
    var table = document.getElementById('headline');
    var chosen = [Number(base.value)].concat(ticks.filter(function (tick) { return tick.checked && !tick.disabled; })
        .map(function (tick) { return Number(tick.value); }));
    var first = chosen;
    var asked = 0;

    function element(name, text, kind) {
        var made = document.createElement(name);
        made.textContent = text;
        made.className = kind || '';
        return made;
    }

    function head(label, kind, about) {
        var made = element('th', label + ' ', kind);
        made.scope = 'col';
        made.append(element('small', about));
        return made;
    }

    /* "faster in 2, undecided in 3 of 5": how often which verdict of these. */
    function summary(verdicts, words) {
        return Object.keys(words).map(function (letter) {
            var count = verdicts.filter(function (verdict) { return verdict[0] === letter; }).length;
            return count ? words[letter] + ' in ' + count : '';
        }).filter(Boolean).join(', ') + ' of ' + verdicts.length;
    }

    function name(kind, scope, text, address) {
        var made = element('th', '', kind), link = element('a', text);
        made.scope = scope;
        link.href = address;
        made.append(link);
        return made;
    }

    function group(rows) {
        var row = rows[0], terms = Object.assign.apply(null, [{}].concat(rows.map(function (each) { return each.terms; })));
        var made = element('tr', '', 'group'), explained = element('small', ''), head = name('', 'rowgroup', row.title, row.link.split('?')[0]);
        head.colSpan = chosen.length + 1;
        explained.append.apply(explained, hpml.glossary(terms));
        head.append(' ', element('small', row.about), ' ', explained);
        made.append(head);
        return made;
    }

    function value(cell, verdict, words) {
        var made = document.createElement('td');
        if (verdict) {
            var kind = {b: 'better', w: 'worse', r: 'quiet', a: 'quiet', d: 'quiet'}[verdict[0]];
            made.append(element('strong', (verdict[1] ? verdict[1] + ', ' : '') + words[verdict[0]], kind), ' ',
                element('small', verdict[2]), document.createElement('br'));
        }
        made.append(element('span', cell[0]), ' ', element('small', cell[1]));
        return made;
    }

    /* data: of overview/rows.js.  against: number of a type → row → verdict against the base. */
    function draw(data, against) {
        var others = chosen.slice(1);
        var shared = data.rows.map(function (row, number) { return number; }).filter(function (number) {
            return chosen.every(function (type) { return data.rows[number].cells[type]; });
        }).slice(0, data.most);
        table.tHead.rows[0].replaceChildren(head('Benchmark and point', 'point', ''), head(labels[chosen[0]], 'base', 'base'));
        others.forEach(function (type) {
            var verdicts = shared.map(function (number) { return against[type][number]; });
            table.tHead.rows[0].append(head(labels[type], '', summary(verdicts, data.words)));
        });
        var groups = new Map();
        shared.forEach(function (number) {
            var title = data.rows[number].title;
            groups.set(title, (groups.get(title) || []).concat(number));
        });
        table.tBodies[0].replaceChildren();
        groups.forEach(function (numbers) {
            table.tBodies[0].append(group(numbers.map(function (number) { return data.rows[number]; })));
            numbers.forEach(function (number) {
                var row = data.rows[number], made = element('tr', '', 'row');
                made.append(name('point', 'row', row.point || 'one point', row.link), value(row.cells[chosen[0]]));
                others.forEach(function (type) { made.append(value(row.cells[type], against[type][number], data.words)); });
                table.tBodies[0].append(made);
            });
        });
        table.parentNode.hidden = !shared.length;
        document.getElementById('none').hidden = Boolean(shared.length);
    }

    function show() {
        var turn = ++asked;
        base.value = String(chosen[0]);
        ticks.forEach(function (tick) {
            tick.checked = chosen.indexOf(Number(tick.value)) !== -1;
            tick.disabled = tick.value === base.value;
        });
        Promise.all([hpml.read('overview/rows.js'), hpml.read('overview/' + chosen[0] + '.js')]).then(function (read) {
            if (turn === asked) {
                draw(read[0], read[1]);
            }
        });
    }

    function read_address() {
        var named = (/^#types=(.*)$/.exec(location.hash) || ['', ''])[1].split(',').map(function (text) {
            try {
                return labels.indexOf(decodeURIComponent(text));
            } catch (error) {
                return -1;
            }
        });
        named = named.filter(function (type, i) { return type !== -1 && named.indexOf(type) === i; });
        chosen = named.length > 1 ? named : first;
        show();
    }

    /* Fewer than two cannot be compared: the choice stays as it is. */
    function choose(types) {
        if (types.length > 1) {
            chosen = types;
            history.pushState(null, '', '#types=' + types.map(function (type) { return encodeURIComponent(labels[type]); }).join(','));
        }
        show();
    }

    base.addEventListener('change', function () {
        var type = Number(base.value);
        var rest = chosen.slice(1).filter(function (other) { return other !== type; });
        choose([type].concat(rest.length ? rest : chosen[0]));
    });
    document.getElementById('others').addEventListener('change', function (event) {
        var type = Number(event.target.value);
        choose(event.target.checked ? chosen.concat(type) : chosen.filter(function (other) { return other !== type; }));
    });
    controls.addEventListener('submit', function (event) { event.preventDefault(); });
    window.addEventListener('hashchange', read_address);
    window.addEventListener('popstate', read_address);
    controls.hidden = false;
    if (location.hash) {
        read_address();
    }
})();
