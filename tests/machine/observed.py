"""What a user sees of a context through public names, in the form that the model has."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from quire import ContentsPage, Context, DetailPage, Lifecycle, Visibility
from tests.machine.model import Model
from tests.machine.state import ACTIVE, COLD, HOT, TALK, Page, Said

Document = dict[str, Any]


class Tree(NamedTuple):
    """The tree of a document: the order in every folder that the model knows, and the chapters that folds made."""

    orders: dict[str, list[str]]
    chapters: dict[str, tuple[str, bool]]
    """The parent of each chapter, and whether it is open."""
    parents: dict[str, str]
    """The folder or chapter of each page of the conversation."""
    next_number: int
    """The next number of a page of the conversation."""
    hidden: frozenset[str]
    """The hidden pages of the conversation: a fold hides a page that has no neighbour to fold with."""


def read_tree(document: Document, model: Model) -> Tree:
    """Return the tree of a document. Cold pages are at the places to which they would return."""
    orders = _orders(document["pages"])
    chapters = {
        index: (page["parent"], _is_open(page))
        for index, page in document["pages"].items()
        if index in orders and index not in model.state.pages
    }
    parents = {index: folder for folder, order in orders.items() for index in order}
    flat = {folder: _flatten(order, orders, chapters) for folder, order in orders.items() if folder not in chapters}
    for name in model.state.segments:
        for index in reversed(model.lost(name)):  # it would return to the end of the root
            assert flat[model.root(name)].pop() == index
    numbers = {segment["id"]: segment["nextIndex"] for segment in document["segments"]}
    talk = ((index, page) for index, page in document["pages"].items() if index.rpartition("-")[0] == "usr")
    hidden = frozenset(index for index, page in talk if page["visibility"] == Visibility.HIDDEN)
    return Tree(flat, chapters, parents, numbers["usr"], hidden - chapters.keys())


def _is_open(page: Mapping[str, Any]) -> bool:
    return (page["lifecycle"], page["visibility"]) == (Lifecycle.ACTIVE, Visibility.EXPANDED)


def _orders(pages: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the order in every folder, chapters included, with cold pages where they would return to."""
    found = {folder: [*page["children"]] for folder, page in pages.items() if page["type"] == "ContentsPage"}
    homes = [(page["home"], index) for index, page in pages.items() if "home" in page]
    for place, folder, index in sorted((home.get("place", 1 << 40), home["parent"], index) for home, index in homes):
        found[folder].insert(place, index)
    return found


def _flatten(order: list[str], orders: Mapping[str, list[str]], chapters: Mapping[str, object]) -> list[str]:
    """Replace every chapter by what is in it."""
    found: list[str] = []
    for index in order:
        found += _flatten(orders[index], orders, chapters) if index in chapters else [index]
    return found


def is_folded(index: str, tree: Tree) -> bool:
    """Return whether a page is below a chapter that is not open."""
    above = tree.parents.get(index, "")
    while above in tree.chapters:
        parent, is_open = tree.chapters[above]
        if not is_open:
            return True
        above = parent
    return False


def check_tree(context: Context, model: Model, tree: Tree) -> None:
    """Check pages, segments, marks, batches and calls of a context against the model."""
    expected = {index: _expected_page(page, model, tree) for index, page in model.state.pages.items()}
    found = {
        page.index: _found_page(page, context, model)
        for page in context.pages.list_pages()
        if page.index not in tree.chapters
    }
    differing = {i: (found.get(i), expected.get(i)) for i in {**found, **expected} if found.get(i) != expected.get(i)}
    assert not differing, f"found and expected: {differing}"
    for folder in [index for index, page in model.state.pages.items() if page.folder and index != TALK]:
        assert [page.index for page in context.pages.children(folder)] == model.children(folder)
    for page in model.state.pages.values():
        if page.role and page.numbers:
            texts = [model.messages[number].content or "" for number in page.numbers]
            assert all(text in context.pages.detail(page.index) for text in texts)
    _check_segments(context, model)
    _check_talk(context, model)


def _found_page(page: ContentsPage | DetailPage, context: Context, model: Model) -> tuple[object, ...]:
    known = model.state.pages.get(page.index)
    own = known is None or not known.role or known.role == "window"  # quire writes the other texts itself
    leaf = page if isinstance(page, DetailPage) else None
    counted = None if known and known.role == "summary" else leaf
    return (
        page.parent if page.index.rpartition("-")[0] != "usr" else None,
        (page.lifecycle, page.effective, page.visibility, page.pinned),
        (page.name, page.description) if own and not (known and model.is_root(known)) else "",
        (counted.mark.name, counted.message_count) if counted else "",
        context.pages.detail(page.index) if own and leaf else "",
    )


def _expected_page(page: Page, model: Model, tree: Tree) -> tuple[object, ...]:
    own = not page.role or page.role == "window"
    effective = model.effective(page)
    if effective == ACTIVE and is_folded(page.index, tree):
        effective = HOT
    hidden = page.lifecycle == COLD or page.segment == "usr"
    return (
        None if hidden else page.parent,
        (page.lifecycle, effective, page.visibility, page.pinned),
        (page.name, page.description) if own and not model.is_root(page) else "",
        "" if page.folder or page.role == "summary" else (page.mark, len(page.numbers)),
        page.detail if own and not page.folder else "",
    )


def _check_segments(context: Context, model: Model) -> None:
    found = [(s.id, s.type, s.permission, s.max_capacity, s.name, s.description) for s in context.pages.list_segments()]
    expected = [(s.id, s.type, s.permission, s.capacity, s.name, s.description) for s in model.live_segments()]
    assert found == expected, f"{found}, expected {expected}"


def _check_talk(context: Context, model: Model) -> None:
    alive, talk, boundaries = model.alive(), context.conversation, model.boundaries()
    assert [said_of(message) for message in context.messages(all=True)] == [model.messages[n] for n in alive]
    marks = [model.mark_of(number) for number in alive]
    assert [talk.is_modified(index) for index in range(len(alive))] == [mark != "NONE" for mark in marks]
    assert [call.id for call in context.pending_calls()] == model.pending_calls()
    found = talk.mark_map()
    assert found.original_indices == list(range(len(alive)))
    assert found.batch_boundaries == boundaries
    assert found.boundary_to_batch == list(range(len(boundaries)))
    assert found.current_batch == len(boundaries) - 1


def messages_of(context: Context) -> list[tuple[int, Said]]:
    """Return the messages of the conversation, in place order."""
    return [(message.index, said_of(message)) for message in context.messages()]


def expected_messages(model: Model) -> list[tuple[int, Said]]:
    """Return what `messages_of` must return."""
    numbers = model.in_place()
    return list(zip(model.indices(numbers), (model.messages[number] for number in numbers), strict=True))


def said_of(message: Any) -> Said:
    """Return a message in the model's form."""
    calls = tuple(call.id for call in message.tool_calls)
    content = message.content if message.content is None else str(message.content)
    return Said(message.role, content, calls, message.tool_call_id, message.name)


def provider_form(said: Said) -> dict[str, Any]:
    """Return a message in OpenAI's form."""
    form: dict[str, Any] = {"role": said.role, "content": said.content}
    if said.calls:
        form["tool_calls"] = [call_form(call) for call in said.calls]
    if said.answers is not None:
        form["tool_call_id"] = said.answers
    return form


def call_form(call: str) -> dict[str, Any]:
    """Return a tool call in OpenAI's form."""
    return {"id": call, "type": "function", "function": {"name": "look", "arguments": "{}"}}
