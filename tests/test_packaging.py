"""The metadata and contents of the packages."""

import re
import tomllib
from pathlib import Path

import quire

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_is_the_same_everywhere() -> None:
    log = re.findall(r"^## (\S+) \(\d{4}-\d{2}-\d{2}\)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert PROJECT["project"]["version"] == quire.__version__ == log[0]


def test_every_dependency_of_a_user_has_an_upper_bound() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    needed = [need for extra in extras.values() for need in extra if not need.startswith("quire[")]
    assert needed
    assert [need for need in needed if "<" not in need.partition(";")[0]] == []


def test_the_source_package_holds_what_the_tests_look_at() -> None:
    taken = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [name for name in taken if not (ROOT / name).exists()] == []
    assert {"src", "tests", "docs", "bench", "proof", "examples", "mkdocs.yml", "CHANGELOG.md"} <= set(taken)


def test_contributors_find_only_places_that_are_there() -> None:
    for page in ("CONTRIBUTING.md", ".github/ISSUE_TEMPLATE/feature.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text(encoding="utf-8")):
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"
