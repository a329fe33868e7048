"""Token counts: exact for the OpenAI vocabularies, plain text only, kept with the page; images by their size."""

import random
import subprocess
import sys
from typing import Any

import pytest

import quire
from quire import ContextSystem, EstimateCounter, InvalidValue, VocabularyCounter
from tests.books import new_book
from tests.pictures import coded, gif, jpeg, openai_image, pdf, png, webp

KNOWN = {
    "": 0,
    "a": 1,
    "Hello, world!": 4,
    "The quick brown fox jumps over the lazy dog.": 10,
    "我想五月二十日飞往西雅图。": 12,
    "def f(x: int) -> int:\n    return x + 1\n": 16,
    "   \n\n\t  ": 2,
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467": 9,
    "https://example.com/a?b=c#d": 10,
    "aaaa" * 100: 50,
    "<|endoftext|>": 7,
    "a\ud800b": 3,
}
PIECES = ["word", "pump's", "2024-05-20", "/var/log", "数据库，连接。", "HTTPServer", '{"a":1}', "é", "🙂", "\u2028"]


@pytest.mark.parametrize(("text", "tokens"), KNOWN.items())
def test_counts_are_those_of_the_o200k_vocabulary(text: str, tokens: int) -> None:
    assert VocabularyCounter().count(text) == tokens


def test_another_vocabulary_counts_otherwise_and_an_unknown_one_is_refused() -> None:
    assert VocabularyCounter("cl100k_base").count("我想五月二十日飞往西雅图。") == 16
    assert VocabularyCounter().exact
    with pytest.raises(ValueError, match="no_such"):
        _ = VocabularyCounter("no_such").name


@pytest.mark.parametrize("vocabulary", ["o200k_base", "cl100k_base"])
def test_any_text_is_counted_as_the_tokenizer_does(vocabulary: str, request: pytest.FixtureRequest) -> None:
    tokenizer = pytest.importorskip("splintr").Tokenizer.from_pretrained(vocabulary)
    is_long = request.config.getoption("--long")
    seed = random.Random().randrange(1 << 30) if is_long else 7
    chance, counter = random.Random(seed), VocabularyCounter(vocabulary)
    for size in [*range(1, 40), 3_000, 40_000] * (20 if is_long else 1):
        text = "".join(word + chance.choice(["", " ", "\n"]) for word in chance.choices(PIECES, k=size))
        assert counter.count(text) == len(tokenizer.encode_ordinary(text)), f"seed {seed}: {text[:200]!r}"


def test_counts_are_kept_with_the_page_and_follow_its_text() -> None:
    book = new_book(counter=VocabularyCounter())
    index = book.create_detail_page("name", "hello world", "Hello, world!", "mem-0")
    page = book.get_page(index)
    assert (page.summary_tokens, page.tokens) == (2, 4)
    book.set_detail(index, "hello world")
    book.update_page(index, description="a")
    page = book.get_page(index)
    assert (page.summary_tokens, page.tokens) == (1, 2)


def run(code: str) -> str:
    """Return the output of a new interpreter."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_the_vocabulary_loads_with_the_first_count() -> None:
    found = run(
        "import sys, quire\n"
        "counter = quire.VocabularyCounter()\n"
        "print('splintr' in sys.modules)\n"
        "counter.count('hello world')\n"
        "print('splintr' in sys.modules)\n"
    )
    assert found.split() == ["False", "True"]


def test_without_an_engine_counts_are_estimates_and_say_so() -> None:
    found = run(
        "import sys\n"
        "sys.modules['splintr'] = sys.modules['tiktoken'] = None\n"
        "import quire\n"
        "counter = quire.VocabularyCounter()\n"
        "print(counter.count('hello world') > 0, counter.exact)\n"
    )
    assert found == "True False"


def test_the_estimate_is_labelled_and_never_nothing_for_something() -> None:
    counter = EstimateCounter()
    assert (counter.name, counter.exact, counter.count("")) == ("estimate", False, 0)
    assert all(counter.count(text) > 0 for text in ("a", "语", "\ud800", " "))
    assert counter.count("x" * 4_000) == 1_000


@pytest.mark.parametrize("counter", [5, 0, len, "o200k_base", ["x"], EstimateCounter, object()])
def test_a_counter_that_cannot_count_is_refused(counter: Any) -> None:
    with pytest.raises(InvalidValue) as error:
        ContextSystem(counter=counter)
    assert error.value.argument == "counter"


# Images and files


def tokens_of(part: dict[str, Any]) -> int:
    """Return the tokens of a view of one message with this part."""
    ctx = quire.open("memory:")
    ctx.user([{"type": "text", "text": "Look:"}, part])
    return ctx.render().tokens


@pytest.mark.parametrize("make", [png, gif, jpeg, lambda *size: webp("VP8X", *size), lambda *size: webp("VP8 ", *size)])
def test_an_image_counts_by_its_size_and_not_by_its_bytes(make: Any) -> None:
    small, large = tokens_of(openai_image(make(64, 64))), tokens_of(openai_image(make(2_000, 1_500)))
    assert small < large
    assert large == tokens_of(openai_image(make(2_000, 1_500) + b"\xff" * 30_000))


def test_an_image_that_is_cut_off_or_garbage_is_counted_without_an_error() -> None:
    chance = random.Random(5)
    whole = jpeg(640, 480)
    for data in (b"", whole[:20], png(8, 8)[:12], chance.randbytes(300), b"\xff\xd8" + chance.randbytes(300)):
        assert 0 < tokens_of(openai_image(data)) < 10_000


def test_a_pdf_counts_by_its_pages() -> None:
    files = ({"type": "file", "file": {"file_data": f"data:application/pdf;base64,{coded(pdf(n))}"}} for n in (1, 9))
    short, long = map(tokens_of, files)
    assert short < long
