"""The actions of a random walk: messages of every shape, edits of the record, changes of pages, agents, windows."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import quire
from quire import DetailPage, Permission, QuireError, Segment
from tests.view_laws.walks import ARGUMENTS, PRIVATE_WORD, Step, Walk

Values = dict[str, Any]
RECORD = ("insert", "delete", "replace", "compress", "undo")
STEPS: dict[str, Step] = {}


def new_walk(number: int, *, without: tuple[str, ...] = (), **options: Any) -> Walk:
    """Return a walk with all actions but some."""
    return Walk(number, {name: each for name, each in STEPS.items() if name not in without}, **options)


def step(*, often: int = 0, arrives: bool = False) -> Callable[[Callable[[Walk], object]], Callable[[Walk], object]]:
    """Add a function as an action with its name."""

    def add(function: Callable[[Walk], object]) -> Callable[[Walk], object]:
        STEPS[function.__name__.replace("_", " ")] = Step(function, often, arrives)
        return function

    return add


# Messages


@step(often=3, arrives=True)
def user(walk: Walk) -> None:
    walk.ctx.user(walk.content())


@step(often=2, arrives=True)
def assistant(walk: Walk) -> None:
    walk.ctx.assistant(walk.text())


@step(often=1, arrives=True)
def calls(walk: Walk) -> None:
    walk.ctx.assistant(walk.chance.choice((None, "", walk.text(5))), tool_calls=walk.calls())


@step(often=2, arrives=True)
def exchange(walk: Walk) -> None:
    """Add calls with all their results, in any order, before the next view."""
    calls(walk)
    waiting = walk.ctx.pending_calls()
    for call in walk.chance.sample(waiting, len(waiting)):
        walk.ctx.tool_result(call.id, walk.chance.choice((walk.text(), walk.text(3 * walk.long), "", {"found": 1})))


@step(often=2, arrives=True)
def result(walk: Walk) -> None:
    waiting = walk.ctx.pending_calls()
    known = [call.id for call in waiting] or ["c1", "c2", "c3"]
    walk.edited = walk.edited or not waiting  # a late result changes the middle of the view
    walk.ctx.tool_result(walk.chance.choice(known), walk.chance.choice((walk.text(), "", "rain")))


@step(often=1, arrives=True)
def late_system(walk: Walk) -> None:
    if any(message.role != "system" for message in walk.ctx.messages()):  # otherwise it is one more prompt
        block = {"type": "text", "text": walk.text(8)}
        walk.ctx.add({"role": "system", "content": walk.chance.choice((block["text"], [block]))})


@step(often=1, arrives=True)
def named(walk: Walk) -> None:
    walk.ctx.add({"role": "user", "name": walk.chance.choice(("ada", "张伟")), "content": walk.text()})


@step(often=1, arrives=True)
def blocks(walk: Walk) -> None:
    """Add a turn in Anthropic's form: text, a call, and its result with text after it."""
    call = f"toolu_{walk.number}"
    said = {"type": "text", "text": walk.text(6)}
    use = {"type": "tool_use", "id": call, "name": "look", "input": {"q": walk.text(2)}}
    walk.ctx.add({"role": "assistant", "content": walk.chance.choice(([said], [use], [said, use]))})
    if walk.ctx.pending_calls():
        answer = {"type": "tool_result", "tool_use_id": call, "content": walk.text()}
        words = [{"type": "text", "text": walk.text(5)}] if walk.chance.random() < 0.5 else []
        walk.ctx.add({"role": "user", "content": [answer, *words]})


@step(often=1)
def responses(walk: Walk) -> None:
    """Add items of the Responses API: a message, a call and its output. They may continue a message."""
    call = f"call_{walk.number}"
    items: list[Values] = [
        {"role": "assistant", "content": walk.text(6)},
        {"type": "function_call", "call_id": call, "name": "look", "arguments": walk.chance.choice(ARGUMENTS)},
        {"type": "function_call_output", "call_id": call, "output": walk.text()},
    ]
    walk.ctx.add(walk.chance.choice((items, items[1:], items[:1], items[:2])))


