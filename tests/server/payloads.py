"""150 texts that try to become markup or script, for the tests of the API and of the inspector."""

from itertools import product

_CALL = "window.__hit=1"
_TAGS = (
    "<script>{}</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<scr<script>ipt>{}</scr</script>ipt>",
    "<img src=x onerror={}>",
    "<img src=x onerror='{}'//",
    "<svg onload={}>",
    "<svg><script>{}</script></svg>",
    "<svg><animate onbegin={} attributeName=x dur=1s>",
    "<body onload={}>",
    "<iframe srcdoc='<script>parent.{}</script>'></iframe>",
    "<iframe src=javascript:parent.{}></iframe>",
    "<object data=javascript:{}></object>",
    "<embed src=javascript:{}>",
    "<a href=javascript:{}>look</a>",
    "<a href='java&#x0A;script:{}'>look</a>",
    "<form action=javascript:{}><input type=submit></form>",
    "<input autofocus onfocus={}>",
    "<details open ontoggle={}>",
    "<video><source onerror={}></video>",
    "<audio src=x onerror={}>",
    "<math><mtext><table><mglyph><style><img src=x onerror={}>",
    "<noscript><p title='</noscript><img src=x onerror={}>'>",
    "<template><script>{}</script></template>",
    "<style>@import 'javascript:{}';</style>",
    "<link rel=stylesheet href=data:,*%7Bx:expression({})%7D>",
    "<meta http-equiv=refresh content='0;url=javascript:{}'>",
    "<base href=javascript:{}//>",
    "<marquee onstart={}>x</marquee>",
    "<button onclick={}>x</button>",
    "<div style='animation-name:x' onanimationstart={}>",
)
_BREAKS = ("{}", "\"'>{}", "</textarea></title></style></script>{}", "]]>--></div>{}", "`${{}}{}")
_OTHERS = (
    "javascript:{}",
    "data:text/html,<script>{}</script>",
    "${{{}}}",
    "{{{{constructor.constructor('{}')()}}}}",
    "'-{}-'",
    '";{};//',
    "\\u003cscript\\u003e{}\\u003c/script\\u003e",
    "&lt;script&gt;{}&lt;/script&gt;",
    "%3Cscript%3E{}%3C/script%3E",
    "＜script＞{}＜/script＞",
    "<中文 onclick={}>点我</中文>",
    "\u202e<script>{}</script>",
    "<script>{}</script>\u2028",
    "+ADw-script+AD4-{}+ADw-/script+AD4-",
    "<![CDATA[<script>{}</script>]]>",
    "<!--<img src='--><img src=x onerror={}//'>",
    "<x onpointerenter={} style=position:fixed;inset:0>",
    "[look](javascript:{})",
    "![x](x'onerror='{})",
    "<xml:namespace prefix=t><import namespace=t implementation={}>",
    "__proto__",
    "constructor",
    "\u200b<img\u200bsrc=x onerror={}>",
    "<Window id='fake'><Actions onclick={}></Actions></Window>",
    "[usr-1 9] <img src=x onerror={}>",
)


def _all() -> tuple[str, ...]:
    wrapped = (around.replace("{}", tag, 1) for around, tag in product(_BREAKS, _TAGS))
    found = dict.fromkeys(text.replace("{}", _CALL) for text in (*_OTHERS, *wrapped))
    return tuple(found)[:150]


PAYLOADS: tuple[str, ...] = _all()
"""Each is one line of at most 200 characters, so that it can be a name. If one runs, it sets `window.__hit`."""
