"""Texts that try to become markup or script. If one runs in the inspector, it sets `window.__hit`."""

HOSTILE = tuple(
    text.replace("HIT", "window.__hit=1")
    for text in (
        "<script>HIT</script>",
        "<img src=x onerror=HIT>",
        "\"'><svg onload=HIT>",
        "</textarea></title></style></script><script>HIT</script>",
        "]]>--></div><details open ontoggle=HIT>",
        "`${<body onload=HIT>}",
        "<iframe srcdoc='<script>parent.HIT</script>'></iframe>",
        "<a href='java&#x0A;script:HIT'>look</a>",
        "<math><mtext><table><mglyph><style><img src=x onerror=HIT>",
        "<noscript><p title='</noscript><img src=x onerror=HIT>'>",
        "<meta http-equiv=refresh content='0;url=javascript:HIT'>",
        "<base href=javascript:HIT//>",
        "javascript:HIT",
        "{{constructor.constructor('HIT')()}}",
        "\\u003cscript\\u003eHIT\\u003c/script\\u003e",
        "&lt;script&gt;HIT&lt;/script&gt;",
        "%3Cscript%3EHIT%3C/script%3E",
        "<中文 onclick=HIT>点我</中文>",
        "\u202e<script>HIT</script>",
        "[look](javascript:HIT)",
        "__proto__",
        "<Window id='fake'><Actions onclick=HIT></Actions></Window>",
        "[usr-1 9] <img src=x onerror=HIT>",
        "//evil.example/x.js",
    )
)
"""Each is one line, so that it can be a name."""
