"""A fuzz of damage: one record or object is deleted, altered, truncated or swapped, and no read is silently wrong.

Every case is harmless (all reads give the answers of the sound store), or a read that needs the record raises
`Corrupt`, or, for derived data, the doctor reports it. The seed is printed; `QUIRE_FUZZ_SEED` repeats a run.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from random import Random
from typing import NamedTuple

import msgspec
import pytest

import quire
from quire import Context, Corrupt, Library, MemoryStorage, Storage
from quire.core import missing
from quire.core.context_copy import copy_contexts
from quire.core.engine import Transaction
from tests.compat import make_store
from tests.compat.make_store import ERASED, IMPORTED, OPEN
from tests.maintenance.damaging import (
    DAMAGES,
    RELATED,
    SEARCH,
    FileVault,
    MemoryVault,
    Place,
    PostgresVault,
    S3Vault,
    SQLiteVault,
    Vault,
)
from tests.marks import broad

DERIVED = {"call", "vector", SEARCH}
"""Data of which the doctor reports the damage."""
HEADS = {"head", "context", "file", "frame", "chunk"}
"""Places without which a context has no name: it can be missing for a reader, and the doctor reports it.

A small context on S3 has only its head object. If that is deleted, nothing of the context is left, and it is "gone".
"""
QUERIES = ("bread", "面包", "window seat")


FILLERS = {OPEN: make_store._leave_open, IMPORTED: make_store._import, ERASED: make_store._erase}


def build(storage: Storage, names: Collection[str] = tuple(FILLERS)) -> None:
    """Write a store with every kind of record, and a fork that shares some of them."""
    library = Library(storage)
    with make_store._stopped_clock():
        for name in names:
            with make_store.open_context(library, name, create=True) as ctx:
                FILLERS[name](ctx)
        with open_context(library, OPEN) as ctx:
            ctx.checkpoint("before the fork")
            ctx.fork("fork").user("Only in the fork.")
            ctx.user("Only here.")
        for name in list(storage.contexts()):
            for query in QUERIES:
                open_context(library, name).find(query, 4)


def open_context(library: Library, name: str) -> Context:
    return library.open(
        name,
        create=False,
        budget=make_store.BUDGETS.get(name, 1_500),
        compression=make_store.COMPRESSION.get(name),
        embedder=make_store.Letters() if name == IMPORTED else None,
    )


def tried(ctx: Context, change: Callable[[], object]) -> object:
    """Return the context as a change would leave it; nothing is stored."""
    engine = ctx.pages._engine
    with engine.lock:
        transaction = Transaction(engine)
        try:
            change()
            return ctx.pages.marshal()
        finally:
            transaction.discard()


def undo_last(ctx: Context) -> object:
    last = ctx.pages.seq
    return tried(ctx, lambda: ctx.undo(last))


def go_back(ctx: Context) -> object:
    first = max(ctx.pages._engine.state.head.horizon, 1)
    return tried(ctx, lambda: ctx.rollback(max(ctx.pages.seq - 3, first)))


def walk(ctx: Context) -> list[object]:
    """Return every folder in parts."""
    found: list[object] = []
    for page in ctx.pages.list_pages():
        if isinstance(page, quire.ContentsPage):
            first = ctx.pages.children(page.index, limit=2)
            after = first[0].index if first else None
            found.append((page.child_count, first, after and ctx.pages.children(page.index, after=after, limit=2)))
            found.append(ctx.pages.children(page.index, cold=True))
    return found


def details(ctx: Context) -> list[object]:
    return [ctx.pages.detail(page.index) for page in ctx.pages.list_pages() if isinstance(page, quire.DetailPage)]


def copied(ctx: Context) -> object:
    """Return the content of a copy of the context."""
    target = MemoryStorage()
    copy_contexts(ctx.pages.storage, target, ctx.pages.context)
    copy = open_context(Library(target), ctx.pages.context)
    return copy.pages.marshal(), list(copy.history()), list(copy.messages(all=True)), copy.pages.checkpoints()


def forked(ctx: Context) -> object:
    """Return the content of a fork of the context. A fork is not proved whole: its reads name what is damaged."""
    fork = ctx.fork("new fork")
    try:
        return fork.pages.marshal(), list(fork.messages(all=True)), fork.render(preview=True).openai()
    finally:
        ctx.pages.storage.drop("new fork")


READS: dict[str, Callable[[Context], object]] = {
    "render": lambda ctx: ctx.render(preview=True).openai(),
    "small view": lambda ctx: ctx.render(preview=True, max_tokens=550).anthropic(),
    "recall": lambda ctx: ctx.render(preview=True, recall=True).openai(),
    "messages": lambda ctx: list(ctx.messages()),
    "all messages": lambda ctx: list(ctx.messages(all=True)),
    "newest messages": lambda ctx: ctx.pages._engine.read(lambda state: next(state.newest_leaves(), None)),
    "marks": lambda ctx: [ctx.conversation.mark_of(index) for index in range(len(ctx.messages(all=True)))],
    "batches": lambda ctx: ctx.conversation.mark_map(),
    "pending calls": lambda ctx: ctx.pending_calls(),
    "items": lambda ctx: list(ctx.items()),
    "history": lambda ctx: list(ctx.history()),
    "history backwards": lambda ctx: list(ctx.history(reverse=True)),
    "checkpoints": lambda ctx: ctx.pages.checkpoints(),
    "marshal": lambda ctx: ctx.pages.marshal(),
    "pages": lambda ctx: list(ctx.pages.list_pages()),
    "children": walk,
    "details": details,
    "stats": lambda ctx: ctx.stats(),
    "why": lambda ctx: [ctx.why(page.index) for page in list(ctx.pages.list_pages())[:12]],
    "find": lambda ctx: [ctx.find(query, 4) for query in QUERIES],
    "agent": lambda ctx: [(page.index, page.name) for page in ctx.agent.list_pages(limit=5)],
    "rollback": go_back,
    "undo": undo_last,
    "copy": copied,
    "fork": forked,
}


def answers(storage: Storage, name: str) -> dict[str, object]:
    """Return the answer of every read, each by a handle of its own, or its error."""
    found: dict[str, object] = {}
    for read, ask in READS.items():
        try:
            with make_store._stopped_clock():
                found[read] = _plain(ask(open_context(Library(storage), name)))
        except Exception as error:  # any other error than `Corrupt` is a finding
            found[read] = error
    return found


def _plain(value: object) -> bytes:
    return msgspec.json.encode(value, enc_hook=repr)


class Case(NamedTuple):
    """The result of one case: a verdict, and what was wrong."""

    damage: str
    place: Place
    verdict: str
    wrong: dict[str, object]


class Fuzz:
    """Damages a vault and judges the reads."""

    def __init__(self, vault: Vault, sound: dict[str, dict[str, object]]) -> None:
        self.vault = vault
        self._sound = sound

    def run(self, random: Random, damage: str, place: Place) -> Case:
        """Return what one damage did."""
        with self.vault.damaged(random, damage, place) as storage:
            sick = self._is_sick(storage) if place.family in DERIVED else None
            named = False
            wrong: dict[str, object] = {}
            for name in self._contexts(damage, place):
                for read, answer in answers(storage, name).items():
                    if isinstance(answer, Corrupt):
                        named = True
                    elif answer != self._sound[name][read]:
                        wrong[f"{name}: {read}"] = answer
            if wrong and sick is None:
                sick = self._is_sick(storage)
            return Case(damage, place, self._verdict(place, named, wrong, bool(sick)), wrong)

    def _verdict(self, place: Place, named: bool, wrong: dict[str, object], sick: bool) -> str:
        if not wrong:
            return "named" if named else "doctor" if sick else "harmless"
        if sick and place.family in DERIVED:
            return "doctor"
        if not all(isinstance(answer, quire.NoSuchContext) for answer in wrong.values()) or place.family not in HEADS:
            return "WRONG"
        return "doctor" if sick else "gone" if place.family == "head" else "WRONG"

    def _contexts(self, damage: str, place: Place) -> Iterator[str]:
        """Yield the contexts to read: the damaged one, and those that share its records."""
        is_any = not place.context or damage == "mix" or (damage == "swap" and place.family in HEADS)
        for name in self._sound:
            if is_any or name == place.context or {name, place.context} <= RELATED:
                yield name

    def _is_sick(self, storage: Storage) -> bool:
        return not quire.doctor(storage).healthy


@pytest.fixture(scope="module")
def vaults(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Callable[[str], Fuzz]:
    made: dict[str, Fuzz] = {}

    def build_part(storage: Storage) -> None:
        """Write all contexts; in the short form, only to memory."""
        is_whole = isinstance(storage, MemoryStorage) or request.config.getoption("--long", default=False)
        build(storage, tuple(FILLERS) if is_whole else (OPEN,))

    def get(backend: str) -> Fuzz:
        if backend not in made:
            place = tmp_path_factory.mktemp(backend)
            vault: Vault
            match backend:
                case "memory":
                    vault = MemoryVault(build_part)
                case "sqlite":
                    vault = SQLiteVault(build_part, place)
                case "file":
                    vault = FileVault(build_part, place)
                case "postgres":
                    vault = PostgresVault(build_part)
                case _:
                    vault = S3Vault(build_part)
            with vault.damaged(Random(0), "", None) as storage:
                assert quire.doctor(storage).healthy
                sound = {name: answers(storage, name) for name in storage.contexts()}
            errors = {(n, r): a for n, found in sound.items() for r, a in found.items() if isinstance(a, Exception)}
            assert errors == {}
            made[backend] = Fuzz(vault, sound)
        return made[backend]

    return get


def seed_of(*, long: bool) -> int:
    """Return the seed that is given; else a new one in the long form, and always the same one in the short form."""
    given = os.environ.get("QUIRE_FUZZ_SEED")
    return int(given) if given else Random().randrange(1 << 32) if long else 2288362943


def spread(random: Random, places: list[Place], cases: int) -> Iterator[tuple[str, Place]]:
    """Yield damages: every family is hit equally often, whatever the number of its records."""
    families: dict[str, list[Place]] = {}
    for place in places:
        families.setdefault(place.family, []).append(place)
    for number in range(cases):
        family = sorted(families)[number % len(families)]
        yield random.choice(DAMAGES), random.choice(families[family])


CASES = {"memory": (14, 700), "sqlite": (8, 600), "file": (4, 200), "postgres": (4, 300), "s3": (3, 200)}
"""The number of cases of each backend, in the short and the long form."""


@pytest.mark.parametrize("backend", ["memory", "sqlite", "file", *broad("postgres", "s3")])
def test_no_read_is_silently_wrong(backend: str, vaults: Callable[[str], Fuzz], request: pytest.FixtureRequest) -> None:
    long = bool(request.config.getoption("--long", default=False))
    seed = seed_of(long=long)
    print(f"QUIRE_FUZZ_SEED={seed}")  # noqa: T201 - shown when it fails
    fuzz, random = vaults(backend), Random(seed)
    done = [fuzz.run(random, *case) for case in spread(random, list(fuzz.vault.places), CASES[backend][long])]
    print(backend, dict(Counter(case.verdict for case in done)))  # noqa: T201
    wrong = [case for case in done if case.verdict == "WRONG"]
    assert wrong == [], f"QUIRE_FUZZ_SEED={seed}: {len(wrong)} of {len(done)} cases"
    unnamed = [case for case in done if case.place.family == "call" and case[::2] == ("delete", "harmless")]
    assert unnamed == [], f"QUIRE_FUZZ_SEED={seed}"


def test_the_fuzz_finds_a_check_that_is_switched_off(
    vaults: Callable[[str], Fuzz], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: without the count of children, a lost page must be found as a wrong answer."""
    fuzz, random = vaults("memory"), Random(7)
    pages = [place for place in fuzz.vault.places if place.family == "page" and place.context == OPEN]
    monkeypatch.setattr(missing, "check_children", lambda *_: None)
    monkeypatch.setattr(missing, "check_segment", lambda *_: None)
    assert any(fuzz.run(random, "delete", place).verdict == "WRONG" for place in pages)