@step(often=1)
def import_broken(walk: Walk) -> None:
    """Import a broken history: orphans, duplicates, missing ids, blocks that are not of their role."""
    function = {"name": "f", "arguments": "{}"}
    called = [{"id": i, "type": "function", "function": function} for i in walk.chance.choices(("x", "y", "x"), k=2)]
    said = {"type": "text", "text": walk.text(3)}
    use = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    broken: list[Values] = [
        {"role": "tool", "tool_call_id": "nobody", "content": "orphan"},
        {"role": "user", "content": walk.text()},
        {"role": "assistant", "content": None, "tool_calls": called},
        {"role": "tool", "tool_call_id": "x", "content": "found"},
        {"role": "tool", "tool_call_id": "x", "content": "found again"},
        {"role": "assistant", "content": ""},
        {"role": "system", "content": walk.text(4)},
        {"role": "user", "content": [said, use]},
        {"role": "user", "content": [{"type": "thinking", "thinking": "Well", "signature": "c2ln"}, said]},
        {"role": "assistant", "content": [said, {"type": "tool_result", "tool_use_id": "nobody", "content": "found"}]},
        {"role": "user", "content": [said, {"type": "image_url"}]},
        {"role": "assistant", "function_call": {"name": "look", "arguments": "{}"}},
    ]
    walk.ctx.import_messages(walk.chance.sample(broken, walk.chance.randint(1, len(broken))))


@step(often=1, arrives=True)
def close_calls(walk: Walk) -> None:
    walk.ctx.close_calls()


@step()
def prompt(walk: Walk) -> None:
    walk.ctx.system(walk.text(10), name=walk.chance.choice((None, None, None, "rules")))


# Edits of the record


@step()
def insert(walk: Walk) -> None:
    role = walk.chance.choice(("user", "assistant", "system"))
    walk.ctx.conversation.insert({"role": role, "content": walk.text()}, at=walk.indices()[0])


@step()
def replace(walk: Walk) -> None:
    role = walk.chance.choice(("user", "assistant"))
    walk.ctx.conversation.replace(walk.indices()[:1], {"role": role, "content": walk.text()})


@step()
def delete(walk: Walk) -> None:
    walk.ctx.conversation.delete(walk.indices())


@step()
def compress(walk: Walk) -> None:
    walk.ctx.conversation.compress(walk.indices())


@step()
def batch(walk: Walk) -> None:
    walk.ctx.conversation.batch_start(walk.chance.choice((None, walk.indices()[0])))
    _some(walk, 0)


@step()
def end_batch(walk: Walk) -> None:
    walk.ctx.conversation.batch_end(0)


@step()
def commit_batch(walk: Walk) -> None:
    walk.ctx.conversation.batch_commit()


@step()
def temporary(walk: Walk) -> None:
    with walk.ctx.temporary():
        _some(walk, 1)
        walk.looked = True
        with suppress(quire.IrreducibleFloor):
            view = walk.ctx.render()
            assert view.tokens <= view.budget


def _some(walk: Walk, least: int) -> None:
    for _ in range(walk.chance.randint(least, 3)):
        walk.act(walk.chance.choice(("user", "user", "assistant", "exchange", "calls", "result", *RECORD)))


@step()
def undo(walk: Walk) -> None:
    walk.ctx.undo(walk.chance.randint(max(1, walk.ctx.seq - 12), walk.ctx.seq))


@step()
def undo_fold(walk: Walk) -> None:
    folds = [entry.seq for entry in walk.ctx.history(operation="fold")]
    if folds:
        walk.ctx.undo(walk.chance.choice((folds[-1], walk.chance.choice(folds))))


@step()
def rollback(walk: Walk) -> None:
    walk.ctx.rollback(max(1, walk.ctx.seq - walk.chance.randint(0, 6)))


@step()
def cleanup(walk: Walk) -> None:
    walk.ctx.conversation.cleanup()


# Changes of pages


@step()
def change_page(walk: Walk) -> None:
    """Expand, hide, archive, restore, recall, pin, unpin or remove a page."""
    pages = walk.ctx.pages
    name = walk.chance.choice(("expand", "hide", "hide", "archive", "restore", "recall", "pin", "unpin", "remove_page"))
    segments = {"unpin": ("usr", "usr", "sys"), "pin": ("usr",)}.get(name, ("usr", "usr", "mem"))
    getattr(pages, name)(walk.page(*segments))


