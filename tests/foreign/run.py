"""Run the frameworks' own tests against quire's adapters: `python -m tests.foreign.run`.

For each suite, the script gets the pinned sdist from the package index with pip, puts quire's adapter in the place of
the framework's class (`bindings.py`), and runs the tests. `expected.json` lists the tests that fail, each with its
reason. The script fails if another test fails, and also if a listed test passes: the list may only shrink. The results
are written into docs/adapters.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
HELP = ("pytest-mock",)
"""What the tests of the frameworks import."""


class Suite(NamedTuple):
    """The tests of a framework: its package, the tests in its sdist, our class, and the page with the results."""

    package: str
    version: str
    tests: tuple[str, ...]
    adapter: str
    page: str
    options: tuple[str, ...] = ()


SUITES = (
    Suite(
        "openai-agents",
        "0.24.0",
        (
            "tests/memory/test_session.py",
            "tests/memory/test_session_limit.py",
            "tests/extensions/memory/test_encrypt_session.py",
        ),
        "QuireSession",
        "openai-agents.md",
    ),
    Suite(
        "anthropic",
        "2.8.0",
        ("tests/lib/tools/memory_tools/test_filesystem.py",),
        "QuireMemoryTool",
        "anthropic.md",
        ("--noconftest",),  # it needs packages that these tests do not use
    ),
    Suite("langgraph-checkpoint", "4.3.1", ("tests/test_store.py",), "QuireStore", "langgraph.md"),
    Suite(
        "langchain-core",
        "1.7.2",
        ("tests/unit_tests/chat_history/test_chat_history.py", "tests/unit_tests/runnables/test_history.py"),
        "QuireChatMessageHistory",
        "langchain.md",
        ("--noconftest",),
    ),
)


def install(suite: Suite, folder: Path) -> None:
    """Install the pinned version, and what the tests need, in a folder; the environment stays as it is."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
    subprocess.run([*pip, f"{suite.package}=={suite.version}", *HELP], check=True)


def get_source(suite: Suite, folder: Path) -> Path:
    """Get the sdist of a suite with pip, or from QUIRE_SDISTS, and unpack it; return its folder."""
    given = os.environ.get("QUIRE_SDISTS")
    name = f"{suite.package.replace('-', '_')}-{suite.version}"
    if given is None:
        options = ("-q", "--no-deps", "--no-binary", suite.package, "-d", str(folder))
        subprocess.run(
            [sys.executable, "-m", "pip", "download", *options, f"{suite.package}=={suite.version}"], check=True
        )
    with tarfile.open(Path(given or folder) / f"{name}.tar.gz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter  # Python 3.11.4 or later
        archive.extractall(folder)
    return folder / name


def run_suite(suite: Suite, source: Path) -> dict[str, str]:
    """Run the tests of a suite with our adapter; return the outcome of each."""
    outcomes = source / "outcomes.json"
    packages = source / "packages of the suite"
    install(suite, packages)
    paths = os.pathsep.join([str(source), str(packages), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    plugin = source / "quire_bindings.py"  # `tests` is the package of the framework here
    plugin.write_text((HERE / "bindings.py").read_text())
    environment = {**os.environ, "PYTHONPATH": paths, "QUIRE_SUITE": suite.package, "QUIRE_OUTCOMES": str(outcomes)}
    options = ("-q", "--tb=short", "-p", "quire_bindings", "-p", "no:cacheprovider", "-o", "addopts=", *suite.options)
    command = ("-m", "pytest", *options, *suite.tests)
    run = subprocess.run([sys.executable, *command], cwd=source, env=environment, capture_output=True, text=True)
    if not outcomes.exists():
        raise SystemExit(f"The suite of {suite.package} did not run:\n{run.stdout[-4000:]}{run.stderr[-4000:]}")
    found: dict[str, str] = json.loads(outcomes.read_text())
    if not found:
        raise SystemExit(f"The suite of {suite.package} ran no test:\n{run.stdout[-4000:]}{run.stderr[-4000:]}")
    return found


def compare(suite: Suite, found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """Return what is wrong: tests that fail and are not listed, and listed tests that do not fail."""
    failed = {name for name, outcome in found.items() if outcome == "failed"}
    return [
        *(f"{suite.package}: {name} fails and is not in expected.json" for name in sorted(failed - expected.keys())),
        *(
            f"{suite.package}: {name} is in expected.json and does not fail"
            for name in sorted(expected.keys() - failed)
        ),
    ]


def write_results(suite: Suite, found: dict[str, str], expected: dict[str, str]) -> None:
    """Write the results of a suite at the end of its page."""
    count = {kind: sum(1 for outcome in found.values() if outcome == kind) for kind in ("passed", "failed", "skipped")}
    reasons: dict[str, int] = {}
    for reason in expected.values():
        reasons[reason] = reasons.get(reason, 0) + 1
    about = (
        f"`tests/foreign/run.py` runs tests of {suite.package} {suite.version} with `{suite.adapter}` in the place of "
    )
    about += f"the framework's class: {', '.join(f'`{test}`' for test in suite.tests)}."
    lines = [
        f"## The tests of {suite.package}",
        "",
        *wrap(about, width=128, break_long_words=False, break_on_hyphens=False),
        "",
        f"{count['passed']} tests pass, {count['failed']} fail, {count['skipped']} are skipped.",
    ]
    if reasons:
        lines += ["", "| failing tests | reason |", "|---|---|", *(f"| {n} | {why} |" for why, n in reasons.items())]
    page = ROOT / "docs" / "adapters" / suite.page
    begin, end = "<!-- results of tests/foreign -->", "<!-- end of results -->"
    text = re.sub(rf"\n*{begin}.*{end}\n", "\n", page.read_text(), flags=re.DOTALL)
    page.write_text(text.rstrip("\n") + "\n\n" + "\n".join([begin, *lines, end]) + "\n")


def expected_failures(suite: Suite) -> dict[str, str]:
    """Return the tests of a suite that are known to fail, each with its reason."""
    listed: dict[str, dict[str, str]] = json.loads((HERE / "expected.json").read_text())
    return listed.get(suite.package, {})


def main() -> None:
    wrong: list[str] = []
    for suite in SUITES:
        expected = expected_failures(suite)
        with tempfile.TemporaryDirectory() as folder:
            found = run_suite(suite, get_source(suite, Path(folder)))
        wrong += compare(suite, found, expected)
        write_results(suite, found, expected)
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
