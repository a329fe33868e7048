"""Errors in the words of a model's tools: what they say of the developer's operations, it could not act on."""

import re
from collections.abc import Iterable

_TOOL_OF = {
    "restore": "expand_details",
    "expand": "expand_details",
    "hide": "hide_details",
    "children": "read_page",
    "detail": "read_page",
    "get_page": "read_page",
    "update_page": "write_page",
    "set_detail": "write_page",
    "create_detail_page": "write_page",
    "create_contents_page": "write_page",
    "add_segment": "segment",
    "remove_segment": "segment",
    "set_permission": "segment",
}
"""What errors call an operation, and the tool that a model has for it."""

_PHRASES = (
    (r"it holds messages; conversation\.replace\(\) does", "it holds messages, which stay as they are: write a note"),
    (r"set the detail of", "change the text of"),
    (r"it is a DetailPage; a ContentsPage is needed", "it is no folder; name a folder"),
    (r"it is a ContentsPage; give it to a DetailPage", "it is a folder; give it to a page in it"),
    (r"is a DetailPage and has no children", "is no folder"),
    (r"\ba ContentsPage\b", "a folder"),
    (r"\ba DetailPage\b", "a page with a text"),
    (r"is pinned\. unpin\([^()]*\) first", "is pinned, and only the developer unpins it"),
    (r" Give them with tool_result\(\), or give them up with close_calls\(\)\.", " Try again when they are there."),
    (r" undo\(\d+\) brings them back\.", ""),
    (r"system\(text\) changes it", "only the developer changes it"),
    (r": refresh\(\) and retry", ": call this again"),
    (r"none yet: windows\.register\(\) adds one", "none"),
    (r"none yet: add one with add_segment\(\)", "none"),
    (r": add_segment\(Segment\([^()]*\)\)", ""),
    (r"^children (?=is |names )", "pages "),
    (r"^description (?=is |has |')", "summary "),
    (r"^detail (?=is |has |')", "text "),
)
_COMPILED = tuple((re.compile(found), said) for found, said in _PHRASES)
_OPERATION = re.compile(r"operation '(\w+)'")
_CALL = re.compile(r"\b(?<!\.)([a-z_]+)\(")


def worded(text: str, tools: Iterable[str], prefix: str) -> str:
    """An error's text with the names of the tools that a model has, each with its prefix."""
    known = {name: name for name in tools} | _TOOL_OF
    for found, said in _COMPILED:
        text = found.sub(said, text)
    text = _OPERATION.sub(lambda match: f"operation '{_named(match[1], known, prefix)}'", text)
    return _CALL.sub(lambda match: f"{_named(match[1], known, prefix)}(", text)


def _named(name: str, known: dict[str, str], prefix: str) -> str:
    return prefix + known[name] if name in known else name
