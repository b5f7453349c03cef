/* A Flot plug-in: the bars of several series stand side by side, by `series.bars.order`.

   Series that show bars with an `order` and share an x axis form a group. Each member's bars are moved by whole
   bar widths so that the group as one stays where a single series' bar would have stood. Without `order`, or with one
   series alone, nothing moves. */
(function ($) {
    'use strict';

    function takes_part(series) {
        return series.bars && series.bars.show && series.bars.order !== null && series.bars.order !== undefined;
    }

    /* The members of a series' group from left to right; equal orders keep the order of the series. */
    function group_of(series, all) {
        return all.filter(function (other) {
            return takes_part(other) && other.xaxis === series.xaxis;
        }).map(function (other, place) {
            return {series: other, place: place};
        }).sort(function (a, b) {
            return (a.series.bars.order - b.series.bars.order) || (a.place - b.place);
        }).map(function (entry) {
            return entry.series;
        });
    }

    function width_of(series) {
        return series.bars.barWidth;
    }

    function total(group) {
        return group.reduce(function (sum, series) { return sum + width_of(series); }, 0);
    }

    /* How far the group's left edge lies from the point, by the alignment of the bar that would stand there alone. */
    function group_left(align, width) {
        return align === 'center' ? -width / 2 : (align === 'right' ? -width : 0);
    }

    function shift_of(series, group) {
        var before = total(group.slice(0, group.indexOf(series)));
        var own_left = group_left(series.bars.align, width_of(series));
        return group_left(series.bars.align, total(group)) + before - own_left;
    }

    function move_points(plot, series, datapoints) {
        if (!takes_part(series)) {
            return;
        }
        var group = group_of(series, plot.getData());
        if (group.length < 2) {
            return;
        }
        var shift = shift_of(series, group);
        var along = series.bars.horizontal ? 1 : 0;
        for (var i = along; i < datapoints.points.length; i += datapoints.pointsize) {
            if (datapoints.points[i] !== null && datapoints.points[i] !== undefined) {
                datapoints.points[i] += shift;
            }
        }
    }

    $.plot.plugins.push({
        /* After the categories plug-in, which turns names into numbers in this same hook: it must be loaded first. */
        init: function (plot) { plot.hooks.processDatapoints.push(move_points); },
        options: {series: {bars: {order: null}}},
        name: 'order_bars',
        version: '1.0'
    });
})(jQuery);