@step()
def archive_cold(walk: Walk) -> None:
    walk.ctx.pages.archive(walk.page("usr", "mem"), cold=True)


@step()
def move(walk: Walk) -> None:
    """Move within the conversation, into one of its folders, or into the notes."""
    target = walk.chance.choice(("usr-0", "usr-0", walk.page(), "mem-0"))
    walk.ctx.pages.move_page(walk.page(), target, walk.chance.choice((None, walk.page())))


@step()
def gather(walk: Walk) -> None:
    pages = sorted({walk.page() for _ in range(3)})
    folder = walk.ctx.pages.create_contents_page("Part", walk.text(4), "usr-0", pages)
    if walk.chance.random() < 0.5:
        walk.ctx.pages.hide(folder)


@step()
def note(walk: Walk) -> None:
    parent = walk.chance.choice(("mem-0", "mem-0", "mem-0", walk.page("mem"), "win-0", "usr-0"))
    pinned = walk.chance.random() < 0.1
    walk.ctx.pages.create_detail_page("note", walk.text(4), walk.text(), parent, pinned=pinned)


@step()
def set_detail(walk: Walk) -> None:
    walk.ctx.pages.set_detail(walk.page("mem"), walk.text())


@step()
def reserve(walk: Walk) -> None:
    """Reserve an index, or add the page of an index that was reserved before."""
    if walk.reserved is None:
        walk.reserved = walk.ctx.pages.generate_index("mem")
        return
    index, walk.reserved = walk.reserved, None
    walk.ctx.pages.add_page(DetailPage(index=index, name="reserved", parent="mem-0"), walk.text())


@step(often=1)
def agent(walk: Walk) -> None:
    """Open, hide, write, change, move or remove a page as an agent."""
    page, into = walk.page("usr", "mem"), walk.chance.choice(("mem-0", walk.page("mem")))
    acting = walk.ctx.as_agent(walk.chance.choice((walk.ctx.pages.actor, "agent")))
    actions: tuple[Callable[[], object], ...] = (
        lambda: walk.ctx.tools.call("expand_details", {"page": page}),
        lambda: acting.hide_details(page),
        lambda: acting.create_detail_page("note", walk.text(4), walk.text(), into),
        lambda: acting.create_contents_page("part", "", "mem-0", sorted({walk.page("mem"), walk.page("mem")})),
        lambda: acting.update_page(page, description=walk.text(4)),
        lambda: acting.set_detail(walk.page("mem"), walk.text()),
        lambda: acting.move_page(walk.page("mem"), into),
        lambda: acting.remove_page(walk.page("mem")),
    )
    walk.chance.choice(actions)()


@step()
def private(walk: Walk) -> None:
    with suppress(QuireError):
        walk.ctx.pages.add_segment(Segment(id="own", name=PRIVATE_WORD, permission=Permission.PRIVATE))
    walk.ctx.pages.create_detail_page(PRIVATE_WORD, PRIVATE_WORD, f"{PRIVATE_WORD} {walk.text()}", "own-0")


@step()
def capacity(walk: Walk) -> None:
    segment = walk.chance.choice(("mem", "mem", "usr"))
    walk.ctx.pages.update_segment(segment, max_capacity=walk.chance.choice((0, 20, 60, 200)))


@step()
def window(walk: Walk) -> None:
    """Open a window, change it, or close it."""
    windows = walk.ctx.windows
    shown = windows.list()
    if not shown:
        windows.open("todo")
    elif walk.chance.random() < 0.8:
        windows.act(walk.chance.choice(shown).id, "add", text=walk.text(5))
    else:
        windows.close(walk.chance.choice(shown).id)


@step()
def other_handle(walk: Walk) -> None:
    """Write or fold with the other handle. This one is refreshed now, or when it is refused."""
    if walk.second is None:
        return
    walk.second.refresh()
    first, walk.ctx = walk.ctx, walk.second
    try:
        walk.act(walk.chance.choice([name for name in walk.steps if name != "other handle"]))
        with suppress(quire.IrreducibleFloor):
            walk.ctx.render()
    finally:
        walk.ctx = first
    if walk.chance.random() < 0.7:
        walk.ctx.refresh()
