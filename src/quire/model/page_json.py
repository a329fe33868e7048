"""A page as plain values, with the field names of the HTTP API and the command line."""

from typing import Any, Literal

from quire.model.pages import ContentsPage, DetailPage, Lifecycle, Page

State = Literal["active", "hot", "cold"]
STATES: dict[Lifecycle, State] = {
    Lifecycle.ACTIVE: "active",
    Lifecycle.HOT_ARCHIVED: "hot",
    Lifecycle.COLD_ARCHIVED: "cold",
}
"""The names of lifecycles in JSON."""


def page_to_dict(page: Page) -> dict[str, Any]:
    """Return the fields of a page without its body."""
    folder = isinstance(page, ContentsPage)
    return {
        "index": page.index,
        "name": page.name,
        "description": page.description,
        "kind": "contents" if folder else "detail",
        "form": page.form.name.lower() if isinstance(page, DetailPage) else "folder",
        "mark": page.mark.name.lower() if isinstance(page, DetailPage) else "none",
        "lifecycle": STATES[page.lifecycle],
        "effective": STATES[page.effective],
        "visibility": page.visibility.name.lower(),
        "pinned": bool(page.pinned),
        "author": page.author,
        "tokens": page.tokens,
        "summary_tokens": page.summary_tokens,
        "folder": folder,
        "children": page.child_count if isinstance(page, ContentsPage) else 0,
        "message_count": page.message_count if isinstance(page, DetailPage) else 0,
        "parent": page.parent,
        "home": page.home,
        "created": page.created_at,
        "updated": page.updated_at,
        "created_seq": page.created_seq,
        "changed_seq": page.changed_seq,
    }
