"""Texts of the well-known shapes that make a page run a script where text is taken for something
else.

Each that runs says so by `alert`. Sources: OWASP, Cross Site Scripting Filter Evasion Cheat Sheet
and CSV Injection; HTML Living Standard, parsing states.
"""

from __future__ import annotations

from urllib.parse import quote

_RTL, _LINE, _PARAGRAPH, _ZERO = "\u202e", "\u2028", "\u2029", "\u200b"

SCRIPTS: tuple[str, ...] = (
    # elements
    "<script>alert(1)</script>",
    "<ScRiPt/x>alert(2)</sCrIpT >",
    "<script src=data:,alert(3)></script>",
    "<img src=x onerror=alert(4)>",
    "<img src=x onerror=&#97;lert(5)>",
    "<svg onload=alert(6)>",
    "<svg/onload=alert(7)>",
    "<svg><script>alert(8)</script></svg>",
    "<svg><animate onbegin=alert(9) attributeName=x dur=1s>",
    "<svg><a><set attributeName=href to=javascript:alert(10)><text y=20>x</text></a></svg>",
    "<iframe srcdoc='<script>parent.alert(11)</script>'>",
    "<iframe src=javascript:alert(12)>",
    "<object data=javascript:alert(13)>",
    "<embed src=javascript:alert(14)>",
    "<details open ontoggle=alert(15)>",
    "<video><source onerror=alert(16)></video>",
    "<audio src=x onerror=alert(17)>",
    "<input autofocus onfocus=alert(18)>",
    "<body onload=alert(19)>",
    "<marquee onstart=alert(20)>",
    "<style onload=alert(21)></style>",
    "<style>@import 'javascript:alert(22)';</style>",
    "<link rel=stylesheet href=data:, onload=alert(23)>",
    "<base href=javascript:alert(24)//>",
    "<meta http-equiv=refresh content='0;url=javascript:alert(25)'>",
    "<form action=javascript:alert(26)><button>x</button></form>",
    "<a href=javascript:alert(27)>x</a>",
    "<a href='java\tscript:alert(28)'>x</a>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(29)>",
    "<noscript><p title='</noscript><img src=x onerror=alert(30)>'>",
    "<p style='background:url(javascript:alert(31))'>",
    # out of an attribute, out of an element whose content is not HTML, out of a comment
    '" onmouseover=alert(32) x="',
    "' onfocus=alert(33) autofocus x='",
    '"><svg onload=alert(34)>',
    "` onerror=alert(35) x=`",
    "</script><script>alert(36)</script>",
    "</style><script>alert(37)</script>",
    "</title><script>alert(38)</script>",
    "</textarea></select></option><script>alert(39)</script>",
    "--><script>alert(40)</script><!--",
    "]]><script>alert(41)</script><![CDATA[",
    # data in a script, templates, addresses
    '"};alert(42);//',
    "';alert(43);'",
    '</script><!--<script>{"a": "alert(44)"}',
    "${alert(45)}",
    "{{constructor.constructor('alert(46)')()}}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{{x}}{% endfor %}",
    "<%= 7 * 7 %>#{7*7}[[7*7]]",
    "javascript:alert(47)",
    "JaVaScRiPt:alert(48)//%0aalert(48)",
    "data:text/html,<script>alert(49)</script>",
    "//evil.example/x.js",
    "__proto__",
    "constructor",
    "%3Cscript%3Ealert(50)%3C/script%3E",
    "&lt;script&gt;alert(51)&lt;/script&gt;",
    "&#x3c;img src=x onerror=alert(52)&#x3e;",
    "+ADw-script+AD4-alert(53)+ADw-/script+AD4-",
    # formulas of spreadsheets
    '=HYPERLINK("//evil.example","x")',
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "+1+1",
    "\t=1+1",
    # characters that lines, scripts and the direction of text stumble on
    f"{_LINE}alert(54){_PARAGRAPH}",
    f"{_RTL}<img src=x onerror=alert(55)>",
    f"\u2066\u202e\u2067{_ZERO}\ufeff",
    "a\u0301\u0488" * 20,
    "\x1b]0;title\x07\x08",
)

#: What leads a reader to another host, which no policy of a page can forbid: the text itself must
#: not become markup.
LEADING = (
    "<a href=//evil.example/a style='position:fixed;top:0;left:0;width:100%;height:100%'>x</a>",
    "<!--><meta http-equiv=refresh content='0;url=//evil.example/b'>-->",
    "<!-- --!><meta http-equiv=refresh content='0;url=//evil.example/c'>",
)

TEXTS = SCRIPTS + LEADING

#: Those that are names of git references.
REFERENCES = (
    "<svg/onload=alert(60)>",
    '"><img/src=x/onerror=alert(61)>',
    "</script><script>alert(62)</script>",
    "'onmouseover='alert(63)",
    "\u202eright-to-left",
    "${alert(64)}",
)


def in_address(text: str) -> str:
    """As part of an address of the site."""
    return quote(text, safe="")
