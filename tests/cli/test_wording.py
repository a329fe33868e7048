"""Errors name commands and options of the command line, not calls of the library."""

import re
from argparse import Namespace
from pathlib import Path

import pytest

import quire
from quire.cli.command import build_parser
from quire.cli.commands import ROWS, load
from quire.cli.wording import CommandWording, argument_names
from quire.errors import Hint, InvalidOperation, InvalidValue
from tests.cli.conftest import NAME, Run

WORDING = CommandWording(Namespace(where="a b.db", context=None), {"limit": "--limit", "index": "PAGE"})


@pytest.mark.parametrize(
    ("hint", "sentence"),
    [
        (Hint("expand", "usr-3", purpose="to open it"), "Run quire expand 'a b.db' usr-3 to open it."),
        (Hint("find", purpose="to look for it"), "Run quire find 'a b.db' QUERY to look for it."),
        (Hint("export", arguments="overwrite=True"), "Run quire export 'a b.db' FILE --overwrite."),
        (Hint("migrate", arguments="replace=True"), "Run quire migrate 'a b.db' TARGET --replace."),
        (Hint("refresh", purpose="and retry"), "Run the command again."),
        (Hint("refresh", purpose="to find out"), "Run quire history 'a b.db' to find out."),
        (Hint("undo", arguments="17", purpose="first"), "Run quire undo 'a b.db' 17 first."),
        (Hint("rollback", arguments="before=3"), "Run quire rollback 'a b.db' --before 3."),
        (Hint("children", "mem-1", purpose="to list its pages"), "Run quire tree 'a b.db' mem-1 to list its pages."),
        (Hint("move_page", "mem-1", arguments="target"), "Run quire move 'a b.db' mem-1 FOLDER."),
        (Hint("open", arguments="'x'"), "Choose another name."),
        (Hint("add_segment", purpose="to add one"), "Call add_segment() to add one."),
        (Hint("Library", arguments="create=True"), ""),
    ],
)
def test_a_hint_names_the_command_if_there_is_one(hint: Hint, sentence: str) -> None:
    assert WORDING.hint(hint) == sentence


def test_a_command_is_for_the_store_and_the_context_that_were_given() -> None:
    given = Namespace(where="postgresql://ada:secret@db/agents", context="support 42")
    command = CommandWording(given).command(Hint("hide", "usr-1"))
    assert command == "quire hide postgresql://ada@db/agents usr-1 --context 'support 42'"
    assert CommandWording(Namespace()).command(Hint("hide", "usr-1")) == "quire hide WHERE usr-1"


def test_a_hint_for_another_context_names_it() -> None:
    hint = Hint("unpin", "usr-1", purpose="first", context="what if")
    for given in (None, "ada"):
        wording = CommandWording(Namespace(where="a.db", context=given))
        assert wording.hint(hint) == "Run quire unpin a.db usr-1 --context 'what if' first."


def test_a_purge_that_a_pin_in_a_fork_refuses_names_the_command_that_helps(run: Run, store: Path) -> None:
    for words in (("pin", "mem-1"), ("fork", "wi"), ("unpin", "mem-1", "-c", NAME)):
        assert run(words[0], store, *words[1:]).code == 0
    assert f"quire unpin {store} mem-1 --context wi first" in run("purge", store, "mem-1", "-c", NAME, "--yes").err
    assert run("unpin", store, "mem-1", "-c", "wi").code == 0
    assert run("purge", store, "mem-1", "-c", NAME, "--yes").code == 0


def test_a_command_in_a_hint_has_a_context_only_if_it_takes_one() -> None:
    wording = CommandWording(Namespace(where="a.db", context="ada"))
    for row in ROWS.values():
        if not row.name.startswith(("gateway", "demo", "completion")):
            command = wording.command(Hint(row.name))
            takes = "context" in argument_names(build_parser(row.name, row.summary, load(row)))
            assert (command is not None and "--context ada" in command) == takes


def test_a_missing_store_names_the_option_that_creates_it_only_if_there_is_one() -> None:
    wording = CommandWording(Namespace(where="a.db"), {"create": "--create"})
    assert wording.hint(Hint("Library", arguments="create=True")) == "Add --create to create it."


def test_an_option_of_the_command_that_ran_is_to_be_added_to_it() -> None:
    wording = CommandWording(Namespace(where="a.db"), {"overwrite": "--overwrite", "before": "--before"})
    hint = Hint("export", arguments="overwrite=True", purpose="to replace it")
    assert wording.hint(hint) == "Add --overwrite to replace it."
    assert wording.hint(Hint("rollback", arguments="before=3")) == "Run quire rollback a.db --before 3."


