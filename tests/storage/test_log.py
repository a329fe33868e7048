"""The log storage: its contract in a folder and in object stores, and what its objects promise when things go wrong."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, TypeVar

import pytest

from quire import MemoryStorage
from quire.errors import Busy, Conflict, Corrupt, OutcomeUnknown, QuireError, StorageFailure
from quire.storage.blobs import Blob, Blobs, Bucket, Folder
from quire.storage.contract import PAGE, TEXT, Commit, Family, Fork, Id, Record, Storage
from quire.storage.log import LogStorage
from quire.testing import StorageContract
from quire.testing.case import append, commit_of, contents, everything, id_of, pages, write
from tests.marks import long
from tests.servers.s3 import fresh_prefix, server

obstore = pytest.importorskip("obstore")
from obstore.store import MemoryStore, S3Store  # noqa: E402

T = TypeVar("T")
KINDS = ["folder", "bucket"]


class TestFolder(StorageContract):
    def open_storage(self, place: Path) -> Storage:
        return LogStorage(Folder(place), pack_every=7)


class TestMemoryStore(StorageContract):
    def setup_method(self) -> None:
        super().setup_method()
        self._stores: dict[Path, Any] = {}

    def open_storage(self, place: Path) -> Storage:
        return LogStorage(Bucket(self._stores.setdefault(place, MemoryStore()), "some/where", stale=0), pack_every=7)


@pytest.mark.servers
class TestSeaweed(StorageContract):
    def setup_method(self) -> None:
        super().setup_method()
        self._prefix = fresh_prefix()

    def open_storage(self, place: Path) -> Storage:
        there = server()
        options: Any = {"client_options": {"allow_http": True}, "retry_config": {"max_retries": 0}, **there.options()}
        return LogStorage(
            Bucket(S3Store(there.bucket, **options), f"{self._prefix}/{place.name}", stale=0), pack_every=7
        )


class Watched:
    """Blobs that count their calls. At one of them `action` runs: before it is made, or when it is done."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.name, self.repeats, self.stale = blobs.name, blobs.repeats, blobs.stale
        self.tears, self.versions = blobs.tears, blobs.versions
        self.calls: Counter[str] = Counter()
        self.at, self.first = 0, True
        self.action: Callable[[], object] = lambda: None

    def arm(self, at: int, action: Callable[[], object], *, first: bool) -> None:
        """Run an action at a call from now on."""
        self.at, self.action, self.first = self.calls.total() + at, action, first

    def get(self, key: str) -> bytes:
        return self._watch("get", lambda: self._blobs.get(key))

    def create(self, key: str, data: bytes, *, sync: bool = False) -> bool:
        return self._watch("create", lambda: self._blobs.create(key, data, sync=sync))

    def list(self, prefix: str, after: str = "") -> Iterator[Blob]:
        return self._watch("list", lambda: iter(tuple(self._blobs.list(prefix, after))))

    def delete(self, keys: Sequence[str]) -> None:
        self._watch("delete", lambda: self._blobs.delete(keys))

    def _watch(self, name: str, call: Callable[[], T]) -> T:
        self.calls[name] += 1
        is_now = self.calls.total() == self.at
        if is_now and self.first:
            self.action()
        found = call()
        if is_now and not self.first:
            self.action()
        return found


class Killed(BaseException):
    """The process dies."""


def places(path: Path) -> dict[str, Callable[[], Blobs]]:
    """Return what opens the same store again."""
    store = MemoryStore()
    return {"folder": lambda: Folder(path / "folder"), "bucket": lambda: Bucket(store, stale=0)}


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Blobs]:
    """What opens the store of a test."""
    return places(tmp_path)[request.param]


def steps(key: int) -> list[Callable[[Storage], object]]:
    """Return the steps of a life: packs happen in it, one of them with all texts, and a drop and a scrub."""

    def fork(storage: Storage) -> None:
        found = storage.load("c")
        assert found is not None
        storage.create("f", commit_of(1), Fork(found.id, found.seq))

    text: list[tuple[Family, Record]] = [(TEXT, Record(number, b"%d" % number * 20_000)) for number in range(3)]
    return [
        lambda storage: write(storage, "c", *pages([key]), *text),
        lambda storage: write(storage, "c", *pages([2], parent=1), delete=[(TEXT, 1), (TEXT, 2)]),
        lambda storage: write(storage, "c", (TEXT, Record(5, b"5"))),
        lambda storage: write(storage, "c", *pages([3], parent=1)),
        fork,
        lambda storage: write(storage, "c", *pages([4], parent=1)),
        lambda storage: storage.scrub(id_of(storage, "c")) and None,
        lambda storage: storage.drop("f"),
        lambda storage: write(storage, "c", *pages([5], parent=1)),
        lambda storage: storage.scrub() and None,
    ]


