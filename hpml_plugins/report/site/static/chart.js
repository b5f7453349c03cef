/* Charts of one point as SVG: values over commits with intervals as bands, and runs by card. They take their ink from the
   page, so that they follow the light or dark scheme and print. */
(function () {
    'use strict';

    var SVG = 'http://www.w3.org/2000/svg';
    var DASHES = ['', '7 3', '2 3', '9 3 2 3'];
    var PREFIXES = {'-12': 'p', '-9': 'n', '-6': 'µ', '-3': 'm', 0: '', 3: 'k', 6: 'M', 9: 'G', 12: 'T', 15: 'P', 18: 'E'};
    var MARKERS = {
        circle: 'M-1 0A1 1 0 1 1 1 0A1 1 0 1 1 -1 0Z', square: 'M-.9 -.9H.9V.9H-.9Z',
        'triangle-up': 'M0 -1.2L1.2 .9H-1.2Z', diamond: 'M0 -1.35L1.35 0L0 1.35L-1.35 0Z',
        cross: 'M-.45 -1.3H.45V-.45H1.3V.45H.45V1.3H-.45V.45H-1.3V-.45H-.45Z',
        'triangle-down': 'M0 1.2L1.2 -.9H-1.2Z', 'triangle-right': 'M1.2 0L-.9 1.2V-1.2Z', 'triangle-left': 'M-1.2 0L.9 1.2V-1.2Z'
    };

    function element(name, attributes, parent, text) {
        var made = document.createElementNS(SVG, name);
        Object.keys(attributes || {}).forEach(function (key) { made.setAttribute(key, attributes[key]); });
        if (text !== undefined) {
            made.textContent = text;
        }
        if (parent) {
            parent.append(made);
        }
        return made;
    }

    function marker(shape, x, y, size, kind, parent, tip) {
        var place = 'translate(' + x.toFixed(1) + ' ' + y.toFixed(1) + ') scale(' + size + ')';
        var made = element('path', {d: MARKERS[shape], transform: place, 'class': 'marker ' + kind}, parent);
        if (tip) {
            element('title', {}, made, tip);
        }
        return made;
    }

    /* The power of ten, a multiple of three, whose prefix makes a value read well: _power in model/formatting.py. */
    function power_of(value, unit) {
        if (value === 0 || !isFinite(value)) {
            return 0;
        }
        var power = 3 * Math.floor(Math.floor(Math.log10(Math.abs(Number(value.toPrecision(4)))) + 1e-9) / 3);
        return Math.max(unit.lowest, Math.min(unit.highest, power));
    }

    function written(text) {
        return text.replace(/^(-?\d+)/, function (whole) { return whole.replace(/\B(?=(\d{3})+$)/g, '\u202f'); }).replace(/-/g, '−');
    }

    /* A value with its unit, four digits: quantity in model/formatting.py. tests/report/site/test_points.py holds the two
       together. */
    function quantity(value, unit) {
        if (value === null || value === undefined) {
            return '–';
        }
        var power = power_of(value, unit);
        var scaled = value / Math.pow(10, power), rounded = Number(scaled.toPrecision(4)), text = '0';
        if (value !== 0) {
            var magnitude = Math.floor(Math.log10(Math.abs(rounded)) + 1e-9);
            var exact = unit.count && rounded === scaled && Number.isInteger(rounded);
            text = magnitude < -4 || magnitude >= 9 ? scaled.toExponential(3).replace(/e([+-])(\d)$/, 'e$10$2') :
                scaled.toFixed(exact ? 0 : Math.max(0, 3 - magnitude));
        }
        return (written(text) + ' ' + PREFIXES[power] + unit.label).trim();
    }

    function ticks(low, high, logarithmic) {
        var found = [];
        if (logarithmic && high / low > 3) {
            var steps = high / low > 300 ? [1] : high / low > 8 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
            for (var power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
                steps.forEach(function (step) {
                    var value = step * Math.pow(10, power);
                    if (value >= low && value <= high) {
                        found.push(value);
                    }
                });
            }
            return found;
        }
        var rough = (high - low) / 5;
        var base = Math.pow(10, Math.floor(Math.log10(rough)));
        var step = base * [1, 2, 5, 10].find(function (each) { return each * base >= rough; });
        for (var n = Math.ceil(low / step); n * step <= high; n++) {
            found.push(n * step);
        }
        return found;
    }

    function short(value) { return written(String(Number(value.toPrecision(2)))); }

    /* Short labels of an axis, with one prefix for all where they are near one another.  title: what they are in. */
    function labels(values, unit, logarithmic) {
        var sizes = values.map(Math.abs).filter(Boolean);
        var most = Math.max.apply(null, sizes.concat(0)), least = Math.min.apply(null, sizes.concat(most));
        if (most / least > 2000) {
            return {title: unit.label, texts: values.map(function (value) {
                var power = power_of(value, unit);
                return short(value / Math.pow(10, power)) + ' ' + PREFIXES[power];
            })};
        }
        var power = power_of(most, unit), factor = '';
        if (most && (most >= Math.pow(10, power + 4) || most < Math.pow(10, power - 2))) {  // no such prefix
            var more = 3 * Math.floor(Math.log10(most / Math.pow(10, power)) / 3);
            factor = '×10' + String(more).replace(/./g, function (digit) { return digit === '-' ? '⁻' : '⁰¹²³⁴⁵⁶⁷⁸⁹'[digit]; }) + ' ';
            power += more;
        }
        var step = Math.min.apply(null, values.slice(1).map(function (value, i) { return value - values[i]; }).concat(most || 1));
        var digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step / Math.pow(10, power)) + 1e-9)));
        return {
            title: factor + (PREFIXES[factor ? power_of(most, unit) : power] + unit.label).trim(),
            texts: values.map(function (value) {
                var shown = value / Math.pow(10, power);
                return logarithmic && most / least > 3 ? short(shown) : written(shown.toFixed(digits));
            })
        };
    }

    /* The smallest and the largest; a function takes at most some 100,000 arguments, so not Math.min.apply. */
    function extent(values) {
        return values.reduce(function (ends, value) {
            return [value < ends[0] ? value : ends[0], value > ends[1] ? value : ends[1]];
        }, [Infinity, -Infinity]);
    }

    function bounds(values, logarithmic, from_zero) {
        var drawn = values.filter(function (each) { return each !== null && (!logarithmic || each > 0); });
        var low = extent(drawn)[0], high = extent(drawn)[1];
        if (!drawn.length) {
            return [0.5, 1];
        }
        if (logarithmic) {
            var room = Math.pow(high / low || 1, 0.05) * 1.01;
            return [low / room, high * room];
        }
        var pad = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
        return [from_zero && low >= 0 ? 0 : low - pad, high + pad];
    }

    /* A function from values to pixels between two. */
    function scaled(range, logarithmic, start, end) {
        var scale = logarithmic ? Math.log : function (value) { return value; };
        var span = scale(range[1]) - scale(range[0]) || 1;
        return function (value) { return start + (end - start) * (scale(value) - scale(range[0])) / span; };
    }

    /* Why the number of a column gets no verdict against the newest; '' where it does.  apart: [[column, reason], …]. */
    function reason_of(apart, column) {
        var found = apart.find(function (each) { return each[0] === column; });
        return found ? found[1] : '';
    }

    function day(ms) { return new Date(ms).toISOString().slice(0, 10); }

    /* The ends of an axis that shows every value, and of the intervals what lies near the values: one interval of more than
       100 % would flatten all of them. */
    function bounds_near(values, limits, logarithmic, from_zero) {
        var drawn = values.filter(function (each) { return each !== null && (!logarithmic || each > 0); });
        var low = extent(drawn)[0], high = extent(drawn)[1];
        var room = logarithmic ? Math.max(high / low, 1.5) : Math.max(high - low, 0.5 * Math.abs(high));
        var near = limits.filter(function (each) { return each !== null; }).map(function (each) {
            return logarithmic ? Math.max(low / room, Math.min(high * room, each)) : Math.max(low - room, Math.min(high + room, each));
        });
        return bounds(drawn.concat(near), logarithmic, from_zero);
    }

    /* lines: {name, colour, marker, dash, at, values, low, high, apart, failed, skipped, changes, cards}.  columns: [[label, second line], …]:
       commits or software stacks.
       unit: {label, lowest, highest, count}.  on.point: called with a column whenever the cursor moves.  on.zoom: with
       the first and last column that a reader chose, with nothing for all. */
    function draw(container, lines, columns, unit, options, on) {
        var narrow = container.clientWidth < 620;
        var width = Math.max(320, Math.min(1100, container.clientWidth || 960));
        var height = narrow ? 340 : 440;
        var left = 56, right = 40, top = 28, bottom = 40;
        var count = columns.length;
        var all = [].concat.apply([], lines.map(function (line) {
            return line.values.concat(line.cards.map(function (card) { return card[1]; }));
        }));
        var limits = [].concat.apply([], lines.map(function (line) { return line.low.concat(line.high); }));
        var range = bounds_near(all, limits, options.logarithmic, options.from_zero);
        var y = scaled(range, options.logarithmic, height - bottom, top);
        function x(column) {
            return left + (width - left - right) * (count > 1 ? (column + 0.3) / (count - 0.4) : 0.5);
        }
        function column_at(event) {
            var box = svg.getBoundingClientRect();
            var at = (event.clientX - box.left) * width / box.width;
            var found = count > 1 ? Math.round((at - left) / (width - left - right) * (count - 0.4) - 0.3) : 0;
            return Math.max(0, Math.min(count - 1, found));
        }
        /* Of an interval: what leaves the axis ends at its edge. */
        function place(column, value) {
            return x(column).toFixed(1) + ',' + y(Math.max(range[0], Math.min(range[1], value))).toFixed(1);
        }
        function drawable(value) {
            return value !== null && (!options.logarithmic || value > 0);
        }
        var svg = element('svg', {
            viewBox: '0 0 ' + width + ' ' + height, width: width, height: height, role: 'img', tabindex: 0,
            'aria-label': options.label + '; left and right arrow keys read it commit by commit, plus and minus zoom, Escape shows all'
        });
        var values = ticks(range[0], range[1], options.logarithmic), texts = labels(values, unit, options.logarithmic);
        element('text', {x: 4, y: 14, 'class': 'unit'}, svg, texts.title);
        values.forEach(function (value, i) {
            var at = y(value).toFixed(1);
            element('line', {x1: left, x2: width - right, y1: at, y2: at, 'class': 'grid'}, svg);
            element('text', {x: left - 8, y: at, dy: '.32em', 'text-anchor': 'end', 'class': 'tick'}, svg, texts.texts[i]);
        });
        var every = Math.max(1, Math.ceil(count / (narrow ? 3 : 7)));
        for (var column = 0; column < count; column += every) {
            element('line', {x1: x(column), x2: x(column), y1: height - bottom, y2: height - bottom + 5, 'class': 'axis'}, svg);
            element('text', {x: x(column), y: height - bottom + 18, 'text-anchor': 'middle'}, svg, columns[column][0]);
            element('text', {x: x(column), y: height - bottom + 33, 'text-anchor': 'middle', 'class': 'quiet'}, svg, columns[column][1]);
        }
        element('line', {x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, 'class': 'axis'}, svg);

        lines.forEach(function (line) {
            var group = element('g', {}, svg);
            group.style.color = line.colour;
            var upper = [], lower = [], points = [], parts = [], why = null;
            function close_band() {
                var pale = why ? ' apart' : '';
                if (upper.length > 1) {
                    element('polygon', {points: upper.concat(lower.reverse()).join(' '), 'class': 'band' + pale}, group);
                } else if (upper.length === 1) {
                    element('polyline', {points: upper.concat(lower).join(' '), 'class': 'whisker' + pale}, group);
                }
                upper = [];
                lower = [];
            }
            line.at.forEach(function (column, i) {
                if (!drawable(line.values[i])) {
                    return;
                }
                var reason = reason_of(line.apart, column);
                if (!parts.length || reason !== why) {  // no line joins values that are not compared
                    close_band();
                    why = reason;
                    parts.push({pale: why ? ' apart' : '', points: []});
                }
                points.push([x(column), y(line.values[i]), parts[parts.length - 1].pale]);
                parts[parts.length - 1].points.push(x(column).toFixed(1) + ',' + y(line.values[i]).toFixed(1));
                if (drawable(line.low[i]) && drawable(line.high[i])) {
                    upper.push(place(column, line.high[i]));
                    lower.push(place(column, line.low[i]));
                } else {
                    close_band();
                }
            });
            close_band();
            parts.forEach(function (part) {
                element('polyline', {points: part.points.join(' '), 'class': 'line' + part.pale, 'stroke-dasharray': line.dash}, group);
            });
            // Of many commits some markers tell the lines apart.
            var step = Math.ceil(points.length / 60);
            points.forEach(function (point, i) {
                if (i % step === 0) {
                    marker(line.marker, point[0], point[1], 3.4, 'value' + point[2], group);
                }
            });
            line.cards.forEach(function (card) {
                if (drawable(card[1])) {
                    var tip = line.name + ', card ' + card[2] + ': ' + quantity(card[1], unit) + ' at ' + columns[card[0]][0];
                    marker(line.marker, x(card[0]) + 7, y(card[1]), 2.6, 'hollow card', group, tip);
                }
            });
            line.changes.forEach(function (change) {
                var at = y(change[2]), rises = change[2] > change[1];
                var mark = element('g', {'class': 'change ' + change[3]}, svg);
                element('path', {
                    d: rises ? 'M-5.5 5 L5.5 5 L0 -5 Z' : 'M-5.5 -5 L5.5 -5 L0 5 Z',
                    transform: 'translate(' + x(change[0]).toFixed(1) + ' ' + (at + (rises ? 14 : -14)).toFixed(1) + ')'
                }, mark);
                element('title', {}, mark, line.name + ': ' + change[4] + ' at ' + columns[change[0]][0]);
            });
            line.failed.forEach(function (column) {
                element('text', {x: x(column), y: height - bottom - 4, 'text-anchor': 'middle', 'class': 'failed'}, group, '×');
            });
            line.skipped.forEach(function (column) {
                element('text', {x: x(column), y: height - bottom - 4, 'text-anchor': 'middle', 'class': 'skipped'}, group, '–');
            });
        });
        if (extent(limits.filter(drawable))[0] < range[0] || extent(limits.filter(drawable))[1] > range[1]) {
            svg.dataset.cut = 'true';
        }
        react(svg, {count: count, top: top, bottom: height - bottom, x: x, column_at: column_at}, on);
        var focused = container.contains(document.activeElement);
        container.replaceChildren(svg);
        if (focused) {
            svg.focus();
        }
        return svg;
    }

    /* The cursor, and zooming: by dragging over commits, by + and −; all again by a double click or Escape. */
    function react(svg, chart, on) {
        var cursor = element('line', {y1: chart.top, y2: chart.bottom, 'class': 'cursor', visibility: 'hidden'}, svg);
        var chosen = element('rect', {y: chart.top, height: chart.bottom - chart.top, 'class': 'chosen', visibility: 'hidden'}, svg);
        var current = chart.count - 1, start = null;
        function point_at(column) {
            current = Math.max(0, Math.min(chart.count - 1, column));
            cursor.setAttribute('x1', chart.x(current));
            cursor.setAttribute('x2', chart.x(current));
            cursor.setAttribute('visibility', 'visible');
            on.point(current);
        }
        svg.addEventListener('pointerdown', function (event) {
            start = event.button === 0 ? chart.column_at(event) : null;
        });
        svg.addEventListener('pointermove', function (event) {
            var column = chart.column_at(event);
            point_at(column);
            if (start !== null && event.buttons & 1) {
                svg.setPointerCapture(event.pointerId);
                chosen.setAttribute('x', chart.x(Math.min(start, column)));
                chosen.setAttribute('width', chart.x(Math.max(start, column)) - chart.x(Math.min(start, column)));
                chosen.setAttribute('visibility', 'visible');
            }
        });
        svg.addEventListener('pointerup', function (event) {
            var column = chart.column_at(event), from = start;
            start = null;
            chosen.setAttribute('visibility', 'hidden');
            if (from !== null && column !== from) {
                on.zoom(Math.min(from, column), Math.max(from, column));
            }
        });
        svg.addEventListener('pointercancel', function () {
            start = null;
            chosen.setAttribute('visibility', 'hidden');
        });
        svg.addEventListener('dblclick', function () { on.zoom(); });
        svg.addEventListener('keydown', function (event) {
            var moves = {ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: chart.count - 1};
            var half = Math.max(1, Math.floor(chart.count / 4));
            var zooms = {'+': [current - half, current + half], '=': [current - half, current + half], '-': [-half * 2, chart.count - 1 + half * 2], Escape: []};
            if (event.ctrlKey || event.metaKey || event.altKey) {
                return;
            }
            if (moves[event.key] !== undefined) {
                event.preventDefault();
                point_at(moves[event.key]);
            } else if (zooms[event.key]) {
                event.preventDefault();
                on.zoom.apply(null, zooms[event.key]);
            }
        });
    }

    /* Rows of dots over an axis of values.  rows: {name, colour, marker, dots: [[value, text, hollow], …]}. */
    function strip(container, rows, unit, options) {
        var width = Math.max(320, Math.min(1100, container.clientWidth || 960));
        var longest = 7 * Math.max.apply(null, rows.map(function (row) { return row.name.length; }));
        var narrow = longest > width / 2;
        var left = narrow ? 12 : longest + 12, right = 24, top = 8, step = narrow ? 40 : 26;
        var height = top + rows.length * step + 44;
        var values = [].concat.apply([], rows.map(function (row) { return row.dots.map(function (dot) { return dot[0]; }); }));
        var range = bounds(values, options.logarithmic, false);
        var x = scaled(range, options.logarithmic, left + 8, width - right);
        var svg = element('svg', {
            viewBox: '0 0 ' + width + ' ' + height, width: width, height: height, role: 'img', 'aria-label': options.label
        });
        var at = ticks(range[0], range[1], options.logarithmic), texts = labels(at, unit, options.logarithmic);
        var every = Math.ceil(at.length / Math.floor((width - left - right) / 64));
        at.forEach(function (value, i) {
            element('line', {x1: x(value), x2: x(value), y1: top, y2: height - 36, 'class': 'grid'}, svg);
            if (i % every === 0) {
                element('text', {x: x(value), y: height - 20, 'text-anchor': 'middle', 'class': 'tick'}, svg, texts.texts[i]);
            }
        });
        element('text', {x: width - right, y: height - 4, 'text-anchor': 'end', 'class': 'unit'}, svg, texts.title);
        rows.forEach(function (row, number) {
            var y = top + number * step + (narrow ? 28 : 13);
            element('text', {x: narrow ? left : 4, y: narrow ? y - 14 : y + 4}, svg, row.name);
            element('line', {x1: left, x2: width - right, y1: y, y2: y, 'class': 'grid'}, svg);
            var group = element('g', {}, svg);
            group.style.color = row.colour;
            // What is outlined lies below.
            row.dots.slice().sort(function (a, b) { return b[2] - a[2]; }).forEach(function (dot) {
                if (dot[0] !== null && (dot[0] > 0 || !options.logarithmic)) {
                    marker(row.marker, x(dot[0]), y, 3.6, dot[2] ? 'hollow' : 'value', group, dot[1]);
                }
            });
        });
        container.replaceChildren(svg);
    }

    window.hpml_chart = {draw: draw, strip: strip, extent: extent, quantity: quantity, element: element, marker: marker, day: day, reason_of: reason_of, DASHES: DASHES};
})();
