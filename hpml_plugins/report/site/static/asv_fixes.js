/* Puts asv's pages right from outside, without changing its scripts: text that is shown as HTML, directions, a
   history of one commit, and room for the navbar.

   Loaded behind jQuery, Flot and asv.js and in front of asv's other scripts: what is registered with $(document).ready
   here runs when $.asv is there and its pages are not. */
(function ($) {
    'use strict';

    /* --- Text is text ------------------------------------------------------------------------------------------
       asv puts names, machine facts, code, units and tags into HTML as they are. Facts, code and tags, which it uses
       for nothing else, are escaped in its index. All HTML that jQuery is given loses what asv, Flot and Bootstrap
       never write: another element becomes its own text, another attribute is dropped. */

    var ELEMENTS = /^(a|b|br|button|canvas|div|h1|h3|i|label|li|p|small|span|strong|sup|table|tbody|td|th|thead|tr|ul)$/;
    var ATTRIBUTES = /^(class|colspan|href|id|role|style|title|type|target|align|valign|width|height|data-[a-z-]+|aria-[a-z]+)$/;

    function escaped(text) {
        return String(text === undefined || text === null ? '' : text)
            .replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;')
            .replace(/"/g, '&quot;').replace(/'/g, '&#39;');
    }

    function is_safe_address(address) {
        try {
            return /^(https?|file):$/.test(new URL(address, location.href).protocol);
        } catch (error) {
            return false;
        }
    }

    /* Where asv's own HTML leads out of this site: to the project and its commits, as asv.conf.json says. */
    var elsewhere = [];

    function is_own_address(address) {
        return is_safe_address(address) && [location.href.replace(/[^\/]*([?#].*)?$/, '')].concat(elsewhere).some(
            function (start) { return new URL(address, location.href).href.startsWith(start); });
    }

    /* Put in front of what may be the name of an event handler, which a browser reports even where nothing can run. */
    var MARK = '\ue000';

    $.htmlPrefilter = function (html) {
        var holder = document.createElement('template');
        holder.innerHTML = html.replace(/on(?=[a-z]+\s*=)/gi, MARK + '$&');
        holder.content.querySelectorAll('*').forEach(function (element) {
            if (!ELEMENTS.test(element.localName) || element.namespaceURI !== 'http://www.w3.org/1999/xhtml') {
                element.replaceWith(document.createTextNode(element.outerHTML));
                return;
            }
            Array.from(element.attributes).forEach(function (attribute) {
                var kept = ATTRIBUTES.test(attribute.name) && (attribute.name !== 'href' || is_own_address(attribute.value));
                if (!kept) {
                    element.removeAttribute(attribute.name);
                }
            });
        });
        return holder.innerHTML.replace(new RegExp(MARK, 'g'), '');
    };

    function escape_all(object) {
        var found = Object.create(null);
        Object.keys(object || {}).forEach(function (key) { found[escaped(key)] = escaped(object[key]); });
        return found;
    }

    function safe_index(index) {
        Object.keys(index.machines).forEach(function (name) { index.machines[name] = escape_all(index.machines[name]); });
        Object.keys(index.benchmarks).forEach(function (name) {
            var benchmark = index.benchmarks[name];
            benchmark.code = escaped(benchmark.code);
            if (benchmark.pretty_name) {
                benchmark.pretty_name = escaped(benchmark.pretty_name);
            }
        });
        var tags = Object.create(null);
        Object.keys(index.tags).forEach(function (tag) { tags[escaped(tag)] = index.tags[tag]; });
        index.tags = tags;
        ['project_url', 'show_commit_url'].forEach(function (key) {
            index[key] = is_safe_address(index[key]) ? index[key] : '#';
            elsewhere.push(new URL(index[key], location.href).href);
        });
        return index;
    }

    /* --- Which way is better -----------------------------------------------------------------------------------
       asv takes more for worse, whatever is measured. */

    function is_higher_better(name) {
        var benchmark = $.asv.main_json.benchmarks[name];
        return benchmark !== undefined && benchmark.direction === 'higher';
    }

    function fix_summary(table) {
        table.find('td.change').each(function () {
            var name = $(this).parent().find('a').attr('href').slice(1).split('?')[0];
            if (($.asv.main_json.benchmarks[name] || {}).direction === 'none') {  // neither is better
                $(this).removeClass('positive-change negative-change');
            }
            if (is_higher_better(name)) {
                $(this).filter('.positive-change, .negative-change').toggleClass('positive-change negative-change');
            }
        });
    }

    /* Calls `fix` with each table that asv puts somewhere below the element; before it is sorted, which asv does later. */
    function on_new_tables(id, fix) {
        new MutationObserver(function (changes) {
            changes.forEach(function (change) {
                $(change.addedNodes).find('table').addBack('table').each(function () { fix($(this)); });
            });
        }).observe(document.getElementById(id), {childList: true});
    }

    $.ajaxPrefilter('json', function (options) {
        if (/^index\.json\?/.test(options.url)) {
            options.converters = $.extend({}, options.converters, {
                'text json': function (text) { return safe_index(JSON.parse(text)); }
            });
        }
    });

    /* --- A history of one commit is a dot, where asv's grid draws a line between its commits -------------------- */

    var plot = $.plot;
    $.plot = $.extend(function (place, data, options) {
        if ($(place).is('.benchmark-plot') && data[0].data.length === 1) {
            options.series.points = {show: true, radius: 2};
        }
        return plot(place, data, options);
    }, plot);

    /* --- asv's grid asks for the summary also of a benchmark without any number, which has no file ------------------ */

    function without_empty(load) {
        return function (url) {
            var name = (/^graphs\/summary\/(.*)\.json$/.exec(url) || [])[1];
            return ($.asv.main_json.benchmarks[name] || {}).hpml_empty ? $.Deferred().resolve([]).promise() : load(url);
        };
    }

    /* --- The graphs of a benchmark are one file, graphs/NAME.json: the folder that asv asks in → the graph ------------- */

    function from_merged(load) {
        var newest = '', merged;
        return function (url) {
            var parts = url.split('/'), name = parts.pop();
            if (name === 'summary.json') {  // asv's list of a machine
                return load(url);
            }
            if (newest !== name || merged.state() === 'rejected') {
                newest = name;
                merged = load('graphs/' + name);
            }
            return merged.then(function (graphs) {
                var graph = graphs[decodeURIComponent(parts.slice(1).join('/'))];
                return graph || $.Deferred().reject().promise();
            });
        };
    }

    /* --- A graph opens with the machines that have one, which the index names; asv asks for those of all -------------- */

    function with_machines(params) {
        var machines = ($.asv.main_json.benchmarks[params.benchmark] || {}).hpml_machines || [];
        machines = machines.filter(function (name) { return $.asv.main_json.params.machine.indexOf(name) >= 0; });
        if (!params.machine && machines.length) {
            params.machine = machines;
        }
        return params;
    }

    /* --- Buttons and headings that asv makes of links without an address, and of labels, are reached by the keyboard --- */

    function make_reachable() {
        $('a[role="button"]:not([href], [tabindex]), label.nav-header:not([tabindex])').attr({tabindex: 0, role: 'button'});
        $('#range').attr('aria-label', 'Range of commits');
    }

    $(document).on('keydown', 'a[role="button"]:not([href]), label.nav-header', function (event) {
        if (event.key === 'Enter' || event.key === ' ') {
            event.preventDefault();
            this.click();
        }
    });

    $(document).ready(function () {
        $.asv.load_graph_data = without_empty(from_merged($.asv.load_graph_data));
        var register = $.asv.register_page;
        $.asv.register_page = function (name, show) {
            if (name === 'regressions') {  // ours knows which way is better
                show = function () { location.replace('changes.html'); };
            }
            register(name, name !== 'graphdisplay' ? show : function (params) { show(with_machines(params)); });
        };
        $('#error').on('show.bs.modal', function () {
            if (location.protocol === 'file:') {  // a browser lets no page read JSON from the disk
                $('#error-message').text('These pages of asv need a web server: asv preview. All other pages work from the disk.');
            }
        });
        new MutationObserver(make_reachable).observe(document.body, {childList: true, subtree: true});
        make_reachable();
        on_new_tables('summarylist-body', fix_summary);

        /* asv's panes begin 55 px from the top, below a navbar of one line. With our pages in it, or on a narrow screen,
           it has more lines: everything below moves down by what is more. */
        var navbar = document.getElementById('nav');
        document.body.style.position = 'relative';
        new ResizeObserver(function () {
            var more = Math.max(0, navbar.offsetHeight - 55);
            document.body.style.marginTop = more + 'px';
            document.body.style.height = 'calc(100vh - ' + more + 'px)';
        }).observe(navbar);
    });
})(window.jQuery);
