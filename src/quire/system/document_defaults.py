"""Defaults of the JSON form: infer the fields that a document leaves out, as the examples in the design documents do.

| missing                 | inferred                                                                                  |
|-------------------------|-------------------------------------------------------------------------------------------|
| the type of a segment   | SYSTEM if it is READ_ONLY and named like a prompt; USER if the conversation belongs to it  |
| the parent of a page    | the folder that lists it, or the root of its segment                                      |
| `pinned`                | true for a leaf of a segment whose type was inferred as SYSTEM                             |
"""

import re
from typing import Any

from quire.model.pages import Lifecycle, Permission, SegmentType, format_index, parse_index

_PROMPT = r"(?i)\bsys(tem)?\b|prompt|instruction|系统|提示"
_CONVERSATION = r"(?i)\bu(se)?r\b|conversation|dialog|chat|message|对话|会话|用户"


def complete_document(root: dict[str, Any]) -> None:
    """Add the missing fields to a document. Wrong values stay; `unmarshal` refuses them and names their place."""
    segments, pages = root.get("segments"), root.get("pages")
    if not isinstance(segments, list) or not isinstance(pages, dict):
        return
    forms = [form for form in segments if isinstance(form, dict) and isinstance(form.get("id"), str)]
    leaves = {index: form for index, form in pages.items() if isinstance(form, dict)}
    prompts = _fill_types(forms, leaves)
    _fill_parents(leaves)
    for index, form in leaves.items():
        parts = parse_index(index)
        if parts is not None and parts.segment in prompts and form.get("type") == "DetailPage":
            form.setdefault("pinned", form.get("lifecycle", 0) != Lifecycle.COLD_ARCHIVED)


def _fill_types(segments: list[dict[str, Any]], pages: dict[str, dict[str, Any]]) -> set[str]:
    """Set missing types; return the ids of the segments that became SYSTEM."""
    prompts: set[str] = set()
    for form in segments:
        if "type" not in form and form.get("permission") == Permission.READ_ONLY and _is_named(form, _PROMPT):
            form["type"] = SegmentType.SYSTEM
            prompts.add(form["id"])
    if any(form.get("type") == SegmentType.USER for form in segments):
        return prompts
    open_ones = [
        form
        for form in segments
        if "type" not in form and form.get("permission", 1) in (Permission.READ_WRITE, Permission.SYSTEM_MANAGED)
    ]
    talks = {parts.segment for index, form in pages.items() if form.get("messages") and (parts := parse_index(index))}
    conversation = next((form for form in open_ones if form["id"] in talks), None)
    conversation = conversation or next((form for form in open_ones if _is_named(form, _CONVERSATION)), None)
    if conversation is not None:
        conversation["type"] = SegmentType.USER
    return prompts


def _is_named(form: dict[str, Any], pattern: str) -> bool:
    names = (form.get(key) for key in ("id", "name", "description"))
    return any(isinstance(name, str) and re.search(pattern, name) for name in names)


def _fill_parents(pages: dict[str, dict[str, Any]]) -> None:
    """Set missing parents. Add a page that no folder lists to the children of its root, if the root lists any."""
    listing = {
        child: index
        for index, form in pages.items()
        if isinstance(form.get("children"), list)
        for child in form["children"]
        if isinstance(child, str)
    }
    for index, form in pages.items():
        parts = parse_index(index)
        if parts is None or parts.number == 0 or "parent" in form or form.get("lifecycle") == Lifecycle.COLD_ARCHIVED:
            continue
        root = format_index(parts.segment, 0)
        form["parent"] = listing.get(index, root)
        children = pages.get(root, {}).get("children")
        if index not in listing and isinstance(children, list):
            children.append(index)
