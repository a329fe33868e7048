"""The table of a vocabulary on disk: it counts as the tokenizer does, and a table that does not fit is not used."""

import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
import splintr
from hypothesis import given
from hypothesis import strategies as st

from quire.model import tokens
from quire.model.tokens import O200K_TOKENS, WordTable, make_table, read_table, write_table

ROOT = Path(__file__).parents[2]
TOKENIZER = splintr.Tokenizer.from_pretrained("o200k_base")
VOCABULARY = [TOKENIZER.decode_token_bytes(rank) for rank in range(O200K_TOKENS)]
DATA = make_table(VOCABULARY)
TABLE = WordTable(DATA)
STAMP = b"a stamp".ljust(12)
OTHER = tokens._word_patterns(False)[0]
COVERED = [character for character in map(chr, range(0x11_0000)) if not OTHER.match(character)]
PIECES = [
    "'s",
    "'LL",
    "'re",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "/",
    "HTTPServer",
    "x86_64",
    "12345",
    "....",
    "你好",
    "é",
    "Ёж",
]


def exact(text: str) -> int:
    return len(TOKENIZER.encode_ordinary(text))


def test_the_vocabulary_has_no_more_tokens() -> None:
    with pytest.raises(ValueError, match="out of range"):
        TOKENIZER.decode_token_bytes(O200K_TOKENS)


def test_the_classes_of_characters_are_those_of_unicode() -> None:
    upper, lower = re.compile(f"[A-Z{tokens._UPPER}]"), re.compile(f"[a-z{tokens._LOWER}]")
    for character in COVERED:
        category = unicodedata.category(character)
        assert bool(upper.match(character)) == (category in ("Lu", "Lo", "Lm")), character
        assert bool(lower.match(character)) == (category in ("Ll", "Lo", "Lm")), character
        assert not category.startswith("M")
        assert category.startswith("N") == (character in "0123456789")
        assert character.isspace() == (character in "\t\n\r ")


@given(st.lists(st.sampled_from(PIECES) | st.text(st.sampled_from(COVERED[:200]) | st.sampled_from(COVERED))))
def test_counts_are_those_of_the_tokenizer(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert TABLE.count(text) == exact(text)


@pytest.mark.parametrize("seed", range(20))
def test_texts_of_tokens_are_counted_as_the_tokenizer_does(seed: int) -> None:
    random = Random(seed)
    for _ in range(50):
        text = b"".join(random.choices(VOCABULARY, k=random.randint(1, 40))).decode("utf-8", "ignore")
        assert TABLE.count(text) in (exact(text), None)


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md", "docs/design.md", "src/quire/model/text.py"])
def test_real_texts_are_counted_as_the_tokenizer_does(name: str) -> None:
    paragraphs = (ROOT / name).read_text("utf-8").split("\n\n")
    counted = [paragraph for paragraph in paragraphs if TABLE.count(paragraph) is not None]
    assert len(counted) > len(paragraphs) * 0.9
    assert [TABLE.count(paragraph) for paragraph in counted] == [exact(paragraph) for paragraph in counted]


@pytest.mark.parametrize("text", ["a\u0301", "½", "\u00a0", "\u017f", "\x0b", "١", "\ud800", "x" * 241])
def test_other_texts_are_left_to_the_tokenizer(text: str) -> None:
    assert TABLE.count(text) is None


def test_a_table_is_read_again_for_the_same_version_only(tmp_path: Path) -> None:
    path = tmp_path / "words"
    assert read_table(path, STAMP) is None
    write_table(path, STAMP, TOKENIZER)
    table = read_table(path, STAMP)
    assert table is not None
    assert table.count("HTTPServer") == exact("HTTPServer")
    assert read_table(path, b"other".ljust(12)) is None
    assert [file.name for file in tmp_path.iterdir()] == ["words"]


def test_another_version_of_the_tokenizer_has_another_stamp(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("1")
    module = ModuleType("module")
    module.__file__ = str(source)
    first = tokens._stamp(module)
    module.__version__ = "2"  # type: ignore[attr-defined]
    second = tokens._stamp(module)
    source.write_text("22")
    assert len({first, second, tokens._stamp(module)}) == 3
    assert len(first) == 12


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:-1] + b"\0", lambda _: b""])
def test_a_damaged_table_is_not_used(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "words"
    write_table(path, STAMP, TOKENIZER)
    path.write_bytes(damage(path.read_bytes()))
    assert read_table(path, STAMP) is None


def test_a_table_that_counts_otherwise_is_not_written(tmp_path: Path) -> None:
    class Other:
        decode_token_bytes = staticmethod(TOKENIZER.decode_token_bytes)

        def encode_ordinary(self, text: str) -> list[int]:
            return [*TOKENIZER.encode_ordinary(text), 1]

    write_table(tmp_path / "words", STAMP, Other())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["missing/words", "file/words"])
