"""Defaults of the JSON form: the fields that a document leaves out.

| missing               | default                                                                                  |
|-----------------------|------------------------------------------------------------------------------------------|
| the type of a segment | SYSTEM for `sys` if it is READ_ONLY; USER for `usr`, or else for one with messages; CUSTOM |
| the parent of a page  | the folder that lists it, or the root of its segment                                      |
| `pinned`              | true for a leaf of a `sys` that had no type                                               |
"""

from typing import Any

from quire.model.pages import Lifecycle, Permission, SegmentType, format_index, parse_index


def complete_document(root: dict[str, Any]) -> None:
    """Add the missing fields to a document. Wrong values stay; `unmarshal` refuses them and names their place."""
    segments, pages = root.get("segments"), root.get("pages")
    if isinstance(segments, list) and isinstance(pages, dict):
        leaves = {index: form for index, form in pages.items() if isinstance(form, dict)}
        _fill_types([form for form in segments if isinstance(form, dict)], leaves)
        _fill_parents(leaves)


def _fill_types(segments: list[dict[str, Any]], pages: dict[str, dict[str, Any]]) -> None:
    """Set the types of the prompt and of the conversation, and pin the prompt. Names and descriptions do not count."""
    untyped = [form for form in segments if "type" not in form]
    for form in untyped:
        if form.get("id") == "sys" and form.get("permission") == Permission.READ_ONLY:
            form["type"] = SegmentType.SYSTEM
            for index, page in pages.items():
                if index.startswith("sys-") and page.get("type") == "DetailPage":
                    page.setdefault("pinned", page.get("lifecycle", 0) != Lifecycle.COLD_ARCHIVED)
    if not any(form.get("type") == SegmentType.USER for form in segments):
        talks = {index.rpartition("-")[0] for index, page in pages.items() if page.get("messages")}
        named = [form for form in untyped if form.get("id") == "usr"]
        for form in [*named, *(form for form in untyped if form.get("id") in talks)][:1]:
            form["type"] = SegmentType.USER


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
