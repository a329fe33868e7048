"""A strict parser of quire's elements in a view: blocks with the context's key, their lines, and windows."""

import re
from typing import Any, NamedTuple

_HEAD = re.compile(r"\[(?P<key>[^\[\]]+)\] (?P<title>.*):\Z")
_FOLDED = re.compile(r"\[(?P<index>[a-z0-9_…-]+) (?P<size>\d+p?)\] (?P<rest>.+)\Z")
_OPEN = re.compile(r"\[(?P<index>[a-z0-9_-]+)\] (?P<name>.+)\Z")
_ABOUT = re.compile(r"(?P<kind>Opened|Note) \[(?P<index>[a-z0-9_-]+)\] (?P<name>.+)\Z")
_SEGMENT = re.compile(r"(?:New in )?(?P<segment>[a-z0-9_-]*): .+\Z")
_GATHERED = re.compile(r"\[(?P<key>[^\[\]]+)\] \[(?P<index>[a-z0-9_…-]+) (?:\d+ segments )?\d+p\] .+\Z")
_ARCHIVED = re.compile(r"\((\d+) archived\)\Z")
_WINDOW = re.compile(r'<Window id="(?P<id>[^"<>]*)" key="(?P<key>[^"<>]*)"[^<>]*>')


class Element(NamedTuple):
    """An element: a folded line, an open page, a quoted page, a segment, a window, a count of archived pages."""

    kind: str
    what: str


def elements(form: list[dict[str, Any]], key: str) -> list[Element]:
    """Return quire's elements of a view in OpenAI's form, in order."""
    found: list[Element] = []
    for message in form:
        if message["role"] == "user" and isinstance(message.get("content"), str):
            found += _in_message(message["content"], key)
    return found


def _in_message(text: str, key: str) -> list[Element]:
    """Parse a message that begins with a head or a window with the key. Every line of it is then checked."""
    window = _WINDOW.match(text)
    if window and window["key"] == key:
        assert text.rstrip().endswith("</Window>"), "a window ends where its message does"
        return [Element("window", window["id"])]
    first, *lines = text.splitlines() or [""]
    gathered = _GATHERED.match(first)
    if gathered and gathered["key"] == key:
        return [Element("line", gathered["index"])]
    head = _HEAD.match(first)
    if head is None or head["key"] != key:
        return []
    return [*_title(head["title"]), *(element for line in lines for element in _line(line))]


def _title(title: str) -> list[Element]:
    about = _ABOUT.match(title)
    if about:
        return [Element(about["kind"].lower(), about["index"])]
    segment = _SEGMENT.match(title)
    if segment:
        return [Element("segment", segment["segment"])]
    assert title == "Folded earlier", title
    return []


def _line(line: str) -> list[Element]:
    if not line.startswith(("[", "(")):
        return []  # a line of a body
    archived, folded, opened = _ARCHIVED.match(line), _FOLDED.match(line), _OPEN.match(line)
    if archived:
        return [Element("archived", archived[1])]
    if folded:
        return [Element("line", folded["index"])]
    assert opened, f"a line that is neither ours nor quoted: {line!r}"
    return [Element("open", opened["index"])]
