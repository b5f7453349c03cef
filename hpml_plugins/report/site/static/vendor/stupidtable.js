/* Tables that sort when a header is clicked: what asv's benchmark and regression lists ask of `stupidtable`.

   $(table).stupidtable({type: compare, …})   makes every `th[data-sort]` sort by that type: int, float, string,
                                              string-ins, or one of the given functions (a, b) → number.
   $(th).stupidsort('asc' | 'desc')           sorts now; without a direction it turns the column's last one round.
   A cell's `data-sort-value` goes before its text. `beforetablesort` and `aftertablesort` are triggered on the
   table with {column, direction, $th, compare_fn}. */
(function ($) {
    'use strict';

    var ASC = 'asc', DESC = 'desc';

    function by_number(parse) {
        return function (a, b) {
            var x = parse(a), y = parse(b);
            /* What is no number comes last, or the order of the others would hang on where it stood. */
            if (isNaN(x) || isNaN(y)) {
                return (isNaN(x) ? 1 : 0) - (isNaN(y) ? 1 : 0);
            }
            return x - y;
        };
    }

    function by_text(a, b) {
        return String(a).localeCompare(String(b));
    }

    var COMPARE = {
        'int': by_number(function (text) { return parseInt(text, 10); }),
        'float': by_number(parseFloat),
        'string': by_text,
        'string-ins': function (a, b) {
            return by_text(String(a).toLocaleLowerCase(), String(b).toLocaleLowerCase());
        }
    };

    function column_of($th) {
        var column = 0;
        $th.prevAll('th, td').each(function () {
            column += this.colSpan || 1;
        });
        return column;
    }

    function key_of(row, column) {
        var cell = $(row).children().eq(column);
        var value = cell.attr('data-sort-value');
        return value === undefined ? cell.text() : value;
    }

    function direction_for($th, wanted) {
        if (wanted === ASC || wanted === DESC) {
            return wanted;
        }
        var last = $th.data('sort-dir');
        return last ? (last === ASC ? DESC : ASC) : ($th.data('sort-default') || ASC);
    }

    function sort_rows($table, column, compare, direction) {
        var sign = direction === ASC ? 1 : -1;
        $table.children('tbody').each(function () {
            var keyed = $(this).children('tr').get().map(function (row) {
                return {row: row, key: key_of(row, column)};
            });
            keyed.sort(function (a, b) { return sign * compare(a.key, b.key); });
            $(this).append(keyed.map(function (entry) { return entry.row; }));
        });
    }

    $.fn.stupidtable = function (compare_by_type) {
        return this.each(function () {
            var $table = $(this);
            $table.data('sort-functions', $.extend({}, COMPARE, compare_by_type));
            $table.off('click.tablesort').on('click.tablesort', 'thead th[data-sort]', function () {
                $(this).stupidsort();
            });
        });
    };

    $.fn.stupidsort = function (wanted) {
        return this.each(function () {
            var $th = $(this), $table = $th.closest('table');
            var compare = ($table.data('sort-functions') || COMPARE)[$th.attr('data-sort')];
            if (!compare) {
                return;
            }
            var told = {column: column_of($th), direction: direction_for($th, wanted), $th: $th, compare_fn: compare};
            $table.trigger('beforetablesort', told);
            /* Later, as asv's pages expect: they sort a table before they have put it into the page. */
            setTimeout(function () {
                sort_rows($table, told.column, compare, told.direction);
                $table.find('thead th').removeData('sort-dir').removeClass('sorting-asc sorting-desc');
                $th.data('sort-dir', told.direction).addClass('sorting-' + told.direction);
                $table.trigger('aftertablesort', told);
            }, 0);
        });
    };

    $.fn.stupidtable.dir = {ASC: ASC, DESC: DESC};
    $.fn.stupidtable.default_sort_fns = COMPARE;
})(jQuery);