def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("a file")
    write_table(tmp_path / place, STAMP, TOKENIZER)
    write_table(tmp_path / "words", STAMP, object())  # not the tokenizer that is expected
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_the_second_process_counts_without_the_tokenizer(tmp_path: Path) -> None:
    program = (
        "import splintr\n"
        "from pathlib import Path\n"
        "from quire.model import tokens\n"
        f"tokens.TABLE_PATH = Path({str(tmp_path)!r}) / 'words'\n"
        "loaded = []\n"
        "class Recorder:\n"
        "    @staticmethod\n"
        "    def from_pretrained(name): loaded.append(name); return real(name)\n"
        "real, splintr.Tokenizer = splintr.Tokenizer.from_pretrained, Recorder\n"
        "counter = tokens.VocabularyCounter()\n"
        "counts = [counter.count('zqxv HAT123'), counter.count('你好，世界'), counter.count('a\u0301')]\n"
        "counts.append(counter.count('zqxv ' * 20_000))\n"
        "print(counts, len(loaded), counter.name)\n"
        "counter = tokens.VocabularyCounter('cl100k_base')\n"
        "print(counter.count('zqxv'), len(loaded))\n"
    )
    late = program.replace(", counter.count('a\u0301')]", "]")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def run(program: str) -> str:
        command = [sys.executable, "-c", program]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout

    counts = [exact("zqxv HAT123"), exact("你好，世界"), exact("a\u0301"), exact("zqxv " * 20_000)]
    expected = (
        f"{counts} 1 o200k_base/splintr\n{len(splintr.Tokenizer.from_pretrained('cl100k_base').encode('zqxv'))} 2\n"
    )
    assert run(program) == expected
    assert (tmp_path / "words").exists()
    assert run(program) == expected
    few = late.replace("counts.append(counter.count('zqxv ' * 20_000))\n", "")
    assert run(few).splitlines()[0] == f"{counts[:2]} 0 o200k_base/splintr"
    (tmp_path / "words").unlink()
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    assert run(program) == expected
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_counts_much_loads_the_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path / "words", tokens._stamp(splintr), TOKENIZER)
    monkeypatch.setattr(tokens, "TABLE_PATH", tmp_path / "words")
    monkeypatch.setattr(tokens, "_FIRST_BYTES", 30)
    calls: list[str] = []

    def record(table: WordTable, text: str) -> int | None:
        calls.append(text)
        return exact(text)

    monkeypatch.setattr(WordTable, "count", record)
    count = tokens._load_splintr("o200k_base")
    texts = [f"HAT{number} flxy" for number in range(5)]
    assert [count(text) for text in texts] == [exact(text) for text in texts]
    assert calls == texts[:3]


def test_special_tokens_are_counted_as_plain_text() -> None:
    specials = []
    for number in range(O200K_TOKENS, TOKENIZER.vocab_size):
        with suppress(ValueError):  # not every number has a token
            specials.append(TOKENIZER.decode_with_special([number]))
    assert "<|endoftext|>" in specials
    for special in specials:
        text = f"a {special}\n{special}"
        assert tokens.VocabularyCounter().count(text) == exact(text) > len(TOKENIZER.encode(text))
