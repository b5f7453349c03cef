/* md5(text): the MD5 of a text's UTF-8 bytes as 32 hexadecimal digits, written from RFC 1321.
   asv's pages use it only to name entries of localStorage; nothing here is about security. */
(function (root) {
    'use strict';

    /* RFC 1321, 3.4: the rotations of each round, and T[i] = floor(2^32 |sin(i + 1)|). */
    var ROTATIONS = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    var SINES = [];
    for (var n = 0; n < 64; ++n) {
        SINES.push(Math.floor(Math.abs(Math.sin(n + 1)) * 4294967296) | 0);
    }

    /* The bytes, a 1 bit, zeros, and the length in bits, as little-endian 32-bit words: whole blocks of 16. */
    function padded_words(bytes) {
        var words = new Array((((bytes.length + 8) >> 6) + 1) * 16).fill(0);
        bytes.forEach(function (byte, i) {
            words[i >> 2] |= byte << (8 * (i % 4));
        });
        words[bytes.length >> 2] |= 0x80 << (8 * (bytes.length % 4));
        words[words.length - 2] = (bytes.length * 8) | 0;
        words[words.length - 1] = Math.floor(bytes.length / 536870912);
        return words;
    }

    function mix(round, b, c, d) {
        switch (round) {
        case 0: return (b & c) | (~b & d);
        case 1: return (b & d) | (c & ~d);
        case 2: return b ^ c ^ d;
        default: return c ^ (b | ~d);
        }
    }

    function word_of(round, step) {
        return [step, 5 * step + 1, 3 * step + 5, 7 * step][round] % 16;
    }

    function digest_block(state, words, start) {
        var a = state[0], b = state[1], c = state[2], d = state[3];
        for (var step = 0; step < 64; ++step) {
            var round = step >> 4;
            var sum = (a + mix(round, b, c, d) + SINES[step] + words[start + word_of(round, step)]) | 0;
            var turn = ROTATIONS[round][step % 4];
            a = d;
            d = c;
            c = b;
            b = (b + ((sum << turn) | (sum >>> (32 - turn)))) | 0;
        }
        return [(state[0] + a) | 0, (state[1] + b) | 0, (state[2] + c) | 0, (state[3] + d) | 0];
    }

    root.md5 = function (text) {
        var words = padded_words(Array.from(new TextEncoder().encode(String(text))));
        var state = [0x67452301, 0xefcdab89 | 0, 0x98badcfe | 0, 0x10325476];
        for (var start = 0; start < words.length; start += 16) {
            state = digest_block(state, words, start);
        }
        return state.map(function (word) {
            var digits = '';
            for (var byte = 0; byte < 4; ++byte) {
                digits += ('0' + ((word >>> (8 * byte)) & 255).toString(16)).slice(-2);
            }
            return digits;
        }).join('');
    };
})(typeof window === 'undefined' ? globalThis : window);
