"""The documentation site: every public name is on a reference page, every page is in the navigation."""

import ast
import re
from importlib import import_module
from pathlib import Path

import quire
from docs.hooks import frameworks

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SOURCE = Path(quire.__file__).parent
PARTS = ("aio", "mcp_server", "providers", "server", "testing", "windows.apps")
"""Packages that document their names from their own `__all__`."""


def on_reference_pages() -> list[str]:
    pages = (page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    return [name for page in pages for name in re.findall(r"^::: quire\.(\S+)$", page, re.MULTILINE)]


def test_every_public_name_is_on_one_reference_page() -> None:
    names = on_reference_pages()
    assert len(names) == len(set(names))
    assert sorted({*quire.__all__, "open", *PARTS} - set(names)) == []


def test_every_adapter_is_on_a_reference_page() -> None:
    files = [*SOURCE.glob("adapters/*.py"), *SOURCE.glob("adapters/*/__init__.py")]
    public = {file.parent.name if file.stem == "__init__" else file.stem for file in files if says_what_is_public(file)}
    assert len(public) >= 6
    assert sorted({f"adapters.{name}" for name in public} - set(on_reference_pages())) == []


def says_what_is_public(file: Path) -> bool:
    nodes = ast.parse(file.read_text(encoding="utf-8")).body
    return any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" for node in nodes)


def test_no_reference_page_names_what_is_not_there() -> None:
    assert [name for name in on_reference_pages() if not is_there(name)] == []


def is_there(name: str) -> bool:
    place = SOURCE / name.replace(".", "/")
    if ("." not in name and hasattr(quire, name)) or place.is_dir() or place.with_suffix(".py").exists():
        return True
    module, _, last = name.rpartition(".")
    return hasattr(import_module(f"quire.{module}"), last)


def test_every_page_stands_once_in_the_navigation() -> None:
    listed = re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2])
    listed += [path for entry in frameworks() for path in entry.values()]
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_the_site_fetches_nothing_from_elsewhere() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in settings
    assert "http" not in settings
    assert not [page for page in DOCS.rglob("*.md") if "```mermaid" in page.read_text(encoding="utf-8")]


def test_the_design_page_names_only_files_that_exist() -> None:
    text = (DOCS / "design.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*(?:\.py|/))`", text))
    assert len(named) >= 40
    assert sorted(path for path in named if not (SOURCE / path).exists() and not (ROOT / path).exists()) == []
