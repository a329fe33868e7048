"""What is stored: batches in JSON, one way back, damage, file modes, leases, errors between processes."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import quire
from quire import Context, Permission, QuireError
from quire.cli import main
from tests.known_failures import given, until_step


def _reloaded(ctx: Context) -> Context:
    """Return a new context that was made from the JSON of another one."""
    copy = quire.open("memory:")
    copy.pages.unmarshal(ctx.pages.marshal())
    return copy


def _texts(ctx: Context) -> list[str]:
    return [message.text for message in ctx.messages()]


def _in_batch() -> Context:
    """Return a context with an open batch that has deleted the first of two messages."""
    ctx = quire.open("memory:")
    ctx.user("one")
    ctx.assistant("two")
    ctx.conversation.batch_start()
    ctx.delete([0])
    return ctx


def test_the_end_of_a_batch_that_was_loaded_undoes_its_marks() -> None:
    ctx = _reloaded(_in_batch())
    given(_texts(ctx) == ["two"])
    ctx.conversation.batch_end(0)
    assert _texts(ctx) == ["one", "two"]


def test_loading_its_own_json_keeps_the_batch_of_a_context() -> None:
    ctx = _in_batch()
    ctx.pages.unmarshal(ctx.pages.marshal())
    ctx.conversation.batch_end(0)
    assert _texts(ctx) == ["one", "two"]


def test_a_fork_in_an_open_batch_keeps_what_the_batch_did() -> None:
    ctx = _in_batch()
    ctx.user("tmp")
    fork = ctx.fork("f")
    assert _texts(fork) == _texts(ctx) == ["two", "tmp"]
    assert fork.check() == []


def test_the_end_of_a_batch_keeps_the_prompt_that_was_there_before() -> None:
    ctx = quire.open("memory:", key="zz")
    ctx.system("PROMPT")
    ctx.user("u")
    ctx.conversation.batch_start(0)
    ctx.conversation.batch_end(0)
    assert "PROMPT" in [message["content"] for message in ctx.render(preview=True).openai()]


def test_a_message_that_comes_again_after_loading_is_known_by_its_id() -> None:
    ctx = quire.open("memory:")
    ctx.user("a", id="m1")
    loaded = _reloaded(ctx)
    loaded.user("again", id="m1")
    assert _texts(loaded) == ["a"]


def test_loading_keeps_the_indices_of_messages() -> None:
    ctx = quire.open("memory:")
    for text in ("a", "b", "c"):
        ctx.user(text)
    ctx.pages.remove_page("usr-1")
    assert [message.index for message in _reloaded(ctx).messages()] == [message.index for message in ctx.messages()]


def _loaded_after_a_cleanup(*, removed: bool) -> list[str]:
    """Load a document from before the cleanup that destroyed the first of two messages; return all messages."""
    ctx = quire.open("memory:")
    for text in ("a", "b"):
        ctx.user(text)
    document = ctx.pages.marshal()
    ctx.delete([0])
    given(ctx.conversation.cleanup().renumbered == {1: 0})
    if removed:
        ctx.pages.remove_page("usr-2")
    ctx.pages.unmarshal(document)
    given(_texts(ctx) == ["a", "b"])
    return [message.text for message in ctx.messages(all=True)]


def test_loading_a_document_from_before_a_cleanup_keeps_the_indices_that_the_cleanup_gave() -> None:
    assert _loaded_after_a_cleanup(removed=False) == ["b", "a"]


@until_step(2, "loading numbers removed messages again", example_of="unmarshal_after_cleanup")
def test_loading_a_document_from_before_a_cleanup_keeps_the_index_of_a_removed_message() -> None:
    assert _loaded_after_a_cleanup(removed=True) == ["b", "a"]


@pytest.mark.parametrize("part", [0.3, 0.5, 0.8])
def test_a_flipped_bit_in_the_write_ahead_log_is_reported(part: float, tmp_path: Path) -> None:
    ctx = quire.open(tmp_path / "a.db", "m", key="kk")
    for number in range(30):
        ctx.user(f"m{number}")
    copy, log = tmp_path / "b.db", bytearray((tmp_path / "a.db-wal").read_bytes())
    log[int(len(log) * part)] ^= 1
    copy.write_bytes((tmp_path / "a.db").read_bytes())
    (tmp_path / "b.db-wal").write_bytes(log)
    assert not quire.doctor(copy).healthy


def test_an_erasure_tells_the_truth_about_a_symbolic_link(tmp_path: Path) -> None:
    where, target = f"file:{tmp_path}/s", tmp_path / "elsewhere"
    target.mkdir()
    quire.open(where, "m").close()
    (pages,) = (tmp_path / "s").rglob("pages")
    for path in sorted(pages.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    pages.rmdir()
    pages.symlink_to(target)
    with quire.open(where, "m") as ctx:
        ctx.pages.create_detail_page("N", "", "SECRETTEXT", "mem-0")
    with quire.Library(where) as library:
        erased = library.erase("m")
    left = [path for path in target.rglob("*") if path.is_file() and b"SECRETTEXT" in path.read_bytes()]
    assert not (left and erased.scrubbed), left


def _write_audit(where: str, folder: Path) -> None:
    with quire.open(where, "m") as ctx:
        ctx.audit(folder / "audit.jsonl")


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda where, folder: quire.open(folder / "a.db").user("x"), id="file"),
        pytest.param(lambda where, folder: quire.open(f"file:{folder}/store").user("x"), id="folder"),
        pytest.param(lambda where, folder: quire.backup(where, str(folder / "b.db")), id="backup"),
        pytest.param(lambda where, folder: main(["export", where, str(folder / "out.jsonl")]), id="export"),
        pytest.param(_write_audit, id="audit"),
    ],
)
def test_what_quire_writes_is_for_its_owner_only(
    write: Callable[[str, Path], object], tmp_path: Path, open_umask: None
) -> None:
    where, made = str(tmp_path / "a.db"), tmp_path / "made"
    with quire.open(where, "m") as ctx:
        ctx.user("hello")
    made.mkdir(mode=0o700)
    write(where, made)
    written = list(made.rglob("*"))
    given(written)
    assert [path.name for path in written if path.stat().st_mode & 0o077] == []


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Let others read new files, as most systems do."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda ctx: ctx.pages.get_page("mem-99"), id="page"),
        pytest.param(lambda ctx: ctx.pages.set_segment_permission("nope", Permission.PRIVATE), id="segment"),
        pytest.param(lambda ctx: ctx.windows.close("nope"), id="window"),
        pytest.param(lambda ctx: ctx.windows.open("nope"), id="app"),
        pytest.param(lambda ctx: ctx.render(bugdet=1), id="option"),
        pytest.param(lambda ctx: quire.Library("memory:").open("nope", create=False), id="context"),
        pytest.param(lambda ctx: ctx.render(max_tokens=1), id="room"),
        pytest.param(lambda ctx: ctx.tool_result("nope", "x"), id="value"),
    ],
)
def test_an_error_is_the_same_in_another_process(call: Callable[[Context], object]) -> None:
    with pytest.raises(QuireError) as raised:
        call(quire.open("memory:"))
    try:
        copy = pickle.loads(pickle.dumps(raised.value))
    except TypeError as error:
        raise AssertionError(error) from None
    assert (type(copy), str(copy), copy.code) == (type(raised.value), str(raised.value), raised.value.code)
    assert vars(copy) == vars(raised.value)


_ONE_DAY_AHEAD = """
import os, sys, time
from pathlib import Path
import quire
ahead, read = 86_400, Path.read_text
real, real_ns = time.time, time.time_ns
time.time, time.time_ns = lambda: real() + ahead, lambda: real_ns() + ahead * 10**9
Path.read_text = lambda path, *rest, **named: "other" if path.name == "boot_id" else read(path, *rest, **named)
turn = quire.Library(sys.argv[1]).turn("u", key="one")
turn.__enter__().user("q")
os._exit(9)
"""


@pytest.mark.slow
def test_a_dead_worker_with_a_wrong_clock_holds_a_turn_no_longer_than_a_lease(tmp_path: Path) -> None:
    where = tmp_path / "a.db"
    assert subprocess.run([sys.executable, "-c", _ONE_DAY_AHEAD, str(where)], check=False).returncode == 9
    with quire.Library(where) as library, library.turn("u", key="two", wait=40) as ctx:
        ctx.user("mine")
        assert _texts(ctx)[-1] == "mine"
