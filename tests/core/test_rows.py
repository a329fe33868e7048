"""The children of a folder that a handle keeps in memory are always those in the storage."""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import quire
from quire import ContentsPage, MemoryStorage, QuireError
from quire.core.reader import Reader, slot_of
from quire.core.records import PageRecord, page_key
from quire.core.state import State


def rows_of(state: State, folder: int) -> list[list[int]]:
    """Return the keys of the children of a folder, read in both directions, whole and from a place in the middle."""
    found = list(state.members(folder))
    middle = slot_of(found[len(found) // 2]) if found else None
    ways = [(None, False), (None, True), (middle, False), (middle, True)]
    return [[hash(page) for page in state.members(folder, after=after, reverse=reverse)] for after, reverse in ways]


def folders_of(reader: Reader) -> list[int]:
    roots = [page_key(number, 0) for number, _ in reader.live_segments()]
    pages = (page for root in roots for _, page in reader.subtree(reader.require_referenced(root, root)))
    return [page.key for page in pages if isinstance(page, PageRecord) and page.header.folder]


def change(ctx: quire.Context, chance: random.Random, step: int) -> None:
    """Make one random change of pages, messages or the view."""
    book = ctx.pages
    pages = [page.index for page in book.list_pages("mem")]
    folders = [page.index for page in book.list_pages("mem") if isinstance(page, ContentsPage)]
    one, other, folder = chance.choice(pages), chance.choice(pages), chance.choice(folders)
    operations: list[tuple[Callable[..., object], tuple[Any, ...]]] = [
        (ctx.user, (f"message {step} " + "word " * 40,)),
        (ctx.render, ()),
        (book.create_detail_page, (f"n {step}", "", "text", folder)),
        (book.create_contents_page, (f"f {step}", "", folder)),
        (book.create_contents_page, (f"g {step}", "", "mem-0", [one, other])),
        (book.move_page, (one, folder)),
        (book.move_page, (one, "mem-0", other)),
        (book.hide, (one,)),
        (book.remove_page, (one,)),
        (ctx.undo, (ctx.seq,)),
    ]
    operation, arguments = chance.choice(operations)
    with suppress(QuireError):
        operation(*arguments)


@pytest.mark.parametrize("seed", range(6))
def test_kept_rows_are_those_of_the_storage(seed: int) -> None:
    storage, chance = MemoryStorage(), random.Random(seed)
    with quire.open(storage, "c", budget=2_000) as ctx:
        for step in range(150):
            change(ctx, chance, step)
            state = ctx.pages._engine.state
            stored = state.reopen(storage)
            for folder in folders_of(stored):
                assert rows_of(state, folder) == rows_of(stored, folder), f"seed {seed}, step {step}"
