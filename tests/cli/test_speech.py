"""The command line speaks of its own commands and options, whatever the library calls them."""

import ast
import re
from pathlib import Path

import pytest

import quire
from quire.cli.speech import spoken
from tests.cli.conftest import NAME, Run

PYTHON_ONLY = {"add_segment", "batch_start", "temporary", "set_storage", "register", "move_page", "delete", "messages"}
PYTHON_ONLY |= {"generate_index", "tool_result", "close_calls", "replace", "collect", "archive"}
"""What only a program can do: there is no command for it."""
LOWER = (
    "errors.py",
    "context.py",
    "library.py",
    "engine.py",
    "state.py",
    "system",
    "conversation",
    "storage",
    "operations",
)


def hints() -> set[str]:
    """Texts of the library that name a call or a keyword, as far as errors and findings are made of them."""
    package = Path(quire.__file__).parent
    files = [file for place in LOWER for file in (package / place).rglob("*.py")] + [package / name for name in LOWER]
    found = set()
    for file in {file for file in files if file.is_file()}:
        tree = ast.parse(file.read_text())
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs)
        for text in (node.value for node in texts if isinstance(node.value, str)):
            if re.search(r"[a-z_]+\(\)|\w=True", text) and not re.match(r"\s*(SELECT|INSERT|UPDATE)", text):
                found.add(text)
    return found


def test_every_hint_of_the_library_has_words_of_the_command_lines() -> None:
    told = hints()
    assert len(told) > 20
    left = {call for text in told for call in re.findall(r"([a-z_]+)\([^)]*\)|\w+=True", spoken(text))}
    assert left - PYTHON_ONLY == set()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("No page 'mem-9' in this context. Use find() to look for it.", "quire find looks for it."),
        ("it is pinned. unpin('mem-3') first.", "it is pinned. quire unpin WHERE mem-3 first."),
        ("add_segment() makes one.", "add_segment() makes one."),
        ("Give it to nobody('mem-3').", "Give it to nobody('mem-3')."),
    ],
)
def test_a_call_becomes_a_command_where_there_is_one(said: str, words: str) -> None:
    assert spoken(said).endswith(words)


def test_errors_speak_of_commands_and_options(run: Run, store: Path, tmp_path: Path) -> None:
    (tmp_path / "there.quire").write_text("")
    for words, told in (
        (("show", store, "mem-99"), "quire find"),
        (("new", store, "-c", NAME), "choose another name"),
        (("export", store, tmp_path / "there.quire"), "--overwrite"),
        (("undo", store, 9_999), "quire history"),
        (("backup", store, "mysql://there"), "quire migrate"),
        (("find", store, "x", "--limit", 0), "--limit is 0; a whole number from 1"),
    ):
        ended = run(*words)
        assert ended.code == 2
        assert told in ended.err
        assert not re.search(r"[a-z]\(|=True", ended.err)


def test_why_names_the_command_that_changes_it(run: Run, store: Path) -> None:
    assert f"quire hide {store} usr-1\n" in run("why", store, "usr-1").out
    assert f"quire hide {store} usr-1 --context '{NAME}'\n" in run("why", store, "usr-1", "-c", NAME).out
    assert f"quire unpin {store} sys-1 first" in run("hide", store, "sys-1").err
    assert run("why", store, "usr-1", "--json").value()["call"] == "hide('usr-1')"


def test_a_missing_argument_is_told_with_the_command_that_lists_what_there_is(run: Run, store: Path) -> None:
    for words, told in (
        (("undo", store), "required: ENTRY; quire history lists the entries"),
        (("rollback", store), "required: POINT; quire history lists"),
        (("show", store), "required: PAGE; quire tree shows the pages"),
    ):
        ended = run(*words)
        assert (ended.code, told in ended.err) == (2, True)


@pytest.mark.parametrize("form", ["quire", "json"])
def test_an_export_into_no_folder_names_the_file_that_was_asked_for(run: Run, store: Path, form: str) -> None:
    ended = run("export", store, store.parent / "nowhere" / "a.file", "--format", form)
    assert ended.code == 1
    assert "a.file'" in ended.err
    assert ".new" not in ended.err


def test_the_doctor_speaks_of_its_option(run: Run, tmp_path: Path) -> None:
    quire.open(tmp_path / "a.db").close()
    storage = quire.SQLiteStorage(tmp_path / "a.db")
    storage._db.execute("INSERT INTO body (id, value) VALUES (?, ?)", (99 << 40, b"stray"))
    storage.close()
    ended = run("doctor", tmp_path / "a.db")
    assert "--repair removes them" in ended.out
    assert "--repair removes them" in str(run("doctor", tmp_path / "a.db", "--json").value())
