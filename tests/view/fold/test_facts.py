"""The facts in a text, and the constraints of a user."""

import random

import pytest

from quire.view.fold.facts import FactKind, extract_constraints, extract_facts, occurs_in
from tests.marks import broad


def found(text: str) -> dict[str, FactKind]:
    kinds: dict[str, FactKind] = {}
    for fact, kind in extract_facts(text):
        kinds.setdefault(fact, kind)
    return kinds


@pytest.mark.parametrize(
    ("text", "fact", "kind"),
    [
        ("flight HAT136.", "HAT136", FactKind.IDENTIFIER),
        ("user mia_li_3668,", "mia_li_3668", FactKind.IDENTIFIER),
        ("(4WQ150)", "4WQ150", FactKind.IDENTIFIER),
        ("id 123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000", FactKind.IDENTIFIER),
        ("commit 9f2c1ab", "9f2c1ab", FactKind.IDENTIFIER),
        ("model gpt-4o-mini", "gpt-4o-mini", FactKind.IDENTIFIER),
        ("订单号A123在这里", "A123", FactKind.IDENTIFIER),
        ("me@example.org", "me@example.org", FactKind.IDENTIFIER),
        ("call getUserName()", "getUserName", FactKind.NAME),
        ("call get_user_details()", "get_user_details", FactKind.NAME),
        ("class TimeCapsule:", "TimeCapsule", FactKind.NAME),
        ("os.path.join", "os.path.join", FactKind.NAME),
        ("edit README.md", "README.md", FactKind.NAME),
        ("from SFO", "SFO", FactKind.CODE),
        ("costs $1,234.50.", "$1,234.50", FactKind.AMOUNT),
        ("costs 500元。", "500元", FactKind.AMOUNT),
        ("预算三百元以内", "三百元", FactKind.AMOUNT),
        ("about 15% more", "15%", FactKind.AMOUNT),
        ("with 3 bags", "3 bags", FactKind.AMOUNT),
        ("(12.5kg)", "12.5kg", FactKind.AMOUNT),
        ("took 0.5 seconds.", "0.5 seconds", FactKind.AMOUNT),
        ("on 2024-05-20.", "2024-05-20", FactKind.DATE),
        ("at 2024-05-20T10:00:00Z", "2024-05-20T10:00:00Z", FactKind.DATE),
        ("on May 20.", "May 20", FactKind.DATE),
        ("on May 20th, please", "May 20th", FactKind.DATE),
        ("on May 20, 2024 at noon", "May 20, 2024", FactKind.DATE),
        ("the 20th of May", "20th of May", FactKind.DATE),
        ("on 20 may", "20 may", FactKind.DATE),
        ("at 10:30am", "10:30am", FactKind.DATE),
        ("5月20日出发", "5月20日", FactKind.DATE),
        ("在2024年5月20日出发", "2024年5月20日", FactKind.DATE),
        ("五月二十日出发", "五月二十日", FactKind.DATE),
        ("下午3点半见", "3点半", FactKind.DATE),
        ("see /usr/lib/python3/x.py:", "/usr/lib/python3/x.py", FactKind.ADDRESS),
        ("see src/quire/fold.py", "src/quire/fold.py", FactKind.ADDRESS),
        ("run ./build.sh", "./build.sh", FactKind.ADDRESS),
        ("看/var/log/app.log文件", "/var/log/app.log", FactKind.ADDRESS),
        (r"open C:\Users\me\a.txt", r"C:\Users\me\a.txt", FactKind.ADDRESS),
        (r"open \\server\share\a.txt", r"\\server\share\a.txt", FactKind.ADDRESS),
        ("(https://x.com/a?b=1).", "https://x.com/a?b=1", FactKind.ADDRESS),
        ("见https://例子.com/a。", "https://例子.com/a", FactKind.ADDRESS),
        ("a ValueError here", "ValueError", FactKind.ERROR),
        ("failed: ENOENT", "ENOENT", FactKind.ERROR),
        ("got HTTP 404", "HTTP 404", FactKind.ERROR),
        ("with exit code 137", "code 137", FactKind.ERROR),
        ("killed by SIGKILL", "SIGKILL", FactKind.ERROR),
        ("call 415-555-1234", "415-555-1234", FactKind.NUMBER),
        ("version 1.2.3", "1.2.3", FactKind.NUMBER),
        ('{"price":523,"n":7}', "523", FactKind.NUMBER),
        ('{"price":523,"n":7}', "7", FactKind.DIGIT),
    ],
)
def test_a_fact_is_found_and_known_for_what_it_is(text: str, fact: str, kind: FactKind) -> None:
    assert found(text).get(fact) is kind


