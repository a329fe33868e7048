"""Random operations on two stores. The same numbers make the same operations on every backend."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec

import quire
from proof.plain_model import Event, mark_pin
from quire import Context, InvalidOperation, Storage, ToolCall
from quire.conversation import importing
from quire.core import engine, lease
from quire.core.companion import LEASE, companion_of
from quire.errors import IrreducibleFloor
from tests.whole_values import whole_repr

BUDGET = 2_500
SIZES = (0, 7, 60, 300, 1_000, 5_000, 60_000)
BOOK, EDITED = "book", "edited"
"""Two contexts: the plain model follows the first one and its forks; only the twin follows the second one."""
IMPORT_CHUNK = 6
Note = Callable[[Event], None]


class CharacterCounter:
    """Counts characters, so that a writer spends its time on writing."""

    name = "characters"
    exact = True

    def count(self, text: str) -> int:
        return len(text)


class FixedClock:
    """The clock of quire in this process, in a block: the number of the operation."""

    def __init__(self) -> None:
        self.now = 0
        self._kept = getattr(engine, "time")  # noqa: B009 - not exported

    def __enter__(self) -> "FixedClock":
        setattr(engine, "time", SimpleNamespace(time_ns=lambda: self.now, monotonic=time.monotonic))  # noqa: B010
        return self

    def __exit__(self, *error: object) -> None:
        setattr(engine, "time", self._kept)  # noqa: B010

    def set(self, number: int) -> None:
        """Set the time for an operation."""
        self.now = (1_700_000_000 + number) * 1_000_000_000


def text_of(number: int, size: int) -> str:
    """Return a text that is unique for the number, as long as the size or a little longer."""
    head = f"{number} 页 "
    return head + "word 词 " * max(0, (size - len(head)) // 7)


class World:
    """Two stores, and the contexts that are open in the first one."""

    def __init__(self, main: Storage, second: Storage, folder: Path | None = None) -> None:
        self.main = main
        self.second = second
        self.folder = folder
        """The folder for backups; None for a world in memory, which makes no backups."""
        self.open: dict[str, Context] = {}

    def context(self, name: str) -> Context:
        if name not in self.open:
            self.open[name] = quire.open(self.main, name, budget=BUDGET, counter=CharacterCounter(), key="key")
        return self.open[name]

    @property
    def library(self) -> quire.Library:
        return quire.Library(self.main)

    def names(self) -> list[str]:
        return [name for name in self.library.list() if name != EDITED]

    def run(self, number: int, seed: int, note: Note) -> str:
        """Run operation `number`, and return its name. `note` receives each step when it is done."""
        random = Random(f"{seed} {number}")
        for wanted in (BOOK, EDITED):
            if wanted not in self.open and self.main.load(wanted) is None:
                seq = self.context(wanted).seq
                if wanted == BOOK:
                    note(("create", BOOK, seq))
                return "create"
        name, operation = random.choices(OPERATIONS, TURN_WEIGHTS if has_many_turns(seed) else WEIGHTS)[0]
        with suppress(InvalidOperation):  # it waits for a result, or is not in the conversation any more
            operation(self, random, number, note)
        return name


def _pick(world: World, random: Random) -> tuple[str, Context]:
    names = world.names()
    name = BOOK if random.random() < 0.7 else random.choice(names)
    return name, world.context(name)


def say(world: World, random: Random, number: int, note: Note) -> None:
    name, ctx = _pick(world, random)
    text = text_of(number, random.choice(SIZES[:6]))
    waiting = ctx.pending_calls()
    if waiting:
        ctx.tool_result(waiting[0].id, text)
    elif random.random() < 0.3:
        ctx.assistant(text, [ToolCall(f"call {number}", "look")])
    elif random.random() < 0.5:
        ctx.assistant(text)
    else:
        ctx.user(text)
    note(("say", name, ctx.seq, text))


def take_turn(world: World, random: Random, number: int, note: Note) -> None:
    name, ctx = _pick(world, random)
    with ctx.turn(key=f"turn {number}"):
        note(("begin_turn", name, ctx.seq))
        question, answer = (text_of(number * 2 + side + 1_000_000, random.choice(SIZES[:5])) for side in range(2))
        ctx.user(question)
        note(("say_in_turn", name, ctx.seq, question))
        draw(ctx)
        ctx.assistant(answer)
        note(("say_in_turn", name, ctx.seq, answer))
    note(("end_turn", name, ctx.seq))


def make_page(world: World, random: Random, number: int, note: Note) -> None:
    name, ctx = _pick(world, random)
    text = text_of(number, random.choice(SIZES))
    index = ctx.pages.create_detail_page(f"page {number}", "", text, "mem-0")
    note(("page", name, ctx.seq, index, text))


def change_page(world: World, random: Random, number: int, note: Note) -> None:
    name, ctx = _pick(world, random)
    pages = ctx.pages
    known = [page.index for page in pages.children("mem-0")]
    if len(known) < 2:
        return
    index, other = random.sample(known, 2)
    match random.randrange(7):
        case 0:
            pages.hide(index)
        case 1:
            pages.expand(index)
        case 2:
            pages.update_page(index, description=str(number), meta={"n": number})
        case 3:
            pages.move_page(index, "mem-0", before=other)
        case 4:
            text = text_of(number, random.choice(SIZES))
            pages.set_detail(index, text)
            note(("set_text", name, ctx.seq, index, text))
        case 5:
            pages.pin(index)
            note(("pin", name, ctx.seq, index))
            pages.unpin(index)
            note(("unpin", name, ctx.seq, index))
        case _:
            pages.remove_page(index)
            note(("remove_page", name, ctx.seq, index))


def fold(world: World, random: Random, number: int, note: Note) -> None:
    draw(_pick(world, random)[1])


def draw(ctx: Context) -> object:
    """Return the view of a context, folded if it is too large; None if a pinned page makes it too large."""
    try:
        return ctx.render().openai()
    except IrreducibleFloor:
        return None


def bring_in(world: World, random: Random, number: int, note: Note) -> None:
    name, ctx = _pick(world, random)
    ctx.close_calls()
    texts = [text_of(number * 100 + 10_000_000 + step, random.choice(SIZES[:4])) for step in range(20)]
    before, kept = ctx.seq, importing.CHUNK
    importing.CHUNK = IMPORT_CHUNK  # several commits
    try:
        ctx.import_messages(
            [{"role": ("user", "assistant")[step % 2], "content": text} for step, text in enumerate(texts)]
        )
    finally:
        importing.CHUNK = kept
    for step, text in enumerate(texts):
        note(("say", name, before + 1 + step // IMPORT_CHUNK, text))


def undo(world: World, random: Random, number: int, note: Note) -> None:
    name, ctx = _pick(world, random)
    seq = ctx.seq
    if seq < 3:
        return
    ctx.undo(seq)
    note(("restore", name, ctx.seq, seq - 1))


def roll_back(world: World, random: Random, number: int, note: Note) -> None:
    name, ctx = _pick(world, random)
    if random.random() < 0.5 or "here" not in ctx.pages.checkpoints():
        ctx.checkpoint("here")
        return
    to = ctx.pages.checkpoints()["here"]
    ctx.rollback("here")
    note(("restore", name, ctx.seq, to))


def fork(world: World, random: Random, number: int, note: Note) -> None:
    if len(world.names()) > 3:
        return
    ctx = world.context(BOOK)
    ctx.fork(f"fork {number}")
    note(("fork", BOOK, ctx.seq, f"fork {number}"))


def erase(world: World, random: Random, number: int, note: Note) -> None:
    forks = [name for name in world.names() if name != BOOK]
    if forks:
        name = random.choice(forks)
        world.open.pop(name, None)
        world.library.erase(name)
        note(("erase", name, 0))


def purge(world: World, random: Random, number: int, note: Note) -> None:
    name, ctx = _pick(world, random)
    known = [page.index for page in ctx.pages.children("mem-0")]
    if known:
        index = random.choice(known)
        ctx.pages.purge(index)
        for other in world.open.values():
            other.refresh()
        note(("purge", name, ctx.seq, index))


def migrate(world: World, random: Random, number: int, note: Note) -> None:
    name, _ = _pick(world, random)
    note(("drop_copy", name, 0))
    quire.migrate(world.main, world.second, [name], replace=True)
    note(("copy", name, 0))


def back_up(world: World, random: Random, number: int, note: Note) -> None:
    if world.folder is not None:
        for old in world.folder.glob("backup*"):
            old.unlink()
        quire.backup(world.main, world.folder / "backup.db")


def edit(world: World, random: Random, number: int, note: Note) -> None:
    """Edit the conversation of the context that only the twin follows."""
    ctx = world.context(EDITED)
    count = len(ctx.messages(all=True))
    if count < 4 or random.random() < 0.4:
        ctx.user(text_of(number, 60))
        return
    index = random.randrange(count)
    match random.randrange(5):
        case 0:
            ctx.conversation.delete(index)
        case 1:
            ctx.conversation.compress([index, max(index - 1, 0)])
        case 2:
            ctx.conversation.batch_start()
            ctx.conversation.batch_end(0)
        case 3:
            ctx.conversation.replace(index, {"role": "user", "content": text_of(number, 300)})
        case _:
            if ctx.conversation.delete(index).covered:
                ctx.undo(ctx.seq)


OPERATIONS: list[tuple[str, Callable[[World, Random, int, Note], None]]] = [
    ("message", say),
    ("turn", take_turn),
    ("page", make_page),
    ("change", change_page),
    ("fold", fold),
    ("import", bring_in),
    ("undo", undo),
    ("rollback", roll_back),
    ("fork", fork),
    ("erase", erase),
    ("purge", purge),
    ("migrate", migrate),
    ("backup", back_up),
    ("edit", edit),
]
WEIGHTS = [20, 12, 10, 10, 8, 4, 6, 4, 3, 2, 4, 3, 2, 12]
TURN_WEIGHTS = [4, 14, 2, 0, 2, 0, 8, 3, 0, 0, 0, 0, 0, 0]
"""Mostly turns, undo and rollback: turns that were interrupted, taken back and brought back follow each other."""


def has_many_turns(seed: int) -> bool:
    """Return True if the operations of a seed are mostly turns."""
    return seed % 4 == 0


Found = dict[str, Any]


def versions(world: World) -> dict[str, dict[str, int]]:
    """Return the versions of all contexts."""
    found: dict[str, dict[str, int]] = {}
    for side, storage in (("main", world.main), ("second", world.second)):
        loaded = {name: storage.load(name) for name in quire.Library(storage).list()}
        found[side] = {name: each.seq for name, each in loaded.items() if each is not None}
    return found


def look(world: World, *, check: bool = True) -> Found:
    """Return all that a user sees: documents, messages, journals, problems, and then the views of the main store."""
    found: Found = {"main": {}, "second": {}, "versions": versions(world)}
    for side, storage in (("main", world.main), ("second", world.second)):
        for name in quire.Library(storage).list():
            ctx = quire.open(storage, name, budget=BUDGET, counter=CharacterCounter(), create=False)
            found[side][name] = {**_look_at(ctx, check), "lease": _lease(storage, name)}
    found["views"] = {name: draw(world.context(name)) for name in found["main"]}
    return found


def _look_at(ctx: Context, check: bool) -> dict[str, Any]:
    pages = ctx.pages
    return {
        "document": pages.marshal(),
        "messages": [message.text for message in ctx.messages()],
        "all messages": [whole_repr(message) for message in ctx.messages(all=True)],
        "pages": {
            page.index: mark_pin(pages.detail(page.index), bool(page.pinned))
            for page in pages.list_pages("mem")
            if page.parent
        },
        "journal": [whole_repr(entry) for entry in ctx.history()],
        "problems": [str(problem) for problem in ctx.check()] if check else [],
    }


def _lease(storage: Storage, name: str) -> tuple[int, bool, str, int, tuple[lease.UnfinishedTurn, ...]] | None:
    """Return the number of the last turn, whether it ended, its key, where it began, and the turns to take back."""
    found = storage.load(companion_of(name, LEASE))
    if found is None:
        return None
    record = msgspec.msgpack.decode(found.head, type=lease.LeaseRecord)
    return record.number, record.released, record.key, record.before, record.owed
