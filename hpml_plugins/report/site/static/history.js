/* history.html, the page of a point: which benchmark and point is in the address (#NAME?POINT). Its numbers are one small
   file, its Records another, which is read when a reader opens them. */
(function () {
    'use strict';

    var chart = window.hpml_chart;
    function by_id(id) { return document.getElementById(id); }
    var controls = by_id('controls');
    var index = null, shown = null, hidden = {}, asked = 0, range = null, runs = null;

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
        if (number < 0) {  // a benchmark without a metric: its first
            number = index.benchmarks.findIndex(function (each) { return each.name.split('.')[0] === name; });
        }
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
        ['chart', 'terms', 'legend', 'links', 'numbers', 'changes', 'retracted'].forEach(function (id) { by_id(id).replaceChildren(); });
        ['choice', 'zoom', 'cut', 'repeat', 'runs'].forEach(function (id) { by_id(id).hidden = true; });
        shown = null;
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
        var low = chart.extent(all)[0], high = chart.extent(all)[1];
        return low > 0 ? high / low : 0;
    }

    function name_of(line) {
        var place = index.places[line.place];
        var alone = index.places.filter(function (each) { return each[0] === place[0]; }).length === 1;
        var named = alone ? place[0] : place[0] + ' · ' + place[1];
        return line.branch ? named + ' · branch ' + line.branch : named;
    }

    function styled(lines) {
        return (lines || shown.found.lines).map(function (line) {
            var type = index.places[line.place][0];
            var of_type = index.places.filter(function (each) { return each[0] === type; });
            var number = of_type.indexOf(index.places[line.place]) + of_type.length * Math.max(0, index.branches.indexOf(line.branch));
            var look = Object.assign({dash: chart.DASHES[number % chart.DASHES.length], name: name_of(line), type: type}, index.looks[type]);
            return Object.assign({}, line, look, {low: numbers(line.low), high: numbers(line.high)});
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
            'Bands are 95 % intervals for the next run on another card of the type. ' + reasons(lines) + (benchmark.direction ?
            '▲/▼ mark a level shift; red means worse.' : 'Grey marks are level shifts.') + (shown.found.elsewhere ?
            ' Not on the chart: ' + shown.found.elsewhere + (shown.found.elsewhere > 1 ? ' values of commits that are' :
            ' value of a commit that is') + ' not published; the Records below list them by date.' : '') + (shown.found.outside ? ' ' + shown.found.outside.replace(/^l/, 'L') +
            '; the Records below have them.' : '');
        by_id('terms').replaceChildren.apply(by_id('terms'), hpml.glossary(shown.found.terms));
        show_links();
        var several = Boolean(shown.found.stacks.names);
        by_id('axis').parentNode.hidden = !several;
        by_id('axis').value = several ? by_id('axis').value : 'commits';
        show_hint();
        show_types(lines);
        show_legend(lines);
        show_numbers(lines);
        show_changes(lines);
        show_retracted();
        show_repeat();
        show_chart(lines);
        show_runs();
    }

    /* What the pale values are. */
    function reasons(lines) {
        var all = [].concat.apply([], lines.map(function (line) { return line.apart.map(function (each) { return each[1]; }); }));
        var each_once = all.filter(function (why, i) { return all.indexOf(why) === i; });
        var values = lines.reduce(function (sum, line) { return sum + line.at.length; }, 0);
        return each_once.length ? 'Pale, of ' + values + ' values: ' + each_once.map(function (why) {
            return all.filter(function (each) { return each === why; }).length + ' ' + why;
        }).join('; ') + '. ' : '';
    }

    function show_links() {
        var links = shown.found.graph ? [[shown.found.graph, "asv's graph"]] : [];
        if (shown.benchmark.plugin) {
            links.push(['gpus.html#filter=' + encodeURIComponent(shown.benchmark.title), 'GPU types compared']);
        }
        by_id('links').replaceChildren.apply(by_id('links'), links.map(function (each) {
            var link = document.createElement('a');
            link.href = each[0];
            link.textContent = each[1];
            return link;
        }));
    }

    /* The Records that were read, as JSON lines, oldest first. */
    function save_records() {
        var lines = [].concat.apply([], runs.records.slice().reverse().map(function (record) { return record.lines; }));
        var link = document.createElement('a');
        link.href = URL.createObjectURL(new Blob([lines.join('\n') + '\n'], {type: 'application/x-ndjson'}));
        link.download = (shown.benchmark.name + ' ' + shown.point[1]).trim().replace(/[^\w.=-]+/g, '_') + '.jsonl';
        link.click();
        URL.revokeObjectURL(link.href);
    }

    /* The choice of a GPU type, where there are several and many lines. */
    function show_types(lines) {
        var types = lines.map(function (line) { return line.type; }).filter(function (type, i, all) { return all.indexOf(type) === i; });
        var before = by_id('type').value;
        by_id('type').replaceChildren.apply(by_id('type'), [option('', 'all')].concat(types.map(function (type) { return option(type, type); })));
        by_id('type').value = types.indexOf(before) >= 0 ? before : '';
        by_id('choice').hidden = lines.length < 6;
    }

    function chosen(lines) {
        var type = by_id('type').value;
        return lines.filter(function (line) { return !type || line.type === type; });
    }

    function show_legend(lines) {
        by_id('legend').replaceChildren.apply(by_id('legend'), chosen(lines).map(function (line) {
            var button = document.createElement('button');
            button.type = 'button';
            button.setAttribute('aria-pressed', String(!hidden[line.name]));
            var sample = chart.element('svg', {width: 28, height: 12, 'aria-hidden': 'true'});
            var stroke = chart.element('line', {x1: 1, x2: 27, y1: 6, y2: 6, 'stroke-dasharray': line.dash}, sample);
            sample.style.color = stroke.style.stroke = line.colour;
            chart.marker(line.marker, 14, 6, 4, 'value', sample);
            button.append(sample, line.name);
            button.addEventListener('click', function () {
                hidden[line.name] = !hidden[line.name];
                button.setAttribute('aria-pressed', String(!hidden[line.name]));
                show_chart(lines);
            });
            return button;
        }));
    }

    function hide_all(hide) {
        var lines = styled();
        chosen(lines).forEach(function (line) { hidden[line.name] = hide; });
        show_legend(lines);
        show_chart(lines);
    }

    /* What lies within the chosen commits, by places counted from the first of them. */
    function within(line, first, last) {
        function inside(column) { return column >= first && column <= last; }
        function moved(each) { return [each[0] - first].concat(each.slice(1)); }
        function kept(values) { return values.filter(function (value, i) { return inside(line.at[i]); }); }
        return Object.assign({}, line, {
            at: line.at.filter(inside).map(function (column) { return column - first; }),
            values: kept(line.values), low: kept(line.low), high: kept(line.high),
            apart: line.apart.filter(function (each) { return inside(each[0]); }).map(moved),
            failed: line.failed.filter(inside).map(function (column) { return column - first; }),
            skipped: line.skipped.filter(inside).map(function (column) { return column - first; }),
            cards: line.cards.filter(function (card) { return inside(card[0]); }).map(moved),
            changes: line.changes.filter(function (change) { return inside(change[0]); }).map(moved)
        });
    }

    function zoom(first, last) {
        var most = index.commits.length - 1;
        range = first === undefined || (first <= 0 && last >= most) ? null : [Math.max(0, first), Math.min(most, last)];
        show_chart(styled());
    }

    function show_chart(lines) {
        var first = range ? range[0] : 0, last = range ? range[1] : index.commits.length - 1;
        by_id('zoom').hidden = !range;
        by_id('zoomed').textContent = (last - first + 1) + ' of ' + index.commits.length + ' commits.';
        if (!lines.length) {  // every Record of the point is retracted, or of a commit that is not published
            return by_id('chart').replaceChildren();
        }
        var visible = chosen(lines).filter(function (line) { return !hidden[line.name]; });
        if (by_id('axis').value === 'stacks') {
            by_id('zoom').hidden = true;
            return show_stacks();
        }
        var columns = index.commits.slice(first, last + 1).map(function (commit) {
            return [commit[0].slice(0, 8), chart.day(commit[1])];
        });
        var drawn = chart.draw(by_id('chart'), visible.map(function (line) { return within(line, first, last); }), columns, shown.benchmark, {
                logarithmic: by_id('log').checked,
                from_zero: by_id('zero').checked,
                label: 'Chart: ' + by_id('title').textContent + ' over ' + (last - first + 1) + ' commits'
            }, {
                point: function (column) { read(visible, first + column); },
                zoom: function (from, to) { return from === undefined ? zoom() : zoom(first + from, first + to); }
            });
        by_id('cut').hidden = !drawn.dataset.cut;
        return drawn;
    }

    function show_hint() {
        by_id('reading').textContent = by_id('axis').value === 'stacks' ? 'Point at a software stack to read it.' :
            'Point at a commit to read it. Drag over commits to zoom; with the keyboard: + and −.';
    }

    /* The current value with each software stack. */
    function show_stacks() {
        var stacks = shown.found.stacks;
        var visible = chosen(styled(stacks.lines)).filter(function (line) { return !hidden[line.name]; });
        chart.draw(by_id('chart'), visible, stacks.names, shown.benchmark, {
            logarithmic: by_id('log').checked,
            from_zero: by_id('zero').checked,
            label: 'Chart: ' + by_id('title').textContent + ' over ' + stacks.names.length + ' software stacks'
        }, {
            point: function (column) {
                var texts = visible.filter(function (line) { return line.at.indexOf(column) >= 0; }).map(function (line) {
                    return line.name + ' ' + chart.quantity(line.values[line.at.indexOf(column)], shown.benchmark);
                });
                by_id('reading').textContent = stacks.names[column].join(', ') + ': ' + (texts.join('; ') || 'not measured');
            },
            zoom: function () { /* there are few */ }
        });
    }

    function read(lines, column) {
        var commit = index.commits[column];
        var texts = lines.map(function (line) {
            var i = line.at.indexOf(column);
            if (i < 0) {
                var missed = line.missed.find(function (each) { return each[1].indexOf(column) >= 0; });
                return missed ? line.name + ' ' + missed[0] : null;
            }
            var others = line.cards.filter(function (card) { return card[0] === column; });
            var why = chart.reason_of(line.apart, column);
            return line.name + ' ' + chart.quantity(line.values[i], shown.benchmark) + (why ? ' (' + why + ')' : '') + (others.length ? ' (' + others.map(function (card) {
                return 'card ' + card[2] + ' ' + chart.quantity(card[1], shown.benchmark);
            }).join(', ') + ')' : '');
        }).filter(Boolean);
        by_id('reading').textContent = commit[0].slice(0, 8) + ' of ' + chart.day(commit[1]) + ': ' +
            (texts.join('; ') || 'nothing measured');
    }

    /* A commit, as a link where asv.conf.json says where commits are shown. */
    function commit_link(hash) {
        var made = document.createElement(index.commit_url && hash ? 'a' : 'span');
        made.textContent = hash ? hash.slice(0, 8) : 'none';
        if (made.tagName === 'A') {
            made.href = index.commit_url + hash;
        }
        return made;
    }

    function show_repeat() {
        var commands = shown.found.commands, source = shown.found.source;
        by_id('repeat').hidden = !commands.length;
        by_id('commands').replaceChildren.apply(by_id('commands'), commands.map(function (command) {
            var line = document.createElement('div'), label = document.createElement('small');
            var code = document.createElement('code'), button = document.createElement('button');
            line.className = 'command';
            label.textContent = command.indexOf('asv ') === 0 ? 'newest measured commit' : 'code as it is now';
            code.textContent = command;
            button.type = 'button';
            button.textContent = 'Copy';
            button.setAttribute('aria-label', 'Copy: ' + command);
            button.addEventListener('click', function () { copy(code, button); });
            line.append(label, code, button);
            return line;
        }));
        var page = document.createElement('a');
        page.href = shown.benchmark.page;
        page.textContent = 'plugin ' + shown.benchmark.plugin;
        by_id('source').replaceChildren();
        if (shown.benchmark.plugin) {
            by_id('source').append('Source: ', shown.benchmark.page ? page : page.textContent, ', ' + ['version ' + shown.benchmark.version].concat(
                source.slice(0, 2), source[2] ? 'SHA-256 ' + source[2] : '').filter(Boolean).join(', ') + '.');
        }
    }

    /* Where the clipboard is not to be had, the command is selected, for the reader's own keys. */
    function copy(code, button) {
        function told(text) {
            button.textContent = text;
            setTimeout(function () { button.textContent = 'Copy'; }, 2000);
        }
        function select() {
            getSelection().selectAllChildren(code);
            told(document.execCommand('copy') ? 'Copied' : 'Selected');
        }
        if (!navigator.clipboard) {
            return select();
        }
        return navigator.clipboard.writeText(code.textContent).then(function () { told('Copied'); }, select);
    }

    /* --- Records: read when they are opened --------------------------------------------------------------------- */

    function show_runs() {
        var records = shown.found.records, point = shown;
        by_id('runs').hidden = !records;
        if (!records || !by_id('runs').open) {
            return;
        }
        hpml.read(records[0]).then(function (found) {
            if (point === shown) {
                runs = found;
                by_id('save').textContent = 'Save ' + (records[1] > runs.records.length ? 'the newest ' + runs.records.length + ' of ' : '') +
                    records[1] + (records[1] > 1 ? ' Records' : ' Record') + ' as JSON lines';
                show_strip();
                show_records();
                show_nodes();
            }
        });
    }

    function moment(record) {
        var date = new Date(1000 * record.started);
        return isNaN(date) ? 'unknown' : date.toISOString().slice(0, 16).replace('T', ' ');
    }

    function place_of(record) { return record.at === null ? -1 : record.at; }

    /* The Records with a number of this metric, and of each machine the newest: that of the newest published commit. */
    function measured() {
        var found = runs.records.filter(function (record) { return record.metrics[shown.benchmark.metric]; }), newest = {};
        found.forEach(function (record) {  // those that were started last come first
            var other = newest[record.place];
            newest[record.place] = other && place_of(other) >= place_of(record) ? other : record;
        });
        return {records: found, newest: newest};
    }

    function show_strip() {
        var all = measured(), which = by_id('which').value, kind = by_id('dots').value, metric = shown.benchmark.metric, rows = {};
        var found = all.records.filter(function (record) { return !which || record[which] === all.newest[record.place][which]; });
        var drawn = found.map(function (record) {
            return kind === 'medians' ? record.metrics[metric].medians : [].concat.apply([], rounds_of(record));
        });
        var total = drawn.reduce(function (sum, values) { return sum + values.length; }, 0);
        var every = Math.ceil(total / 3000);
        found.forEach(function (record, number) {
            var place = index.places[record.place], key = record.place + ' ' + record.card;
            rows[key] = rows[key] || Object.assign({name: name_of(record) + ' · ' + record.card, dots: [], place: record.place}, index.looks[place[0]]);
            drawn[number].forEach(function (value, i) {
                if (i % every === 0) {
                    var text = [chart.quantity(value, shown.benchmark), moment(record), record.commit.slice(0, 8), 'card ' + record.card].join(', ');
                    rows[key].dots.push([value, text, record.commit !== all.newest[record.place].commit]);
                }
            });
        });
        var sorted = Object.keys(rows).map(function (key) { return rows[key]; }).sort(function (a, b) { return a.place - b.place; });
        by_id('strip').replaceChildren();
        if (sorted.length) {
            chart.strip(by_id('strip'), sorted, shown.benchmark, {
                logarithmic: by_id('log').checked, label: 'Values of ' + found.length + ' Records on ' + sorted.length + ' cards, listed in the table below'
            });
        }
        by_id('strip-facts').textContent = found.length + ' of ' + all.records.length + ' Records. A row is a card (first digits of its UUID; ' +
            'without a GPU, of the start of the host). Outlined: of another commit than the newest.' + (every > 1 ? ' One of ' + every + ' samples is drawn.' : '');
    }

    function show_records() {
        var listed = runs.records.filter(function (record) { return record.status !== 'retracted'; });  // those have a table of their own
        table('records', ['Started (UTC)', 'Machine', 'Card', 'Commit', 'Value ± within the run', 'Raw samples', 'Regime', 'Warnings and conditions'],
            listed.map(function (record) {
                var numbers = record.metrics[shown.benchmark.metric];
                return [moment(record), name_of(record), record.card, '', numbers ? numbers.text : record.status === 'failed' ? 'failed' : '–', '', numbers ? numbers.regime : '',
                    [record.reason].concat(record.conditions, record.warnings).filter(Boolean).join('; ')];
            }));
        listed.forEach(function (record, i) {
            var row = by_id('records').tBodies[0].rows[i].cells, numbers = record.metrics[shown.benchmark.metric];
            row[3].append(commit_link(record.commit), record.at === null ? ' (not published)' : '');
            row[7].className = 'text';
            if (numbers) {
                row[5].append(samples(record, numbers.count));
            }
        });
    }

    /* The samples of each round of a Record, from its lines as they are stored. */
    function rounds_of(record) {
        return [].concat.apply([], record.lines.map(function (line) {
            var found = JSON.parse(line).metrics[shown.benchmark.metric], start = 0;
            return (found.rounds && found.rounds.length ? found.rounds : [found.samples.length]).map(function (count) {
                start += count;
                return found.samples.slice(start - count, start);
            });
        }));
    }

    /* The samples in the metric's unit, a line for each round; made when they are opened. */
    function samples(record, count) {
        var made = document.createElement('details'), summary = document.createElement('summary');
        var text = document.createElement('pre');
        summary.textContent = count + (count > 1 ? ' samples' : ' sample');
        text.className = 'samples';
        text.tabIndex = 0;
        made.append(summary, text);
        made.addEventListener('toggle', function () {
            text.textContent = rounds_of(record).map(function (values, i) {
                return 'round ' + (i + 1) + ' [' + (shown.benchmark.si || '1') + ']: ' + values.join(', ');
            }).join('\n');
        });
        return made;
    }

    function show_nodes() {
        by_id('nodes').replaceChildren.apply(by_id('nodes'), [].concat.apply([], runs.facts.map(function (each) {
            var title = document.createElement('h3'), list = document.createElement('dl');
            title.textContent = each[0] + ': ' + each[1];
            list.className = 'facts-list';
            each[2].forEach(function (fact) {
                var pair = document.createElement('div'), name = document.createElement('dt'), text = document.createElement('dd');
                name.textContent = fact[0];
                text.textContent = fact[1];
                pair.append(name, text);
                list.append(pair);
            });
            return [title, list];
        })));
        by_id('nodes-title').hidden = !runs.facts.length;
    }

    function show_table(id, visible) {
        by_id(id).parentNode.hidden = !visible;
        if (by_id(id + '-title')) {
            by_id(id + '-title').hidden = !visible;
        }
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
                '', String(line.at.length));
        }));
        lines.forEach(function (line, i) {
            if (line.at.length) {
                by_id('numbers').tBodies[0].rows[i].cells[4 + limits.length].append(commit_link(index.commits[line.at[line.at.length - 1]][0]));
            }
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
            return [each[1] === null ? 'not published' : index.commits[each[1]][0].slice(0, 8), place[0], place[1], each[2]];
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
                commit[0].slice(0, 8), chart.day(commit[1]), row[1].name, sign + change[4] +
                    (change[3] ? ' (' + change[3] + ')' : ''),
                chart.quantity(change[1], shown.benchmark),
                chart.quantity(change[2], shown.benchmark)
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
    by_id('axis').addEventListener('change', function () { show_chart(styled()); show_hint(); });
    ['log', 'zero'].forEach(function (id) {
        by_id(id).addEventListener('change', function () {
            if (shown) {
                show_chart(styled());
                show_runs();
            }
        });
    });
    by_id('type').addEventListener('change', function () {
        show_legend(styled());
        show_chart(styled());
    });
    by_id('all').addEventListener('click', function () { hide_all(false); });
    by_id('none').addEventListener('click', function () { hide_all(true); });
    by_id('save').addEventListener('click', save_records);
    by_id('reset').addEventListener('click', function () { zoom(); });
    by_id('runs').addEventListener('toggle', function () { if (shown) { show_runs(); } });
    ['which', 'dots'].forEach(function (id) {
        by_id(id).addEventListener('change', function () { if (runs) { show_strip(); } });
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
            show_runs();
        }
    });

    hpml.read('history/index.js').then(function (found) {
        index = found;
        controls.hidden = index.benchmarks.length === 0;
        return read_address();
    });
})();