@pytest.mark.parametrize("form", ["quire", "json", "html", "openai"])
def test_an_export_to_an_existing_file_names_only_the_missing_option(run: Run, store: Path, form: str) -> None:
    words = ("export", store, store.parent / "e.file", "-f", form)
    assert run(*words).code == 0
    refused = run(*words)
    assert (refused.code, refused.err.endswith("exists already. Add --overwrite to replace it.\n")) == (2, True)
    assert run(*words, "--overwrite").code == 0


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        (("new", "memory:"), "WHERE"),
        (("import", "memory:", "FILE"), "WHERE"),
        (("migrate", "STORE", "memory:"), "TARGET"),
    ],
)
def test_a_store_that_is_lost_when_the_command_ends_is_refused(
    words: tuple[str, ...], argument: str, run: Run, store: Path, tmp_path: Path
) -> None:
    file = tmp_path / "messages.json"
    file.write_text('[{"role": "user", "content": "Hello"}]')
    given = [{"FILE": file, "STORE": store}.get(word, word) for word in words]
    refused = run(*given)
    assert (refused.code, refused.out) == (2, "")
    assert f"{argument} is 'memory:', which is lost" in refused.err
    assert "sqlite:FILE" in refused.err
    assert run("import", "memory:", file, "--dry-run").code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--recall", "abc"), "argument --recall: 'abc' is not a share from 0 to 1, and not auto"),
        (("--recall", "2"), "argument --recall: '2' is not a share from 0 to 1, and not auto"),
        (("--recall", "nan"), "argument --recall: 'nan' is not a share from 0 to 1, and not auto"),
        (("--recall-floor", "x"), "argument --recall-floor: 'x' is not a number from 0"),
        (("--recall-floor", "-1"), "argument --recall-floor: '-1' is not a number from 0"),
        (("--cache",), "--cache is for --format anthropic, not for text."),
        (("--cache", "-f", "openai"), "--cache is for --format anthropic, not for openai."),
    ],
)
def test_a_wrong_option_of_render_is_named_with_the_accepted_values(
    words: tuple[str, ...], told: str, run: Run, store: Path
) -> None:
    refused = run("render", store, *words)
    assert (refused.code, refused.out) == (2, "")
    assert told in refused.err


def test_a_missing_file_of_prefill_times_is_named(run: Run, store: Path) -> None:
    refused = run("replay", store, "--prefill", "nope.json")
    assert refused.code == 2
    assert refused.err.startswith("quire: --prefill is 'nope.json', which cannot be read: No such file")


def test_an_argument_is_named_as_it_is_typed() -> None:
    error = InvalidValue("is 0; a whole number from 1 is needed.", argument="limit")
    assert error.describe(WORDING) == "--limit is 0; a whole number from 1 is needed."
    assert InvalidOperation("is unknown.", argument="other").describe(WORDING) == "other is unknown."


@pytest.mark.parametrize(
    ("call", "command"),
    [
        ("hide('usr-1')", "quire hide 'a b.db' usr-1"),
        ("undo(12)", "quire undo 'a b.db' 12"),
        ("windows.register(…)", "windows.register(…)"),
        ("render(include_system_prompt=True)", "render(include_system_prompt=True)"),
        ("set_segment_permission(…)", "set_segment_permission(…)"),
    ],
)
def test_the_call_of_an_explanation_becomes_a_command(call: str, command: str) -> None:
    assert WORDING.command_of_call(call) == command


def test_every_command_in_a_hint_exists() -> None:
    assert {"expand", "find", "export", "migrate", "undo", "hide"} <= ROWS.keys()


def test_errors_name_commands_and_options(run: Run, store: Path, tmp_path: Path) -> None:
    (tmp_path / "there.quire").write_text("")
    for words, text in (
        (("show", store, "mem-99"), "quire find"),
        (("new", store, "-c", NAME), "exists already"),
        (("export", store, tmp_path / "there.quire"), "--overwrite"),
        (("undo", store, 9_999), "quire history"),
        (("backup", store, "mysql://there"), "quire migrate"),
        (("find", store, "x", "--limit", 0), "--limit is 0; a whole number from 1"),
    ):
        result = run(*words)
        assert result.code == 2
        assert text in result.err
        assert not re.search(r"[a-z]\(|=True", result.err)


def test_why_names_the_command_that_changes_it(run: Run, store: Path) -> None:
    assert f"quire hide {store} usr-1\n" in run("why", store, "usr-1").out
    assert f"quire hide {store} usr-1 --context '{NAME}'\n" in run("why", store, "usr-1", "-c", NAME).out
    assert f"quire unpin {store} sys-1" in run("hide", store, "sys-1").err
    assert run("why", store, "usr-1", "--json").value()["call"] == "hide('usr-1')"


def test_a_missing_argument_is_answered_with_the_command_that_lists_its_values(run: Run, store: Path) -> None:
    for words, text in (
        (("undo", store), "required: ENTRY; quire history lists the entries"),
        (("rollback", store), "Give either POINT or --before MESSAGE. quire history lists"),
        (("rollback", store, "before", "--before", 0), "Give either POINT or --before MESSAGE."),
        (("show", store), "required: PAGE; quire tree shows the pages"),
    ):
        result = run(*words)
        assert (result.code, text in result.err) == (2, True)


@pytest.mark.parametrize("form", ["quire", "json"])
def test_an_export_into_a_missing_folder_names_the_requested_file(run: Run, store: Path, form: str) -> None:
    result = run("export", store, store.parent / "nowhere" / "a.file", "--format", form)
    assert result.code == 1
    assert "a.file'" in result.err
    assert ".new" not in result.err


def test_the_doctor_names_its_option(run: Run, tmp_path: Path) -> None:
    quire.open(tmp_path / "a.db").close()
    storage = quire.SQLiteStorage(tmp_path / "a.db")
    storage._db.execute("INSERT INTO body (id, value) VALUES (?, ?)", (99 << 40, b"stray"))
    storage.close()
    assert f"quire doctor {tmp_path / 'a.db'} --repair" in run("doctor", tmp_path / "a.db").out
    for result in (run("doctor", tmp_path / "a.db"), run("doctor", tmp_path / "a.db", "--json")):
        assert not re.search(r"[a-z]\(|=True", result.out)
