"""Token counts: exact for the o200k vocabulary, plain text only, loaded by the first count."""

import random
import subprocess
import sys
from typing import Any

import pytest

from quire import ContextSystem, EstimateCounter, InvalidValue, Segment, VocabularyCounter
from quire.model import tokens

KNOWN = {
    "": 0,
    "a": 1,
    "hello world": 2,
    "Hello, world!": 4,
    "The quick brown fox jumps over the lazy dog.": 10,
    "我想五月二十日飞往西雅图。": 12,
    "def f(x: int) -> int:\n    return x + 1\n": 16,
    "   \n\n\t  ": 2,
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467": 9,
    "1234567890": 4,
    "https://example.com/a?b=c#d": 10,
    "naïve café": 4,
    "aaaa" * 100: 50,
}


@pytest.mark.parametrize(("text", "tokens"), KNOWN.items())
def test_counts_are_those_of_the_o200k_vocabulary(text: str, tokens: int) -> None:
    assert VocabularyCounter().count(text) == tokens


def test_the_counter_says_which_vocabulary_it_counts_and_that_it_is_exact() -> None:
    counter = VocabularyCounter()
    assert (counter.name, counter.exact) == ("o200k_base/splintr", True)


def test_another_vocabulary_counts_otherwise() -> None:
    assert VocabularyCounter("cl100k_base").count("我想五月二十日飞往西雅图。") == 16


@pytest.mark.parametrize("text", ["<|endoftext|>", "<|endofprompt|>"])
def test_text_that_looks_like_a_special_token_is_plain_text(text: str) -> None:
    assert VocabularyCounter().count(text) == 7
    assert VocabularyCounter().count(f"a{text}b") > 7


def test_a_lone_surrogate_is_counted_as_the_mark_that_stands_for_it() -> None:
    counter = VocabularyCounter()
    assert counter.count("a\ud800b") == counter.count("a\ufffdb") == 3


def test_counts_are_kept_with_the_page() -> None:
    system = ContextSystem()
    system.add_segment(Segment(id="mem"))
    index = system.create_detail_page("name", "hello world", "Hello, world!", "mem-0")
    page = system.get_page(index)
    assert (page.summary_tokens, page.tokens) == (2, 4)
    system.set_detail(index, "hello world")
    system.update_page(index, description="a")
    page = system.get_page(index)
    assert (page.summary_tokens, page.tokens) == (1, 2)


def run(code: str) -> str:
    """Return the output of a new interpreter."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_nothing_is_loaded_before_the_first_count() -> None:
    found = run(
        "import sys, quire\n"
        "system = quire.ContextSystem()\n"
        "system.add_segment(quire.Segment(id='mem'))\n"
        "index = system.create_contents_page('name', '', 'mem-0')\n"
        "counter = quire.VocabularyCounter()\n"
        "print('splintr' in sys.modules)\n"
        "system.update_page(index, description='hello world')\n"
        "print('splintr' in sys.modules)\n"
    )
    assert found.split() == ["False", "True"]


def test_without_an_engine_counts_are_estimates_and_say_so() -> None:
    found = run(
        "import sys\n"
        "sys.modules['splintr'] = sys.modules['tiktoken'] = None\n"
        "import quire\n"
        "counter = quire.VocabularyCounter()\n"
        "print(counter.count('hello world'), counter.name, counter.exact)\n"
    )
    assert found == "3 o200k_base/estimate False"


def test_the_estimate_is_labelled_and_never_nothing_for_something() -> None:
    counter = EstimateCounter()
    assert (counter.name, counter.exact) == ("estimate", False)
    assert [counter.count(text) for text in ("", "a", "abcd", "abcde", "语言", "a\ud800")] == [0, 1, 1, 2, 2, 2]
    assert counter.count("x" * 4_000) == 1_000


SEAMS = [
    "word",
    "pump's",
    "2024-05-20",
    "/var/log",
    "数据库，连接。",
    "失败！",
    "a1b2",
    "QUJD+/==",
    "I'll",
    '{"a":1}',
    "é",
    "e\u0301",
]
SEAMS += [
    "हिन्दी",
    "١٢٣",
    "🙂",
    "…",
    "\n",
    "\r\n",
    "  ",
    "\t",
    "\u00a0",
    "\u2028",
    "'",
    "中'文",
    "9'9",
    "x_y",
    "<|endoftext|>",
]


@pytest.mark.parametrize("vocabulary", ["o200k_base", "cl100k_base"])
@pytest.mark.parametrize("piece", [60, 257, 1_000])
def test_a_long_text_is_counted_in_pieces_and_the_count_is_exact(
    piece: int, vocabulary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = VocabularyCounter(vocabulary)
    chance = random.Random(piece)
    texts = ["".join(f"{word} {chance.choice(SEAMS)}" for word in chance.choices(SEAMS, k=300)) for _ in range(20)]
    exact = [counter.count(text) for text in texts]
    monkeypatch.setattr("quire.model.tokens._PIECE", piece)
    assert [counter.count(text) for text in texts] == exact


@pytest.mark.parametrize("run", ["a", "=", " ", "数", "ab1", "\n"])
def test_a_run_without_a_place_to_cut_is_counted_to_the_token(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = VocabularyCounter()
    text = run * 20_000
    exact = counter.count(text)
    monkeypatch.setattr("quire.model.tokens._PIECE", 1_024)
    assert exact <= counter.count(text) <= exact + len(text) // 1_024


def test_a_prompt_that_new_counters_share_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (_, encode), encoded = tokens._load("o200k_base"), list[str]()

    def record(text: str) -> int:
        encoded.append(text)
        return encode(text)

    monkeypatch.setattr(tokens, "_load", lambda vocabulary: ("splintr", record))
    prompt, long = "You are a careful agent. " * 40, "You are a careful agent. " * 4_000
    counts = [VocabularyCounter().count(text) for text in (prompt, long, prompt, long, "short", "short")]
    assert counts[:2] == counts[2:4] == [encode(prompt), encode(long)]
    assert [encoded.count(text) for text in (prompt, long, "short")] == [1, 2, 2]


def test_an_unknown_vocabulary_is_an_error_before_the_first_count() -> None:
    with pytest.raises(ValueError, match="no_such"):
        _ = VocabularyCounter("no_such").name


@pytest.mark.parametrize("counter", [5, 0, len, "o200k_base", ["x"], EstimateCounter, object()])
def test_a_counter_that_cannot_count_is_refused(counter: Any) -> None:
    with pytest.raises(InvalidValue, match="the method count ") as error:
        ContextSystem(counter=counter)
    assert error.value.argument == "counter"
