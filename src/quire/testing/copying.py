"""The contract of copying: a context goes to another store and back unchanged."""

from quire.errors import InvalidOperation, NoSuchContext
from quire.storage.base import BODY, FAMILIES, JOURNAL, Commit, Put, Storage
from quire.storage.memory import MemoryStorage
from quire.storage.migrate import Progress, copy_contexts
from quire.testing.case import StorageCase, contents, grouped, pages, refused, write

_GROUPS = [0, 1, 2]


class CopyRules(StorageCase):
    """`migrate` from and to the memory backend, which is the reference."""

    def test_a_context_is_copied_from_memory(self) -> None:
        source, target = MemoryStorage(), self.open()
        _fill(source)
        copy_contexts(source, target, sound=False)
        assert _everything(target) == _everything(source)
        write(target, "c", *pages([9_999], group=1))
        assert grouped(target, "c", [1])[1][-1] == 9_999

    def test_a_context_is_copied_to_memory_and_back(self) -> None:
        source, between, target = self.open(), MemoryStorage(), self.open("another")
        _fill(source)
        before = _everything(source)
        copy_contexts(source, between, sound=False)
        copy_contexts(between, target, sound=False)
        assert _everything(between) == before
        assert _everything(target) == before
        assert _everything(source) == before

    def test_a_copy_tells_how_far_it_is(self) -> None:
        source, target = self.open(), MemoryStorage()
        _fill(source)
        told: list[Progress] = []
        total = copy_contexts(source, target, "c", progress=told.append, sound=False)
        records = [record for found in contents(source, "c")[1].values() for record in found]
        assert (total.records, total.bytes) == (len(records), sum(len(record.value) for record in records))
        assert {progress.context for progress in told} == {"c"}
        assert told[-1].phase == "done"
        copied = [progress.records for progress in told if progress.phase == "copy"]
        assert copied == sorted(copied)
        assert copied[-1] == len(records)
        assert list(target.contexts()) == ["c"]

    def test_a_copy_that_is_made_already_is_left_alone(self) -> None:
        source, target = MemoryStorage(), self.open()
        _fill(source)
        copy_contexts(source, target, sound=False)
        copy_contexts(source, target, sound=False)
        assert _everything(target) == _everything(source)

    def test_another_context_is_not_overwritten_by_a_copy(self) -> None:
        source, target = MemoryStorage(), self.open()
        _fill(source)
        write(target, "c", *pages([1]))
        before = contents(target, "c")
        with refused(InvalidOperation):
            copy_contexts(source, target, "c", sound=False)
        assert contents(target, "c") == before
        with refused(NoSuchContext):
            copy_contexts(source, target, "never there", sound=False)

    def test_a_context_without_records_is_copied(self) -> None:
        source, target = MemoryStorage(), self.open()
        source.commit("c", Commit(0, 4, b"only a head", ()))
        copy_contexts(source, target, sound=False)
        assert _everything(target) == _everything(source)


def _fill(storage: Storage) -> None:
    write(storage, "c", *(Put(family, key, b"%d" % key) for family in FAMILIES for key in range(3)))
    write(storage, "c", *pages(range(10, 1_300), group=1), *pages(range(2_000, 2_010), group=2), *pages([3_000]))
    write(storage, "c", Put(BODY, 77, bytes(2_500_000)), Put(BODY, 78, b""), Put(JOURNAL, 1 << 30, b"far"))
    write(storage, "另一个", *pages([1], group=0))


def _everything(storage: Storage) -> dict[str, object]:
    return {name: (contents(storage, name), grouped(storage, name, _GROUPS)) for name in storage.contexts()}
