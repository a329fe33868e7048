"""The metadata and contents of the packages."""

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.errors import NotInstalled, install_command

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


class Installed:
    """A distribution that was installed from somewhere. `url` is "" for an index."""

    requires = (
        "msgspec",
        "brotli<2; extra == 'gateway'",
        "quire[server]; extra == 'gateway'",
        "uvicorn; extra == 'server'",
    )

    def __init__(self, url: str, **info: Any) -> None:
        self._origin = json.dumps({"url": url, **info}) if url else None

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self._origin


def test_the_install_command_names_the_place_that_quire_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone, wheel = tmp_path / "a clone", tmp_path / "quire-0.2.0-py3-none-any.whl"
    clone.mkdir()
    wheel.touch()
    sources = {
        "": "pip install 'quire[gateway]'",
        clone.as_uri(): f"pip install -e '{clone}[gateway]'",
        wheel.as_uri(): f"pip install '{wheel}[gateway]'",
        (tmp_path / "gone.whl").as_uri(): "pip install 'brotli<2' uvicorn",
        "https://example.org/quire.git": "pip install 'brotli<2' uvicorn",
    }
    for url, command in sources.items():
        info = {"dir_info": {"editable": True}} if url == clone.as_uri() else {}
        monkeypatch.setattr(importlib.metadata, "distribution", lambda _, url=url, info=info: Installed(url, **info))
        assert install_command("gateway") == command, url
        assert str(NotInstalled("The gateway needs brotli", "gateway")) == f"The gateway needs brotli: {command}"


def test_the_install_command_of_a_clone_on_the_path_names_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert install_command("server") == f"pip install '{Path(quire.__file__).parents[2]}[server]'"


_WITHOUT_EXTRAS = """
import sys

for name in %r:
    sys.modules[name] = None  # an import of it fails
from quire import *
from quire.errors import NotInstalled
import quire

for address, extra in (("postgresql://user@localhost/db", "postgres"), ("s3://bucket/prefix", "s3")):
    try:
        quire.open(address)
    except NotInstalled as error:
        assert error.command.endswith(f"[{extra}]'"), error.command
    else:
        raise AssertionError(address)
"""


def test_without_the_extras_all_names_can_be_imported_and_an_error_names_the_extra() -> None:
    script = _WITHOUT_EXTRAS % (["psycopg", "obstore", "numpy", "starlette", "uvicorn", "opentelemetry", "wordllama"],)
    subprocess.run([sys.executable, "-c", script], check=True)