@pytest.mark.parametrize(
    "text", ["and/or", "Hello there, it's a well-known thing.", "e.g. this", "I", "你好，世界", "fine.Next", "</title>"]
)
def test_plain_words_are_no_facts(text: str) -> None:
    assert found(text) == {}


def test_a_very_long_run_is_data_and_no_identifier() -> None:
    assert found("a1" * 200) == {}
    assert found("a1" * 100) == {"a1" * 100: FactKind.IDENTIFIER}


def test_facts_are_found_wherever_in_a_long_text_they_stand() -> None:
    text = "".join(f"word {'x' * (n % 50)} HAT{n}\n" for n in range(20_000))
    assert len(text) > 500_000
    assert all(f"HAT{n}" in found(text) for n in (0, 9_999, 19_999))
    assert len(found(text)) == 20_000


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Hi. I must leave before 10am. Thanks!", ["I must leave before 10am."]),
        ("At most $200, please; the rest is fine.", ["At most $200, please;"]),
        ("I don’t want insurance\nBlue is nice.", ["I don’t want insurance"]),
        ("你好。我只要经济舱。谢谢。", ["我只要经济舱。"]),
        ("请别订太贵的，最多三百元。", ["请别订太贵的，最多三百元。"]),
        ("特别好。这是一只猫。别人说的。", []),
        ("required_elements and beforehand and minimal", []),
    ],
)
def test_what_a_user_insists_on_is_a_fact(text: str, wanted: list[str]) -> None:
    assert list(extract_constraints(text)) == wanted


def test_of_an_endless_sentence_the_words_around_the_cue_are_taken() -> None:
    (only,) = extract_constraints("word " * 500 + "you must not smoke " + "word " * 500)
    assert "must not smoke" in only
    assert len(only) <= 240


@pytest.mark.parametrize(
    ("fact", "text", "is_there"),
    [
        ("12", "it is 12, yes", True),
        ("12", "it is 120", False),
        ("12", "it is 12.5", False),
        ("12", "it is 12.", True),
        ("12", "120 and 12", True),
        ("HAT1", "HAT13", False),
        ("5月20日", "在5月20日出发", True),
        ("$5", "$50", False),
    ],
)
def test_a_fact_stands_in_a_text_only_as_itself(fact: str, text: str, is_there: bool) -> None:
    assert occurs_in(fact, text) is is_there


SIZE = 1 << 17
HOSTILE = (
    *("a", "1", "_", "/", "\\", "$", ".", "-", "一", "月", "😀", "1,", "1.", "a.", "a-", "a@", "b.", "/a", "a/"),
    *("\\a", "\\\\a", "a://", "1%", "1:", "aB", "May ", "May 1 ", "code ", "must", "only,", "1月", "#", "x.X", "别"),
)


@pytest.mark.parametrize("unit", [*HOSTILE[::4], *broad(*(unit for at, unit in enumerate(HOSTILE) if at % 4))])
def test_no_text_takes_more_than_linear_time(unit: str) -> None:
    """A pattern with quadratic backtracking over a long run would not end here."""
    text = unit * (SIZE // len(unit))
    assert sum(1 for _ in extract_facts(f"x {text}!")) <= len(text)
    assert sum(1 for _ in extract_constraints(f"must {text}")) >= 1


def test_every_fact_of_a_random_text_stands_in_it() -> None:
    chance = random.Random(7)
    pieces = [
        "a",
        "B",
        "1",
        "_",
        "-",
        ".",
        "/",
        ":",
        "\\",
        "@",
        " ",
        "\n",
        "$",
        "%",
        "月",
        "一",
        "元",
        "May ",
        "://",
        '"',
    ]
    for _ in range(300):
        text = "".join(chance.choices(pieces, k=200))
        for fact in found(text):
            assert fact in " ".join(text.split())