def shown(storage: Storage) -> dict[str, object]:
    """Return the contents of the contexts that exist. A drop that was interrupted may leave its name in the list."""
    found = {name: storage.load(name) for name in storage.contexts()}
    return {name: contents(storage, loaded.id) for name, loaded in found.items() if loaded is not None}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [Killed, StorageFailure])
@pytest.mark.parametrize("stride", [23, *long(1)])
def test_a_crash_at_any_call_loses_and_tears_nothing(
    kind: str, error: type[BaseException], stride: int, tmp_path: Path
) -> None:
    """The acknowledged steps are there, the interrupted one whole or not at all, and the next ones work."""
    last = live_with_a_crash(places(tmp_path / "none")[kind], 0, error)
    for at in range(1, last, stride):
        live_with_a_crash(places(tmp_path / f"{at}")[kind], at, error)


def live_with_a_crash(place: Callable[[], Blobs], at: int, error: type[BaseException]) -> int:
    """Run all steps, with a crash at one call. Return how many calls there were."""

    def fail() -> None:
        raise error("now")

    blobs, model = Watched(place()), MemoryStorage()
    storage = LogStorage(blobs, pack_every=2)
    blobs.arm(at, fail, first=at % 2 == 0)
    for step in steps(at):
        before = shown(model)
        step(model)
        try:
            step(storage)
        except (Killed, StorageFailure):
            storage = storage if error is StorageFailure else LogStorage(place(), pack_every=2)
            if shown(storage) == before != shown(model):
                step(storage)
        assert shown(LogStorage(place())) == shown(model), (at, blobs.calls)
    calls = blobs.calls.total()
    for name in list(storage.contexts()):
        storage.drop(name)
    storage.scrub()
    assert shown(storage) == {}
    return calls


def drop_and_write(storage: Storage) -> None:
    storage.drop("c")
    append(storage, "c", b"new")


def commit_twice(storage: Storage, context: Id) -> None:
    for number in (4, 5):
        storage.commit(context, commit_of(number))


OPERATIONS: dict[str, Callable[[Storage, dict[str, Id]], object]] = {
    "commit": lambda storage, ids: storage.commit(ids["c"], commit_of(4, *pages([7], parent=1), entry=b"one")),
    "another commit": lambda storage, ids: storage.commit(ids["c"], commit_of(4, *pages([8]), entry=b"two")),
    "two commits": lambda storage, ids: commit_twice(storage, ids["c"]),
    "create": lambda storage, _: storage.create("n", commit_of(1, *pages([1]))),
    "another create": lambda storage, _: storage.create("n", commit_of(1, *pages([2]))),
    "drop and write": lambda storage, _: drop_and_write(storage),
    "fork": lambda storage, ids: storage.create("n", commit_of(1), Fork(ids["c"], 3)),
    "name": lambda storage, ids: storage.name(ids["copy"], "n"),
    "drop": lambda storage, _: storage.drop("c"),
    "drop as seen": lambda storage, ids: storage.drop("c", (ids["c"], 3)),
    "scrub": lambda storage, ids: storage.scrub(ids["c"]),
    "scrub all": lambda storage, _: storage.scrub(),
}


def begin(storage: Storage) -> dict[str, Id]:
    """Create a context at entry 3 and a copy without a name."""
    ids = {"c": storage.create("c", commit_of(1, *pages([1]), (TEXT, Record(1, b"text" * 9_000))))}
    for seq in (2, 3):
        storage.commit(ids["c"], commit_of(seq, *pages([seq], parent=1)))
    return ids | {"copy": storage.create(None, commit_of(1, *pages([6])))}


def is_done(operation: str, storage: Storage, ids: dict[str, Id]) -> bool:
    """Run an operation. Return whether it was done; otherwise it changed nothing."""
    try:
        OPERATIONS[operation](storage, ids)
    except (Conflict, Busy):
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outer", OPERATIONS)
@pytest.mark.parametrize("stride", [19, *long(1)])
def test_an_operation_inside_another_is_before_or_after_it(kind: str, outer: str, stride: int, tmp_path: Path) -> None:
    """At any call of one operation, another handle runs another one: as if the two came one after the other."""
    for inner in OPERATIONS:
        at, ran = 1 - stride, {inner, outer} != {"drop and write"}  # two pairs of steps have more orders
        while ran:
            at, ran = at + stride, False
            open_place = places(tmp_path / f"{inner} {at}")[kind]
            blobs = Watched(open_place())
            storage, other = LogStorage(blobs, pack_every=2), LogStorage(open_place(), pack_every=2)
            ids, done = begin(storage), {}
            assert everything(other).keys() == {"c"}

            def run() -> None:
                nonlocal ran
                ran = True
                done[inner, 2] = is_done(inner, other, ids)  # noqa: B023

            blobs.arm(at, run, first=True)
            done[outer, 1] = is_done(outer, storage, ids)
            assert shown(LogStorage(open_place())) in list(outcomes(done)), (outer, inner, at, done)


