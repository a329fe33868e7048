"""Help, misspelt commands, colours, interruptions, progress, completion, and exit codes."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import quire
from quire.cli import BROKEN_PIPE, INTERRUPTED, main
from quire.cli.commands import GROUPS, ROWS, load
from quire.cli.commands.completion import SHELLS, list_options
from quire.cli.terminal import Output, Progress, count_of, escape_control, width
from quire.storage.base import Commit
from quire.storage.urls import mask_address
from tests.cli.conftest import NAME, Run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_help_lists_every_command_once(run: Run) -> None:
    for words in (["--help"], ["-h"], ["help"]):
        ended = run(*words)
        assert (ended.code, ended.err) == (0, "")
    listed = [line.strip().partition("  ")[0] for line in ended.out.splitlines() if line.startswith("  ")]
    assert listed == [*ROWS] == [row.name for rows in GROUPS.values() for row in rows]
    without = run()
    assert (without.code, without.out, without.err) == (2, "", ended.out)


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version") == (0, f"quire {quire.__version__}\n", "")


@pytest.mark.parametrize(
    ("word", "meant"),
    [("tre", "tree"), ("rollbak", "rollback"), ("hsitory", "history"), ("serv", "serve"), ("unhide", "hide")],
)
def test_a_misspelt_command_is_answered_with_what_was_meant(run: Run, word: str, meant: str) -> None:
    ended = run(word, "agent.db")
    assert (ended.code, ended.out) == (2, "")
    assert f"no command {word!r}. Did you mean" in ended.err
    assert meant in ended.err


def test_a_word_like_no_command_is_answered_with_all_of_them(run: Run) -> None:
    ended = run("xylophone")
    assert ended.code == 2
    assert all(name in ended.err for name in ROWS)
    assert "options follow the command" in run("--json", "ls").err


@pytest.mark.parametrize("place", range(3))
def test_options_may_be_anywhere_after_the_command(run: Run, store: Path, place: int) -> None:
    words = [str(store), "mem-2"]
    words[place:place] = ["--context", NAME, "--depth", "1"]
    ended = run("tree", *words)
    assert (ended.code, len(ended.out.splitlines())) == (0, 2)


def test_each_module_holds_the_commands_of_the_table() -> None:
    for row in ROWS.values():
        assert load(row).examples
        assert all(example.strip() for example in load(row).examples)


def test_colours_are_for_terminals_and_never_for_programs(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = run("ls", store).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[36m" in run("ls", store).out
    assert "\x1b[" not in run("ls", store, "--json").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert run("ls", store).out == bare


def test_a_table_is_aligned_in_any_language(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    Output().table(("name", "n", "text"), [("退款必须", "1", "x" * 60), ("a", "1,000", "周五之前" * 9)], right=(1,))
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "name          n  text"
    assert [width(line) for line in lines] == [40, 40]
    assert [width(line[: line.index("1")]) for line in lines] == [14, 10]
    assert all(line.endswith("…") for line in lines)


def test_ctrl_c_ends_quietly(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(quire.Library, "list", interrupted)
    assert run("ls", store) == (INTERRUPTED, "", "")


def test_a_closed_pipe_is_not_an_error(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stdout", Closed())
    assert main(["ls", str(store)]) == BROKEN_PIPE


def test_a_password_is_not_printed(run: Run) -> None:
    url = "postgresql://ada:s3/c@r:et@db/agents"
    for words in ([url], ["ls", "a.db", url], ["ls", f"--where={url}", "a.db"], ["new", "a.db", "-c"], ["ls", url]):
        ended = run(*words)
        assert ended.code == 2
        assert "et@db" not in ended.out + ended.err
    assert mask_address("agent.db") == "agent.db"


def test_control_characters_become_symbols() -> None:
    assert escape_control("a\tb\nc\x1b[1m\x00\x7f\x9b\u202e") == "a\tb\nc␛[1m␀␡<U+009B><U+202E>"


def test_a_number_has_its_noun() -> None:
    assert [count_of(1, "page"), count_of(0, "page"), count_of(2_000, "page")] == ["1 page", "0 pages", "2,000 pages"]
    assert [count_of(1, "entry"), count_of(2, "entry")] == ["1 entry", "2 entries"]


# Progress


def test_progress_is_drawn_on_a_terminal_and_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "60")
    with Progress("Importing", 4) as progress:
        progress.at(1)  # too soon to draw
    assert screen.getvalue() == ""
    monkeypatch.setattr("quire.cli.terminal._PROGRESS_DELAY", 0)
    with Progress("Importing", 4) as progress:
        progress.at(1, "支持" * 40)
        progress.at(2)  # too soon after the last
    drawn = screen.getvalue()
    assert drawn.startswith("\r\x1b[KImporting ██████░░░░")
    assert "25 %" in drawn
    assert "50 %" not in drawn
    assert drawn.endswith("\r\x1b[K")
    assert width(drawn.split("\x1b[K")[1].rstrip("\r")) < 60


def test_progress_is_silent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    with Progress("Copying") as progress:
        progress.at(1_000)
    assert screen.getvalue() == ""


# Maintenance


def test_the_doctor_reports_problems(run: Run, store: Path) -> None:
    assert run("doctor", store).out.splitlines()[-1] == "1 context: no problems"
    with quire.Library(store) as library:
        library.storage.commit("half", Commit(0, -1, b"", ()))
    ended = run("doctor", store)
    assert ended.code == 1
    assert "copy_unfinished" in ended.out
    assert "problems found" in ended.out
    value = run("doctor", store, "--json").value()
    assert (value["healthy"], value["contexts"]) == (False, 2)
    assert run("doctor", store, "--context", NAME).code == 0


@pytest.mark.parametrize(("answer", "code"), [("yes\n", 0), ("no\n", 2), ("", 2)])
def test_purge_asks_for_confirmation(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    ended = run("purge", store, "mem-2")
    assert ended.code == code
    assert "mem-2 Wishes with 1 page in it" in ended.out
    with quire.open(store, NAME) as context:
        there = [page.index for page in context.pages.list_pages("mem")]
        assert ("mem-1" in there) is bool(code)


@pytest.mark.parametrize(("answer", "code"), [("yes\n", 0), ("no\n", 2)])
def test_erase_asks_for_confirmation(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    ended = run("erase", store, NAME)
    assert ended.code == code
    assert NAME in ended.out
    assert ("not reached: Backups" in ended.out) is not bool(code)
    with quire.Library(store) as library:
        assert library.exists(NAME) is bool(code)


def test_erase_refuses_forks_if_asked_to(run: Run, store: Path) -> None:
    run("fork", store, "what if", "--context", NAME)
    ended = run("erase", store, NAME, "--yes", "--no-forks")
    assert ended.code == 2
    assert "'what if'" in ended.err
    assert f"Run quire erase {store} '{NAME}' to remove them too." in ended.err
    assert run("erase", store, NAME, "--yes", "--json").value()["forks"] == ["what if"]


def test_scrub_erases_the_bytes_of_a_deleted_context(run: Run, store: Path) -> None:
    with quire.open(store, "gone") as context:
        context.user("the-secret-of-zanzibar")
    run("delete", store, "gone", "--yes")
    assert b"the-secret-of-zanzibar" in store.read_bytes()
    assert run("scrub", store, "--json").value() == {"scrubbed": True, "remains": []}
    assert b"the-secret-of-zanzibar" not in store.read_bytes()
    assert run("scrub", store).out == "The store was rewritten.\n"


# Refused input


@pytest.mark.parametrize(
    "words", [("--context", " "), ("--context", ""), ("--system", "\ud800"), ("--budget", "0")], ids=str
)
def test_a_refused_new_creates_nothing(run: Run, tmp_path: Path, words: tuple[str, str]) -> None:
    assert run("new", tmp_path / "a.db", *words).code == 2
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize("command", [("stats",), ("import", "none.json"), ("migrate", "b.db"), ("check",)], ids=str)
def test_an_empty_name_is_no_context(run: Run, store: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "none.json").write_text('[{"role": "user", "content": "hello"}]')
    name, *files = command
    refused = run(name, store, *(tmp_path / file for file in files), "--context", "")
    assert (refused.code, refused.err.startswith("quire: Context name '' is not allowed")) == (2, True)


@pytest.mark.parametrize(
    "words",
    [("rollback",), ("rollback", "--before"), ("fork", "new", "--at"), ("import", "-", "--conversation")],
    ids=str,
)
def test_a_number_with_thousands_of_digits_is_refused(run: Run, store: Path, words: tuple[str, ...]) -> None:
    refused = run(words[0], store, *words[1:], "1" * 5_000)
    assert (refused.code, len(refused.err) < 300) == (2, True)


def test_a_checkpoint_is_not_named_like_an_entry(run: Run, store: Path) -> None:
    assert "CHECKPOINT is '2'; a number is an entry" in run("checkpoint", store, "2").err
    assert run("checkpoint", store, "v2").code == 0


@pytest.mark.parametrize("form", ["quire", "json"])
def test_a_dry_run_refuses_what_the_import_refuses(run: Run, store: Path, tmp_path: Path, form: str) -> None:
    file = tmp_path / f"copy.{form}"
    assert run("export", store, file, "--format", form).code == 0
    assert "nothing was stored" in run("import", store, file, "--context", "new", "--dry-run").out
    assert "nothing was stored" in run("import", tmp_path / "new.db", file, "--context", NAME, "--dry-run").out
    assert not (tmp_path / "new.db").exists()
    run("checkpoint", store, "later")
    for more in ((), ("--dry-run",)):
        assert "exists already" in run("import", store, file, "--context", NAME, *more).err


@pytest.mark.parametrize("form", ["quire", "json"])
@pytest.mark.parametrize("path", [".", "/", "x" * 300])
def test_an_export_to_an_impossible_path_is_refused(run: Run, store: Path, form: str, path: str) -> None:
    refused = run("export", store, path, "--format", form, "--overwrite")
    assert (refused.code, refused.err.startswith("quire: Cannot write '")) == (1, True)


@pytest.mark.parametrize("name", ["", "A=B"])
def test_a_gateway_needs_the_name_of_a_variable(run: Run, store: Path, name: str) -> None:
    refused = run("gateway", "run", store, "--env", name, "--", "true")
    assert (refused.code, refused.err) == (2, f"quire: --env is {name!r}; the name of a variable is needed.\n")


def test_a_folder_of_a_document_is_refused(run: Run, store: Path) -> None:
    refused = run("write", store, "rules", "none", "--document", "--folder", "mem-2")
    assert (refused.code, refused.err) == (2, "quire: --folder is for notes: remove --document.\n")


def test_an_expiry_that_removes_nothing_claims_nothing(run: Run, store: Path) -> None:
    assert run("expire", store, "0h", "--dry-run").out == f"{NAME}: would remove\n1 context\n"
    assert run("expire", store, "999999w", "--dry-run").out == "0 contexts\n"
    assert run("expire", store, "0h", "--archive", "", "--dry-run").code == 2


@pytest.mark.parametrize("words", [("tree",), ("tree", "a.db", "--bogus"), ("tre", "a.db")], ids=str)
def test_wrong_arguments_are_json_errors_for_programs(run: Run, words: tuple[str, ...]) -> None:
    refused = run(*words, "--json")
    assert (refused.code, json.loads(refused.err)["error"]["code"]) == (2, "invalid_value")


def test_text_that_is_not_utf_8_is_refused(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8"))
    refused = run("write", store, "note", "-")
    assert (refused.code, refused.err.startswith("quire: Standard input is not UTF-8")) == (2, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_an_error(store: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "quire", "stats", str(store)], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (ended.returncode, ended.stderr) == (1, "quire: Cannot write the output: No space left on device.\n")


def test_a_removed_page_is_purged_after_confirmation(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with quire.open(store, NAME) as context:
        context.pages.remove_page("mem-1")
    monkeypatch.setattr("sys.stdin", Terminal("yes\n"))
    assert run("purge", store, "mem-99").code == 2
    purged = run("purge", store, "mem-1")
    assert (purged.code, "mem-1 (removed)" in purged.out, "removed 1 page" in purged.out) == (0, True, True)


# Completion


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completion_script_has_every_command_and_option(run: Run, shell: str) -> None:
    script = run("completion", shell).out
    for name, options in list_options().items():
        assert name in script
        for option in options:
            for word in option.option_strings:
                assert (f"-l {word[2:]}" if shell == "fish" and word.startswith("--") else word.lstrip("-")) in script
            assert all(choice in script for choice in option.choices or ())


def test_bash_completes_commands_options_and_what_they_take(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "quire.bash"
    script.write_text(run("completion", "bash").out)

    def complete(*words: str) -> set[str]:
        listed = " ".join(f"'{word}'" for word in words)
        code = (
            f"source {script}; COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _quire;"
            ' printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
        assert done.stderr == ""
        return set(done.stdout.split())

    assert complete("quire", "ro") == {"rollback"}
    assert complete("quire", "rollback", "--d") == {"--dry-run"}
    assert complete("quire", "render", "--format", "") == {"text", "openai", "anthropic", "responses"}
    assert complete("quire", "tree", "quire") == {"quire.bash"}


# Real processes


def started(*words: object, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "quire", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environment},
    )


def test_a_closed_pipe_ends_a_process_quietly(store: Path) -> None:
    process = started("tree", store)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(30) == BROKEN_PIPE
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.skipif(os.name == "nt", reason="sh closes the streams")
def test_a_process_without_standard_streams_works(store: Path) -> None:
    for closed in (">&-", "<&- >&- 2>&-"):
        line = ["sh", "-c", f'exec "$0" -m quire tree "$1" {closed}', sys.executable, str(store)]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_any_text_is_printed_in_any_locale(store: Path) -> None:
    process = started("tree", store, PYTHONIOENCODING="ascii", LC_ALL="C")
    printed, complaint = process.communicate(timeout=30)
    assert (process.returncode, complaint) == (0, "")
    assert "座位" in printed


def test_help_loads_nothing_of_the_library(tmp_path: Path) -> None:
    code = (
        "import sys; from quire.cli import main; main(['--help']);"
        " loaded = {'msgspec', 'apsw', 'argparse', 'quire.context'} & sys.modules.keys();"
        " sys.exit(', '.join(loaded) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
