"""A context in a folder that another process drops while a call waits for its lock: nothing of it comes back."""

from collections.abc import Callable
from pathlib import Path

import pytest

import quire
from quire import Conflict, FileStorage, NoSuchContext
from quire.storage.base import Commit
from quire.storage.file import storage as module
from quire.testing.case import HEAD, pages

MOMENTS = ["_open_lock", "_wait_for"]
"""The functions before which the context is dropped: its lock is not open yet, or it is open and not held."""

CALLS: dict[str, Callable[[FileStorage], object]] = {
    "commit": lambda storage: storage.commit("c", Commit(1, 2, HEAD, pages([2]))),
    "fork": lambda storage: storage.fork("c", "f", Commit(1, 2, HEAD, ()), {}),
    "drop": lambda storage: storage.drop("c"),
    "scrub": lambda storage: storage.scrub(["c"]),
    "open": lambda storage: storage.head("c"),
    "close": lambda storage: storage.close(),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    quire.open(FileStorage(tmp_path), "c").user("a secret")
    return tmp_path


def drop_before(moment: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another handle drop the context when the next call reaches this moment."""
    wait = getattr(module, moment)

    def drop_first(*arguments: object) -> object:
        monkeypatch.setattr(module, moment, wait)
        FileStorage(root).drop("c")
        return wait(*arguments)

    monkeypatch.setattr(module, moment, drop_first)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("call", CALLS)
def test_a_dropped_context_leaves_nothing(root: Path, moment: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(root)
    if call != "open":
        storage.head("c")
    drop_before(moment, root, monkeypatch)
    if call in ("commit", "fork"):
        with pytest.raises(Conflict, match="'c' does not exist"):
            CALLS[call](storage)
    else:
        CALLS[call](storage)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_fork_of_a_dropped_context_says_so(root: Path, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = quire.open(FileStorage(root), "c")
    drop_before(moment, root, monkeypatch)
    with pytest.raises(NoSuchContext, match="was deleted"):
        ctx.fork("f")
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_new_context_is_created_in_a_new_folder(root: Path, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FileStorage(root).drop("c")
    (root / "c").mkdir()
    storage = FileStorage(root)
    drop_before(moment, root, monkeypatch)
    quire.open(storage, "c").user("another one")
    assert [message.content for message in quire.open(FileStorage(root), "c").messages()] == ["another one"]
