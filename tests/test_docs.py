"""Every Python block in README and docs runs; the two READMEs stay equal."""

import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.frameworks import uses_framework
from tests.servers.postgres import postgres_url

ROOT = Path(__file__).parent.parent
NEED_SERVERS = ("postgres.md", "s3.md", "search.md")
"""Pages whose code needs the packages of the tier `servers`."""
PAGES = sorted([*ROOT.glob("README*.md"), *ROOT.glob("docs/**/*.md")])
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


def tier(page: Path) -> list[pytest.MarkDecorator]:
    """Return the mark of a page whose code needs more than the default tier."""
    if uses_framework("\n".join(_BLOCK.findall(page.read_text(encoding="utf-8")))):
        return [pytest.mark.clients]
    return [pytest.mark.servers] if page.name in NEED_SERVERS else []


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=tier(page), id=page.relative_to(ROOT).as_posix())
        for page in PAGES
        if "```python" in page.read_text("utf-8") and page.name != "README.zh-CN.md"  # its code is that of README.md
    ],
)
def test_every_python_block_of_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if page.name == "postgres.md":
        url = urlsplit(postgres_url())
        options = [pair for pair in parse_qsl(url.query) if pair[0] not in ("schema", "tenant")]  # quire's own
        monkeypatch.setenv("DATABASE_URL", url.geturl())
        monkeypatch.setenv("APP_DATABASE_URL", url._replace(query=urlencode(options)).geturl())
    if page.name == "tutorial.md":
        monkeypatch.setitem(sys.modules, "xllamacpp", None)  # as if the small model is not installed
    names: dict[str, object] = {"__name__": "docs"}
    for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        line = page.read_text(encoding="utf-8")[: found.start()].count("\n") + 1
        exec(compile("\n" * line + found[1], str(page), "exec"), names)


def test_the_backend_in_the_docs_passes_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "docs"}
    block = next(
        block for block in _BLOCK.findall((ROOT / "docs/storage.md").read_text("utf-8")) if "Contract" in block
    )
    exec("import quire\n" + block, names)
    case = names["TestMyStorage"]()
    for name in ("test_a_refused_commit_changes_nothing", "test_opening_again_finds_everything"):
        case.setup_method()
        getattr(case, name)()
        case.teardown_method()


def test_the_chinese_readme_has_the_same_commands_and_code() -> None:
    english, chinese = (ROOT / name for name in ("README.md", "README.zh-CN.md"))
    for kind in (_SHELL, _BLOCK):
        codes = [
            [re.sub(r"(^|\s+)#.*", "", block) for block in kind.findall(page.read_text(encoding="utf-8"))]
            for page in (english, chinese)
        ]
        assert codes[0] == codes[1]
    headings = [re.findall(r"^(#+) ", page.read_text(encoding="utf-8"), re.MULTILINE) for page in (english, chinese)]
    assert headings[0] == headings[1]


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