def outcomes(done: dict[tuple[str, int], bool]) -> Iterator[dict[str, object]]:
    """Yield what the operations that were done leave, in any order."""
    for order in permutations([operation for (operation, _), was_done in done.items() if was_done]):
        model = MemoryStorage()
        ids = begin(model)
        results = [is_done(operation, model, ids) for operation in order]
        if all(results) or "two commits" in order:
            yield shown(model)


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_a_stale_handle_meets_conflict_after_packs_have_freed_its_number(place: Callable[[], Blobs]) -> None:
    stale, writer = LogStorage(place(), pack_every=3), LogStorage(place(), pack_every=3)
    context = write(stale, "c", *pages([1]))
    for key in range(2, 20):
        write(writer, "c", *pages([key]))
    before = contents(writer, context)
    with pytest.raises(Conflict):
        stale.commit(context, commit_of(2, *pages([99])))
    assert contents(stale, context) == contents(LogStorage(place()), context) == before
    write(stale, "c", *pages([20]))
    assert len(list(writer.entries(context))) == 20


def test_a_commit_that_others_packed_before_its_writer_looked_is_done(tmp_path: Path) -> None:
    blobs = Watched(Folder(tmp_path))
    slow, quick = LogStorage(blobs, pack_every=3), LogStorage(Folder(tmp_path), pack_every=3)
    context = write(slow, "c")

    def hurry() -> None:
        for number in range(9):
            append(quick, "c", b"%d" % number)

    blobs.arm(2, hurry, first=True)
    slow.commit(context, commit_of(2, entry=b"mine"))
    assert [entry.entry for entry in quick.entries(context)].count(b"mine") == 1
    assert len(list(slow.entries(context))) == 11


def test_a_commit_whose_outcome_cannot_be_checked_says_so(tmp_path: Path) -> None:
    blobs = Watched(Folder(tmp_path))
    storage = LogStorage(blobs)
    context = write(storage, "c")

    def fail() -> None:
        raise StorageFailure("no list")

    blobs.arm(2, fail, first=True)
    with pytest.raises(OutcomeUnknown):
        storage.commit(context, commit_of(2))
    found = storage.load("c")
    assert found is not None
    assert found.seq == 2


def test_processes_lose_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from quire.storage.blobs import Folder; from quire.storage.log import LogStorage;"
        "from quire.testing.case import append; storage = LogStorage(Folder(sys.argv[1]), pack_every=5);"
        "[append(storage, 'c', f'{sys.argv[2]} {turn}'.encode()) for turn in range(40)]"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(number)]) for number in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    storage = LogStorage(Folder(tmp_path))
    values = [entry.entry for entry in storage.entries(id_of(storage, "c"))]
    assert len(values) == 120
    for number in range(3):
        assert [value for value in values if value.startswith(b"%d " % number)] == [
            b"%d %d" % (number, turn) for turn in range(40)
        ]


def test_a_repeated_create_with_a_lost_answer_is_done() -> None:
    bucket = Bucket(MemoryStore())
    assert bucket.create("a", b"mine")
    assert bucket.create("a", b"mine")
    assert not bucket.create("a", b"other")


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_a_scrub_erases_the_bytes_of_what_was_deleted(place: Callable[[], Blobs]) -> None:
    secret, storage = b"a secret of somebody", LogStorage(place(), pack_every=4)
    for name in ("c", "d"):
        write(storage, name, (TEXT, Record(1, secret)))
        for seq in range(2, 12):
            write(storage, name, (TEXT, Record(seq, secret if seq % 3 else b"kept")))
    context, dropped = id_of(storage, "c"), id_of(storage, "d")
    write(storage, "c", delete=[(TEXT, key) for key in range(1, 12) if key % 3])
    storage.scrub(context)
    storage.drop("d")
    storage.scrub(dropped)
    assert all(secret not in place().get(blob.key) for blob in place().list(""))
    assert [record.key for record in LogStorage(place()).scan(context, TEXT)] == [3, 6, 9]
    write(storage, "c", *pages([1]))


