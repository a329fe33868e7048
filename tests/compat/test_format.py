"""Record format 2: contexts of format 1 are read and upgraded by their first write; 0.1.0 refuses them then."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import quire
from quire.core import records
from quire.core.records import FORMAT, HeadRecord, decode_head
from quire.errors import NewerFormat
from tests.compat.make_store import SUPPORT, open_context
from tests.compat.places import BACKENDS, DATA, loaded, opened


@pytest.fixture(params=BACKENDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[quire.Storage]:
    """Return a fresh copy of the store that 0.1.0 wrote, on every durable backend."""
    backend: str = request.param
    with opened(backend, loaded(backend, tmp_path)) as found:
        yield found


def head_of(storage: quire.Storage, name: str = SUPPORT) -> HeadRecord:
    head = storage.head(name)
    assert head is not None
    return decode_head(head.value)


def test_the_first_write_upgrades_a_context(storage: quire.Storage) -> None:
    with quire.Library(storage) as library:
        assert {head_of(storage, name).format for name in library.list()} == {1}
        with open_context(library, SUPPORT) as ctx:
            ctx.render(preview=True)
            assert head_of(storage).format == 1  # reading upgrades nothing
            ctx.user("A new message.")
            assert head_of(storage).format == FORMAT == 2
            with ctx.fork("third try"):
                assert head_of(storage, "third try").format == 2
            assert ctx.check() == []
    assert {symptom.code for symptom in quire.doctor(storage).symptoms} <= {"unreached_records"}


def test_a_fork_of_an_old_context_has_the_new_format() -> None:
    with quire.Library(quire.MemoryStorage()) as library:
        library.import_(DATA / "export.quire")
        with library.open(SUPPORT, create=False) as ctx, ctx.fork("copy"):
            assert head_of(ctx.pages.storage).format == 1
            assert head_of(ctx.pages.storage, "copy").format == 2


def test_the_code_of_0_1_0_refuses_an_upgraded_context(monkeypatch: pytest.MonkeyPatch) -> None:
    with quire.open("memory:", "a", budget=8_000) as ctx:
        head = ctx.pages.storage.head("a")
        assert head is not None
        fields: list[object] = msgspec.msgpack.decode(head.value[:-4])
        assert fields[0] == 2
        monkeypatch.setattr(records, "FORMAT", 1)
        with pytest.raises(NewerFormat, match="format 2; this quire reads up to 1"):
            decode_head(head.value)
