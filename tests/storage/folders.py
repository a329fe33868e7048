"""Helpers for the tests of the file backend: a small context in a folder, and its readable files."""

import json
from pathlib import Path
from typing import Any

import quire
from quire import Context, ContextSystem, DetailPage, EstimateCounter, FileStorage


def context_in(storage: FileStorage, name: str = "c") -> Context:
    return quire.open(storage, name, counter=EstimateCounter())


def filled(storage: FileStorage) -> ContextSystem:
    system = context_in(storage).pages
    system.create_detail_page("first", "the first", "first text", "mem-0")
    folder = system.create_contents_page("folder", "", "mem-0")
    system.create_detail_page("second", "", "第二\n" * 3, folder, meta={"k": [1, "二"]})
    return system


def readable(store: Path) -> dict[str, tuple[dict[str, Any], str | None]]:
    """Return the readable files of the one context in a store: index → (header, text)."""
    found = {}
    for path in store.glob("*/pages/*/*.json"):
        header = json.loads(path.read_text())
        body = path.with_suffix(".txt")
        found[header["index"]] = (header, body.read_text() if body.exists() else None)
    assert len(list(store.glob("*/pages/*/*.txt"))) == sum(text is not None for _, text in found.values())
    return found


def agrees(store: Path, system: ContextSystem) -> None:
    """Assert that the readable files match the pages of the system."""
    found = readable(store)
    stored = {page.index: page for page in system.list_pages()}
    assert found.keys() == stored.keys()
    for index, page in stored.items():
        header, text = found[index]
        assert header["type"] == type(page).__name__
        for field in ("name", "description", "author", "meta", "pinned", "tokens"):
            assert header[field] == getattr(page, field), (index, field)
        assert header["parent"] == (page.parent or page.home)
        assert header["lifecycle"] == page.lifecycle.name
        assert header["visibility"] == page.visibility.name
        assert header["updatedAt"] == page.updated_at.isoformat()
        assert (text or "") == (system.detail(index) if isinstance(page, DetailPage) else "")