def test_a_folder_is_private_and_stays_small(tmp_path: Path) -> None:
    root = tmp_path / "store"
    storage = LogStorage(Folder(root))
    for turn in range(600):
        write(storage, "c", *pages([1]), (TEXT, Record(turn % 10, bytes([turn % 251]) * 1_000)))
    files = [path for path in root.rglob("*") if path.is_file()]
    assert len(files) < 300
    assert sum(path.stat().st_size for path in files) < 600 * 1_150
    storage.scrub(id_of(storage, "c"))
    assert sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) < 80_000
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in [root, *root.rglob("*")]}
    assert modes == {(True, 0o700), (False, 0o600)}
    storage.drop("c")
    assert len([path for path in root.rglob("*") if path.is_file()]) == 2  # the end of the context and of its name


def test_opening_a_long_history_reads_few_objects() -> None:
    store = MemoryStore()
    storage = LogStorage(Bucket(store))
    context = write(storage, "c")
    for seq in range(2, 1_500):
        storage.commit(context, commit_of(seq, (TEXT, Record(seq, b"text" * 100))))
    blobs = Watched(Bucket(store))
    opened = LogStorage(blobs)
    assert opened.load("c") == storage.load("c")
    assert blobs.calls["get"] < 30
    assert blobs.calls["list"] < 5
    assert contents(opened, context) == contents(storage, context)
    assert blobs.calls["get"] < 60


def commits(root: Path) -> list[Path]:
    """Return the files of the commits, by number."""
    return sorted(path for path in root.rglob("*") if path.is_file() and path.name.isdigit() and len(path.name) == 19)


def flip(path: Path) -> None:
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("sizes", [{-1: 9, -2: 0}, {-2: 0}, {-1: 0}, {-2: 40}])
def test_commits_after_a_power_loss_were_never_made(
    sizes: dict[int, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = LogStorage(Folder(tmp_path))
    context = write(storage, "c", *pages([1]))
    for key in (2, 3, 4):
        write(storage, "c", *pages([key]))
    for number, size in sizes.items():
        os.truncate(commits(tmp_path)[number], size)
    kept = [1, 2, 3] if min(sizes) == -1 else [1, 2]
    opened, other = LogStorage(Folder(tmp_path)), LogStorage(Folder(tmp_path))
    assert [record.key for record in opened.scan(context, PAGE)] == kept
    assert "power loss" in caplog.text
    assert id_of(other, "c") == context
    write(opened, "c", *pages([5]))
    with pytest.raises(Conflict):
        other.commit(context, commit_of(len(kept) + 1))
    write(other, "c", *pages([6]))
    for handle in (opened, other, LogStorage(Folder(tmp_path))):
        assert [record.key for record in handle.scan(context, PAGE)] == [*kept, 5, 6]
        assert [entry.seq for entry in handle.entries(context)] == [*range(1, len(kept) + 3)]
    opened.drop("c")
    assert list(other.contexts()) == []


@pytest.mark.parametrize("harm", [flip, os.unlink])
def test_a_lost_commit_in_the_middle_is_reported(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    storage = LogStorage(Folder(tmp_path))
    for key in range(1, 6):
        context = write(storage, "c", *pages([key]))
    path = commits(tmp_path)[1]
    harm(path)
    with pytest.raises(Corrupt) as raised:
        LogStorage(Folder(tmp_path)).load("c")
    assert path.name in raised.value.record
    assert len(list(storage.scan(context, PAGE))) == 5


@pytest.mark.parametrize("folder", ["texts", "pack"])
def test_a_damaged_pack_is_reported(tmp_path: Path, folder: str) -> None:
    storage = LogStorage(Folder(tmp_path), pack_every=2)
    context = write(storage, "c", (TEXT, Record(1, b"text" * 9_000)))
    write(storage, "c")
    write(storage, "c")
    for path in tmp_path.rglob("*"):
        if path.is_file() and folder in str(path.relative_to(tmp_path)):
            path.write_bytes(path.read_bytes()[:-100] + bytes(100))
    with pytest.raises(Corrupt):
        list(LogStorage(Folder(tmp_path)).scan(context, TEXT))


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageFailure):
        Folder(tmp_path / "file")
    with pytest.raises(QuireError):
        Folder(tmp_path / "file" / "below")


def test_full_durability_keeps_the_contract(tmp_path: Path) -> None:
    storage = LogStorage(Folder(tmp_path, "full"))
    context = storage.create("c", Commit(1, b"h", b"e", [(TEXT, Record(1, b"text"))]))
    for seq in range(2, 6):
        storage.commit(context, commit_of(seq))
    os.truncate(commits(tmp_path)[-1], 3)
    with pytest.raises(Corrupt):
        LogStorage(Folder(tmp_path, "full")).load("c")
