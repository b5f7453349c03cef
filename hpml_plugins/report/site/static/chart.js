/* Lines over commits as SVG: intervals as bands, changes of level marked, a cursor for pointer and arrow keys. It takes
   its ink from the page, so that it follows the light or dark scheme and prints. */
(function () {
    'use strict';

    var SVG = 'http://www.w3.org/2000/svg';
    var DASHES = ['', '7 3', '2 3', '9 3 2 3'];
    var PREFIXES = {'-12': 'p', '-9': 'n', '-6': 'µ', '-3': 'm', 0: '', 3: 'k', 6: 'M', 9: 'G', 12: 'T', 15: 'P', 18: 'E'};

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

    /* A value with its unit, four digits: display.quantity of the pages that Python writes. */
    function quantity(value, unit) {
        if (value === null || value === undefined) {
            return '–';
        }
        var power = 0;
        if (value !== 0) {
            power = 3 * Math.floor(Math.floor(Math.log10(Math.abs(Number(value.toPrecision(4)))) + 1e-9) / 3);
            power = Math.max(unit.lowest, Math.min(unit.highest, power));
        }
        var scaled = value / Math.pow(10, power);
        var size = Math.abs(scaled);
        var text = size !== 0 && (size < 1e-4 || size >= 1e9) ? scaled.toExponential(3) : scaled.toPrecision(4);
        if (text.indexOf('e') >= 0 && size < 1e9 && size >= 1e-4) {
            text = String(Math.round(scaled));
        }
        return (text + ' ' + PREFIXES[power] + unit.label).trim().replace(/^-/, '−');
    }

    function ticks(low, high, logarithmic) {
        var found = [];
        if (logarithmic) {
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

    function bounds(lines, logarithmic, from_zero) {
        var low = Infinity, high = -Infinity;
        lines.forEach(function (line) {
            line.values.forEach(function (value, i) {
                [value, line.low[i], line.high[i]].forEach(function (each) {
                    if (each !== null && (!logarithmic || each > 0)) {
                        low = Math.min(low, each);
                        high = Math.max(high, each);
                    }
                });
            });
        });
        if (low > high) {
            return [0, 1];
        }
        if (logarithmic) {
            var room = Math.pow(high / low || 1, 0.05) * 1.01;
            return [low / room, high * room];
        }
        var pad = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
        return [from_zero && low >= 0 ? 0 : low - pad, high + pad];
    }

    /* lines: {name, colour, dash, at, values, low, high, failed, changes}.  commits: [[hash, ms], …].  unit: {label,
       lowest, highest}.  Returns the SVG.  told: called with a column whenever the cursor moves. */
    function draw(container, lines, commits, unit, options, told) {
        var narrow = container.clientWidth < 620;
        var width = Math.max(320, Math.min(1100, container.clientWidth || 960));
        var height = narrow ? 340 : 440;
        var left = narrow ? 64 : 84, right = 40, top = 12, bottom = 40;
        var count = commits.length;
        var range = bounds(lines, options.logarithmic, options.from_zero);
        var scale = options.logarithmic ? Math.log : function (value) { return value; };
        var span = scale(range[1]) - scale(range[0]) || 1;
        function x(column) {
            return left + (width - left - right) * (count > 1 ? (column + 0.3) / (count - 0.4) : 0.5);
        }
        function y(value) {
            return height - bottom - (height - top - bottom) * (scale(value) - scale(range[0])) / span;
        }
        function place(column, value) {
            return x(column).toFixed(1) + ',' + y(value).toFixed(1);
        }
        function drawable(value) {
            return value !== null && (!options.logarithmic || value > 0);
        }
        var svg = element('svg', {
            viewBox: '0 0 ' + width + ' ' + height, width: width, height: height, role: 'img', tabindex: 0,
            'aria-label': options.label + '; left and right arrow keys read it commit by commit'
        });
        ticks(range[0], range[1], options.logarithmic).forEach(function (value) {
            var at = y(value).toFixed(1);
            element('line', {x1: left, x2: width - right, y1: at, y2: at, 'class': 'grid'}, svg);
            element('text', {x: left - 8, y: at, dy: '.32em', 'text-anchor': 'end'}, svg, quantity(value, unit));
        });
        var every = Math.max(1, Math.ceil(count / (narrow ? 3 : 7)));
        for (var column = 0; column < count; column += every) {
            element('line', {x1: x(column), x2: x(column), y1: height - bottom, y2: height - bottom + 5, 'class': 'axis'}, svg);
            element('text', {x: x(column), y: height - bottom + 18, 'text-anchor': 'middle'}, svg, commits[column][0]);
            element('text', {x: x(column), y: height - bottom + 33, 'text-anchor': 'middle', 'class': 'quiet'}, svg,
                new Date(commits[column][1]).toISOString().slice(0, 10));
        }
        element('line', {x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, 'class': 'axis'}, svg);

        lines.forEach(function (line) {
            var group = element('g', {}, svg);
            group.style.color = line.colour;
            var upper = [], lower = [];
            function close_band() {
                if (upper.length > 1) {
                    element('polygon', {points: upper.concat(lower.reverse()).join(' '), 'class': 'band'}, group);
                } else if (upper.length === 1) {
                    element('polyline', {points: upper.concat(lower).join(' '), 'class': 'whisker'}, group);
                }
                upper = [];
                lower = [];
            }
            var points = [];
            line.at.forEach(function (column, i) {
                if (!drawable(line.values[i])) {
                    return;
                }
                points.push(place(column, line.values[i]));
                if (drawable(line.low[i]) && drawable(line.high[i])) {
                    upper.push(place(column, line.high[i]));
                    lower.push(place(column, line.low[i]));
                } else {
                    close_band();
                }
            });
            close_band();
            element('polyline', {points: points.join(' '), 'class': 'line', 'stroke-dasharray': line.dash}, group);
            if (points.length < 80) {
                points.forEach(function (point) {
                    var xy = point.split(',');
                    element('circle', {cx: xy[0], cy: xy[1], r: 2.6}, group);
                });
            }
            line.changes.forEach(function (change) {
                var at = y(change[2]), rises = change[2] > change[1];
                var mark = element('g', {'class': 'change ' + change[3]}, svg);
                element('path', {
                    d: rises ? 'M-5.5 5 L5.5 5 L0 -5 Z' : 'M-5.5 -5 L5.5 -5 L0 5 Z',
                    transform: 'translate(' + x(change[0]).toFixed(1) + ' ' + (at + (rises ? 14 : -14)).toFixed(1) + ')'
                }, mark);
                element('title', {}, mark, line.name + ': ' + change[4] + ' at ' + commits[change[0]][0]);
            });
            line.failed.forEach(function (column) {
                element('text', {x: x(column), y: height - bottom - 4, 'text-anchor': 'middle', 'class': 'failed'}, group, '×');
            });
        });

        var cursor = element('line', {y1: top, y2: height - bottom, 'class': 'cursor', visibility: 'hidden'}, svg);
        var current = count - 1;
        function point_at(column) {
            current = Math.max(0, Math.min(count - 1, column));
            cursor.setAttribute('x1', x(current));
            cursor.setAttribute('x2', x(current));
            cursor.setAttribute('visibility', 'visible');
            told(current);
        }
        svg.addEventListener('pointermove', function (event) {
            var box = svg.getBoundingClientRect();
            var at = (event.clientX - box.left) * width / box.width;
            point_at(Math.round((at - left) / (width - left - right) * (count - 0.4) - 0.3));
        });
        svg.addEventListener('keydown', function (event) {
            var moves = {ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: count - 1};
            if (moves[event.key] !== undefined) {
                event.preventDefault();
                point_at(moves[event.key]);
            }
        });
        container.replaceChildren(svg);
        return svg;
    }

    window.hpml_chart = {draw: draw, quantity: quantity, DASHES: DASHES};
})();
