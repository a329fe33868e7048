"""Every Python block in README and docs runs; the two READMEs stay equal."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from quire.storage.postgres.address import parse
from tests.frameworks import REASON, lacks_framework
from tests.marks import broad
from tests.servers.postgres import postgres_url

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("README*.md"), *ROOT.glob("docs/**/*.md")])
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


# The code of the Chinese README is that of the English one; a test below compares them.
@pytest.mark.parametrize(
    "page",
    [broad(page)[0] if page.name == "README.zh-CN.md" else page for page in PAGES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_python_block_of_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if lacks_framework("\n".join(_BLOCK.findall(page.read_text(encoding="utf-8")))):
        pytest.skip(REASON)
    monkeypatch.chdir(tmp_path)
    if page.name == "postgres.md":
        monkeypatch.setenv("DATABASE_URL", postgres_url())
        monkeypatch.setenv("APP_DATABASE_URL", parse(postgres_url()).url)
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
    for name in ("test_the_first_commit_makes_the_context", "test_opening_again_finds_everything"):
        case.setup_method()
        getattr(case, name)()
        case.teardown_method()


def test_the_readme_and_the_docs_have_blocks_to_run() -> None:
    blocks = {
        page.relative_to(ROOT).as_posix(): len(_BLOCK.findall(page.read_text(encoding="utf-8"))) for page in PAGES
    }
    assert blocks["README.md"] >= 3
    assert blocks["docs/pages.md"] >= 5
    assert blocks["docs/storage.md"] >= 5
    assert blocks["docs/conversation.md"] >= 8
    assert blocks["docs/view.md"] >= 4
    assert blocks["docs/agent.md"] >= 6
    assert blocks["docs/windows.md"] >= 8


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
