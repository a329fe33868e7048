"""The command `python -m proof`: results, page, and exit code."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from proof import __main__ as command
from proof import results
from proof.topic import Check, Control, Options


class Example:
    """A topic that finds what it is given."""

    TITLE = "Example"
    ABOUT = "An example."

    def __init__(self, findings: list[str], found: bool) -> None:
        self.findings = findings
        self.found = found
        self.seen: list[Options] = []

    def run(self, options: Options) -> Iterator[Check]:
        self.seen.append(options)
        for backend in options.chosen("sqlite", "file"):
            yield Check(name="a check", backend=backend, count=3, unit="kills", findings=self.findings)

    def control(self, options: Options) -> Iterator[Control]:
        yield Control(name="a control", found=self.found, evidence=f"evidence in {options.folder}")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(results, "STORE", tmp_path)
    monkeypatch.setattr(command, "PAGE", tmp_path / "page.md")
    return tmp_path


def start(monkeypatch: pytest.MonkeyPatch, topic: Example, *arguments: str) -> int:
    monkeypatch.setattr(command, "topics", lambda: {"crash": topic})
    return command.main(arguments)


@pytest.mark.parametrize(("findings", "found", "code"), [([], True, 0), (["lost"], True, 1), ([], False, 1)])
def test_the_command_fails_if_a_check_finds_something_or_a_control_finds_nothing(
    findings: list[str], found: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start(monkeypatch, Example(findings, found)) == code


def test_stored_results_replace_those_of_the_same_check_and_backend(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Example([], True)
    start(monkeypatch, topic, "--store", "--seed", "7", "--minutes", "1")
    start(monkeypatch, topic, "--store", "--seed", "8", "--backend", "file")
    stored = results.load("crash")
    assert [(one.check.backend, one.origin.seed) for one in stored.checks] == [("file", 8), ("sqlite", 7)]
    assert [one.control.evidence for one in stored.controls] == ["evidence in FOLDER/control"]
    assert [options.seconds for options in topic.seen] == [60, command.SHORT_MINUTES * 60]
    page = (store / "page.md").read_text()
    assert "| a check | file | 3 kills |  | nothing |" in page
    assert "`python -m proof --seed 8 --backend file`, seed 8" in page


def test_a_run_without_store_writes_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, Example([], True))
    assert list(store.iterdir()) == []


def test_the_page_is_generated_from_the_stored_results() -> None:
    page = command.generated_page(command.topics())
    assert results.PAGE.read_text(encoding="utf-8") == page, "Run `python -m proof --page`."


def test_no_stored_check_found_anything_and_every_stored_control_did() -> None:
    for name in command.topics():
        stored = results.load(name)
        assert not [one for one in stored.checks if command.is_bad(one.check)]
        assert not [one for one in stored.controls if command.is_bad(one.control)]


def test_every_defect_on_the_page_names_a_test_that_exists() -> None:
    for defect in results.load_defects():
        path, _, name = defect.test.partition("::")
        assert defect.topic in command.ORDER
        assert f"def {name}(" in (results.ROOT / path).read_text(encoding="utf-8")
