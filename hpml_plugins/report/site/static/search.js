/* The search over the whole site, on every page of ours. Its index is fetched when somebody first goes to the field. */
(function () {
    'use strict';
    var MOST = 40;
    var form = document.getElementById('search-form'), field = document.getElementById('search');
    var found = document.getElementById('found'), list = document.getElementById('search-list');
    var message = document.getElementById('search-message');
    var own_page = /(^|\/)search\.html$/.test(location.pathname);
    var index = null, asked = null;

    function load() {
        asked = asked || hpml.read('search-index.js').then(function (read) {
            index = spell(read);
        }).catch(function () {
            asked = null;
            message.textContent = 'The index of this site could not be loaded.';
            found.hidden = false;
            throw new Error('no index');
        });
        return asked;
    }

    /* Everything as {kind, title, more, address, text}; text is what is searched. */
    function spell(read) {
        var all = read.entries.map(function (each) {
            return {kind: each[0], title: each[1], more: each[2], address: each[3]};
        });
        read.benchmarks.forEach(function (each) {
            all.push({kind: 'benchmark', title: each[1], more: each[2], address: each[0]});
        });
        read.benchmarks.forEach(function (each) {
            read.points[each[3]].forEach(function (point) {
                var place = encodeURIComponent(point.replaceAll(', ', '&')).replace(/%(3D|26)/g, decodeURIComponent);
                all.push({kind: 'point', title: each[1] + ': ' + point, more: each[2], address: each[0] + '?' + place});
            });
        });
        all.forEach(function (each) { each.text = (each.kind + ' ' + each.title + ' ' + each.more).toLowerCase(); });
        all.short = Boolean(read.short);
        return all;
    }

    function matches(words) {
        var title_first = [], others = [];
        index.forEach(function (each) {
            if (words.every(function (word) { return each.text.indexOf(word) >= 0; })) {
                var title = each.title.toLowerCase();
                (words.every(function (word) { return title.indexOf(word) >= 0; }) ? title_first : others).push(each);
            }
        });
        return title_first.concat(others);
    }

    function show() {
        var words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
        if (!words.length) {
            list.replaceChildren();
            message.textContent = '';
            found.hidden = true;
            return;
        }
        var all = matches(words);
        list.replaceChildren.apply(list, all.slice(0, MOST).map(function (each) {
            var item = document.createElement('li'), link = document.createElement('a'), kind = document.createElement('small');
            kind.textContent = ' ' + each.kind + (each.kind === 'chart' || each.kind === 'benchmark' ? ' · ' + each.more : '');
            link.href = each.address;
            link.append(each.title, kind);
            item.append(link);
            return item;
        }));
        message.textContent = (all.length === 0 ? 'No results for “' + field.value.trim() + '”.' : all.length > MOST ?
            'Showing ' + MOST + ' of ' + all.length + '. Add a word to narrow the search.' : all.length + ' found') +
            (index.short ? ' Points are not searched: there are too many.' : '');
        found.hidden = false;
    }

    function search() {
        if (own_page) {
            history.replaceState(null, '', field.value ? '#' + new URLSearchParams({q: field.value}) : location.pathname);
        }
        return load().then(show).catch(function () {});
    }

    function close() {
        found.hidden = true;
    }

    function links() {
        return Array.from(list.querySelectorAll('a'));
    }

    field.addEventListener('focus', function () {
        load().catch(function () {});
    });
    field.addEventListener('input', search);
    form.addEventListener('submit', function (event) {
        event.preventDefault();
        search().then(function () {
            var first = links()[0];
            if (first && field.value.trim()) {
                first.click();
            }
        });
    });
    form.addEventListener('click', function (event) {
        if (event.target.closest('a')) {
            close();
        }
    });
    form.addEventListener('keydown', function (event) {
        var all = links(), at = all.indexOf(document.activeElement);
        if (event.key === 'Escape') {
            field.focus();
            close();
        } else if (event.key === 'ArrowDown' && found.hidden) {
            event.preventDefault();
            search();
        } else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
            event.preventDefault();
            var next = at + (event.key === 'ArrowDown' ? 1 : -1);
            (next < 0 ? field : all[Math.min(next, all.length - 1)] || field).focus();
        }
    });
    document.addEventListener('focusin', function (event) {
        if (!form.contains(event.target)) {
            close();
        }
    });
    document.addEventListener('click', function (event) {
        if (!form.contains(event.target)) {
            close();
        }
    });
    document.addEventListener('keydown', function (event) {
        var typing = /INPUT|SELECT|TEXTAREA/.test(event.target.tagName);
        if (event.key === 's' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
            event.preventDefault();
            field.focus();
            field.select();
        }
    });
    form.hidden = false;
    if (own_page) {
        field.value = new URLSearchParams(location.hash.slice(1)).get('q') || '';
        field.focus();
        search();
    }
})();
