"""A backend with the five calls of the design documents: reopening, interruptions, damage and failures."""

import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from quire import DetailPage, MemoryStorage
from quire.errors import Conflict, Corrupt, InvalidOperation, InvalidValue, StorageFailure
from quire.storage.contract import NOTE, PAGE, TEXT, Commit, Family, Record, Storage
from quire.storage.five_calls import FiveCallStorage
from quire.storage.folder import register_describer
from quire.testing.case import commit_of, contents, everything, id_of, pages, write


class Backend:
    """The five calls over a dict. After `left` calls that change something, it fails."""

    def __init__(self, pages: dict[str, bytes] | None = None) -> None:
        self.pages = dict(pages or {})
        self.left = 1_000_000

    def save(self, page: DetailPage) -> None:
        self._change()
        self.pages[page.index] = pickle.dumps(page.to_json())

    def load(self, index: str) -> DetailPage:
        return DetailPage.from_json(pickle.loads(self.pages[index]))

    def delete(self, index: str) -> None:
        self._change()
        del self.pages[index]

    def exists(self, index: str) -> bool:
        return index in self.pages

    def list(self) -> Iterable[str]:
        return list(self.pages)

    def _change(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError("no space left")


def describe(
    seq: int, head: bytes, look_up: object, records: Iterable[tuple[Family, int]]
) -> Iterator[tuple[str, bytes | None]]:
    for _, key in records:
        page = {"index": f"mem-{key}", "name": f"Page {key} at {seq}", "type": "DetailPage", "meta": {"mine": 1}}
        form = {**page, "description": "", "parent": None, "author": "", "tokens": 0}
        yield f"{key}.json", json.dumps(form).encode() if key % 5 else None
        yield f"{key}.txt", None


@pytest.fixture(autouse=True)
def described() -> Iterator[None]:
    before = register_describer(describe)
    yield
    register_describer(before)


STEPS: list[Callable[[Storage], object]] = [
    lambda storage: write(storage, "c", *pages([1, 2]), (TEXT, Record(1, b"text"))),
    lambda storage: write(storage, "c", *pages([3, 5], parent=1), (NOTE, Record(1, b"n"))),
    lambda storage: write(storage, "c", *pages([2], parent=3), delete=[(PAGE, 1), (TEXT, 1), (PAGE, 77)]),
    lambda storage: storage.commit(id_of(storage, "c"), Commit(4, b"4", b"e", replace=[(2, b"other")], expire=2)),
    lambda storage: storage.drop("c"),
    lambda storage: write(storage, "d", *pages([9])),
]


def same(storage: Storage, model: Storage) -> bool:
    return everything(storage) == everything(model)


def test_all_is_there_again_after_reopening() -> None:
    backend, model = Backend(), MemoryStorage()
    for step in STEPS:
        storage = FiveCallStorage(backend)
        step(storage)
        step(model)
        assert same(storage, model)
        assert same(FiveCallStorage(backend), model)
        register_describer(None)
        assert same(FiveCallStorage(backend), model)
        register_describer(describe)


@pytest.mark.parametrize("left", range(24))
def test_a_failure_at_any_call_loses_and_tears_nothing(left: int) -> None:
    """A step that failed is made again; one that was acknowledged is done, whatever was left undone."""
    backend, model = Backend(), MemoryStorage()
    storage = FiveCallStorage(backend)
    for step in STEPS:
        backend.left = left
        try:
            step(storage)
        except StorageFailure:
            assert same(storage, model) or storage.load("c") is None
            backend.left = 1_000_000
            storage = FiveCallStorage(backend)
            if same(storage, model):
                step(storage)
        step(model)
        backend.left = 1_000_000
        assert same(FiveCallStorage(Backend(backend.pages)), model)
    assert same(storage, model)


def test_a_copy_arrives_when_it_gets_its_name_and_leases_stay_in_memory() -> None:
    backend = Backend()
    storage = FiveCallStorage(backend)
    context = storage.create(None, commit_of(1, *pages([1])))
    storage.commit(context, commit_of(2, *pages([2])))
    write(storage, "quire.lease.c", *pages([7]))
    assert not backend.pages
    storage.name(context, "c")
    again = FiveCallStorage(backend)
    assert contents(storage, context) == contents(again, id_of(again, "c"))
    assert list(again.contexts()) == ["c"]
    with pytest.raises(InvalidOperation):
        again.create("d", commit_of(1))
    assert list(again.contexts()) == ["c"]
    with pytest.raises(Conflict):
        again.drop("c", (id_of(again, "c"), 1))
    assert same(FiveCallStorage(backend), again)


def test_damage_and_what_is_no_backend_are_refused(tmp_path: Path) -> None:
    backend = Backend()
    for key in range(4):
        write(FiveCallStorage(backend), "c", *pages([key]))
    for index in ("quire-entry-2", "quire-entry-3"):
        less = Backend({each: page for each, page in backend.pages.items() if each != index})
        with pytest.raises(Corrupt):
            FiveCallStorage(less)
    backend.save(DetailPage(name="of somebody else", index="x-1"))
    with pytest.raises(Corrupt):
        FiveCallStorage(backend)
    with pytest.raises(InvalidValue):
        FiveCallStorage(object())  # type: ignore[arg-type]
