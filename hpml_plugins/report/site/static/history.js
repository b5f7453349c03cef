/* history.html: which benchmark and point is in the address (#NAME?POINT); its numbers are one small file. */
(function () {
    'use strict';

    function by_id(id) { return document.getElementById(id); }
    var controls = by_id('controls');
    var index = null, shown = null, hidden = {}, asked = 0;

    function spell_address(benchmark, point) {
        return '#' + encodeURIComponent(benchmark.name) + (point[1] ? '?' + encodeURIComponent(point[1]) : '');
    }

    function read_address() {
        var parts = location.hash.slice(1).split('?');
        var name = '', label = '';
        try {
            name = decodeURIComponent(parts[0] || '');
            label = decodeURIComponent(parts.slice(1).join('?'));
        } catch (error) { /* not an address of ours: shown like one that names nothing */ }
        var number = index.benchmarks.findIndex(function (each) { return each.name === name; });
        if (name && number < 0) {
            return say('No benchmark ' + name + ' has results. It may have been renamed or removed.');
        }
        number = Math.max(0, number);
        var benchmark = index.benchmarks[number];
        if (!benchmark) {
            return say('No results yet: run asv run on a node, then asv publish.');
        }
        var point = benchmark.points.find(function (each) { return each[1] === label; });
        if (label && !point) {
            return say('No point ' + label + ' of ' + benchmark.title + ' has results.');
        }
        point = point || benchmark.points[0];
        fill_choices(benchmark, point);
        return fetch_point(number, point);
    }

    function say(text) {
        asked += 1;
        by_id('title').textContent = 'History';
        by_id('facts').textContent = text;
        ['chart', 'legend', 'links', 'numbers', 'changes', 'retracted'].forEach(function (id) { by_id(id).replaceChildren(); });
        ['numbers', 'changes', 'retracted'].forEach(function (id) { show_table(id, false); });
        by_id('reading').textContent = '';
    }

    function option(value, text) {
        var made = document.createElement('option');
        made.value = value;
        made.textContent = text;
        return made;
    }

    function fill_choices(benchmark, point) {
        var words = by_id('find').value.toLowerCase().split(/\s+/).filter(Boolean);
        var fitting = index.benchmarks.filter(function (each) {
            var text = (each.title + ' ' + each.plugin).toLowerCase();
            return each === benchmark || words.every(function (word) { return text.indexOf(word) >= 0; });
        });
        by_id('benchmark').replaceChildren.apply(by_id('benchmark'), fitting.map(function (each) {
            return option(each.name, each.title);
        }));
        by_id('benchmark').value = benchmark.name;
        by_id('point').replaceChildren.apply(by_id('point'), benchmark.points.map(function (each) {
            return option(each[1], each[1] || 'one point');
        }));
        by_id('point').value = point[1];
    }

    function fetch_point(number, point) {
        var mine = ++asked;
        return hpml.read('history/' + number + '/' + point[0] + '.js').then(function (found) {
            if (mine === asked) {
                shown = {benchmark: index.benchmarks[number], point: point, found: found};
                shown.benchmark.label = shown.benchmark.unit;
                by_id('log').checked = spread(found.lines) > 20;
                show();
            }
        });
    }

    function spread(lines) {
        var all = [].concat.apply([], lines.map(function (line) { return line.values; }));
        var low = Math.min.apply(null, all), high = Math.max.apply(null, all);
        return low > 0 ? high / low : 0;
    }

    function name_of(line) {
        var place = index.places[line.place];
        var alone = index.places.filter(function (each) { return each[0] === place[0]; }).length === 1;
        return alone ? place[0] : place[0] + ' · ' + place[1];
    }

    function styled() {
        return shown.found.lines.map(function (line) {
            var styles = index.colours.length;
            var dash = window.hpml_chart.DASHES[Math.floor(line.place / styles) % window.hpml_chart.DASHES.length];
            var unit = {colour: index.colours[line.place % styles], dash: dash, name: name_of(line)};
            return Object.assign({}, line, unit, {low: numbers(line.low), high: numbers(line.high)});
        });
    }

    function numbers(values) {
        return values.map(function (value) { return typeof value === 'number' ? value : null; });
    }

    function show() {
        var benchmark = shown.benchmark, lines = styled();
        by_id('title').textContent = benchmark.title + (shown.point[1] ? ': ' + shown.point[1] : '');
        document.title = by_id('title').textContent;
        by_id('facts').textContent = [benchmark.unit && 'In ' + benchmark.unit,
            benchmark.direction && benchmark.direction + ' is better'].filter(Boolean).join(', ').replace(/^l|^h/,
            function (letter) { return letter.toUpperCase(); }).replace(/$/, '. ').replace(/^\. /, '') +
            'Bands are 95 % intervals for the next run on another card of the type. ' + (benchmark.direction ?
            '▲/▼ mark a level shift; red means worse.' : 'Grey marks are level shifts.');
        show_links();
        show_legend(lines);
        show_numbers(lines);
        show_changes(lines);
        show_retracted();
        show_chart(lines);
    }

    function show_links() {
        var links = [[shown.found.graph, "asv's graph", false]];
        if (shown.found.records) {
            links.push([shown.found.records[0], 'Records of this point (' + shown.found.records[1] + ', JSON lines)', true]);
        }
        if (shown.benchmark.plugin) {
            links.push(['gpus.html#filter=' + encodeURIComponent(shown.benchmark.title), 'GPU types compared', false]);
        }
        by_id('links').replaceChildren.apply(by_id('links'), links.map(function (each) {
            var link = document.createElement('a');
            link.href = each[0];
            link.textContent = each[1];
            link.toggleAttribute('download', each[2]);
            return link;
        }));
    }

    function show_legend(lines) {
        by_id('legend').replaceChildren.apply(by_id('legend'), lines.map(function (line) {
            var button = document.createElement('button');
            button.type = 'button';
            button.setAttribute('aria-pressed', String(!hidden[line.name]));
            button.innerHTML = '<svg width="28" height="10" aria-hidden="true"><line x1="1" x2="27" y1="5" y2="5"/></svg>';
            var stroke = button.querySelector('line');
            stroke.style.stroke = line.colour;
            stroke.setAttribute('stroke-dasharray', line.dash);
            button.append(line.name);
            button.addEventListener('click', function () {
                hidden[line.name] = !hidden[line.name];
                button.setAttribute('aria-pressed', String(!hidden[line.name]));
                show_chart(lines);
            });
            return button;
        }));
    }

    function show_chart(lines) {
        if (!lines.length) {  // every Record of the point is retracted
            return by_id('chart').replaceChildren();
        }
        var visible = lines.filter(function (line) { return !hidden[line.name]; });
        window.hpml_chart.draw(by_id('chart'), visible, index.commits, shown.benchmark, {
            logarithmic: by_id('log').checked,
            from_zero: by_id('zero').checked,
            label: 'Chart: ' + by_id('title').textContent + ' over ' + index.commits.length + ' commits'
        }, function (column) { read(visible, column); });
    }

    function read(lines, column) {
        var commit = index.commits[column];
        var texts = lines.map(function (line) {
            var i = line.at.indexOf(column);
            if (i < 0) {
                return line.failed.indexOf(column) >= 0 ? line.name + ' failed' : null;
            }
            return line.name + ' ' + window.hpml_chart.quantity(line.values[i], shown.benchmark);
        }).filter(Boolean);
        by_id('reading').textContent = commit[0] + ' of ' + new Date(commit[1]).toISOString().slice(0, 10) + ': ' +
            (texts.join('; ') || 'nothing measured');
    }

    function show_table(id, visible) {
        by_id(id).parentNode.hidden = !visible;
        by_id(id + '-title').hidden = !visible;
    }

    function table(id, heads, rows) {
        var head = document.createElement('thead'), body = document.createElement('tbody');
        head.append(cells('th', heads));
        rows.forEach(function (row) { body.append(cells('td', row)); });
        by_id(id).replaceChildren(head, body);
        show_table(id, rows.length > 0);
    }

    function cells(kind, texts) {
        var row = document.createElement('tr');
        texts.forEach(function (text, i) {
            var cell = document.createElement(kind === 'td' && i === 0 ? 'th' : kind);
            if (cell.tagName === 'TH') {
                cell.scope = kind === 'th' ? 'col' : 'row';
            }
            cell.textContent = text;
            row.append(cell);
        });
        return row;
    }

    function show_numbers(lines) {
        // Only where a benchmark declared its work.
        var limits = lines.some(function (line) { return line.shares; }) ? ['Of the limits'] : [];
        table('numbers', ['GPU type', 'Machine', 'Value', 'Within the run'].concat(limits, 'Commit', 'Readings'), lines.map(function (line) {
            var last = line.at.length - 1, place = index.places[line.place];
            return [place[0], place[1], line.newest, line.run].concat(limits.length ? line.shares : [],
                last < 0 ? '' : index.commits[line.at[last]][0], String(line.at.length));
        }));
        lines.forEach(function (line, i) {
            if (line.warnings.length) {
                by_id('numbers').tBodies[0].rows[i].cells[2].append(warning_mark(line.warnings));
            }
        });
    }

    function warning_mark(warnings) {
        var mark = document.createElement('abbr');
        mark.title = warnings.join('\n');
        mark.textContent = ' ⚠';
        return mark;
    }

    function show_retracted() {
        table('retracted', ['Commit', 'GPU type', 'Machine', 'Reason'], shown.found.retracted.map(function (each) {
            var place = index.places[each[0]];
            return [each[1] === null ? 'not published' : index.commits[each[1]][0], place[0], place[1], each[2]];
        }));
    }

    function show_changes(lines) {
        var rows = [];
        lines.forEach(function (line) {
            line.changes.forEach(function (change) { rows.push([change[0], line, change]); });
        });
        rows.sort(function (a, b) { return b[0] - a[0]; });
        table('changes', ['Commit', 'Date', 'GPU type', 'Change', 'Before', 'After'], rows.map(function (row) {
            var commit = index.commits[row[0]], change = row[2];
            var sign = {better: '▲ ', worse: '▼ '}[change[3]] || '';
            return [
                commit[0], new Date(commit[1]).toISOString().slice(0, 10), row[1].name, sign + change[4] +
                    (change[3] ? ' (' + change[3] + ')' : ''),
                window.hpml_chart.quantity(change[1], shown.benchmark),
                window.hpml_chart.quantity(change[2], shown.benchmark)
            ];
        }));
    }

    function go(benchmark, point) {
        location.hash = spell_address(benchmark, point);
    }

    by_id('benchmark').addEventListener('change', function (event) {
        var benchmark = index.benchmarks.find(function (each) { return each.name === event.target.value; });
        var same = benchmark.points.find(function (each) { return each[1] === shown.point[1]; });
        go(benchmark, same || benchmark.points[0]);
    });
    by_id('point').addEventListener('change', function (event) {
        go(shown.benchmark, shown.benchmark.points.find(function (each) { return each[1] === event.target.value; }));
    });
    by_id('find').addEventListener('input', function () {
        if (shown) {
            fill_choices(shown.benchmark, shown.point);
        }
    });
    ['log', 'zero'].forEach(function (id) {
        by_id(id).addEventListener('change', function () { if (shown) { show_chart(styled()); } });
    });
    document.addEventListener('keydown', function (event) {
        if (event.key === '/' && !/INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) {
            event.preventDefault();
            by_id('find').focus();
        }
    });
    controls.addEventListener('submit', function (event) { event.preventDefault(); });
    window.addEventListener('hashchange', read_address);
    var width = window.innerWidth;
    window.addEventListener('resize', function () {
        if (shown && Math.abs(window.innerWidth - width) > 20) {
            width = window.innerWidth;
            show_chart(styled());
        }
    });

    hpml.read('history/index.js').then(function (found) {
        index = found;
        controls.hidden = index.benchmarks.length === 0;
        return read_address();
    });
})();
