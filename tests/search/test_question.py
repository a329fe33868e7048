"""A question as recall reads it: words, speakers, roles and months."""

import pytest

from quire.search.memory_scores import Memory, WordCache, score_memories
from quire.search.query import Question
from quire.search.recall import rank_memories

DAY = 86_400_000
MAY_2023 = 19_478 * DAY  # 1 May 2023
SPEAKERS = {"Ada", "Bob"}


def test_names_of_speakers_are_no_words_unless_nothing_else_remains() -> None:
    question = Question.parse("Which kite did Ada's brother buy?", SPEAKERS)
    assert question.words == ("kite", "brother", "buy")
    assert question.speakers == {"Ada"}
    assert "Ada" not in question.embedded
    assert Question.parse("Ada?", SPEAKERS).words == ("ada",)
    assert Question.parse("Ada?", SPEAKERS).embedded == "Ada?"


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        ("Which flight did I book?", {"user"}),
        ("我订了哪个航班?", {"user"}),
        ("Which hotel did you suggest?", {"assistant"}),
        ("您建议了哪家酒店?", {"assistant"}),
        ("Can you look up the flight?", set()),  # it asks for help, not for what the assistant said
        ("What did you tell me about the hotel?", set()),  # both
        ("Which table holds the user?", set()),  # a role is not a name
    ],
)
def test_i_is_the_user_and_what_you_said_is_the_assistant(text: str, roles: set[str]) -> None:
    question = Question.parse(text, {"User", "Assistant"})
    assert question.roles == roles
    assert not question.speakers


def test_a_question_about_all_speakers_prefers_none() -> None:
    assert Question.parse("What do Ada and Bob like?", SPEAKERS).speakers == frozenset()


@pytest.mark.parametrize(
    ("text", "months"),
    [
        ("What happened in May 2023?", ((5, 2023),)),
        ("What happened in june?", ((6, 0),)),
        ("2023年5月发生了什么?", ((5, 2023),)),
        ("You may go on; march to the gate", ()),
        ("From Sept to December", ((9, 0), (12, 0))),
    ],
)
def test_months(text: str, months: tuple[tuple[int, int], ...]) -> None:
    assert Question.parse(text, SPEAKERS).months == months


@pytest.mark.parametrize("text", ["hello again", "Good morning!", "thank you", "谢谢", "好的"])
def test_a_greeting_has_no_words(text: str) -> None:
    assert Question.parse(text, SPEAKERS).words == ()


def scores_of(question: str, said: list[Memory]) -> list[float]:
    speakers = {memory.speaker for memory in said}
    return score_memories(Question.parse(question, speakers), said, WordCache())[0]


def test_the_turns_of_a_named_speaker_and_of_a_named_month_are_preferred() -> None:
    said = [
        Memory(n, n * 5, MAY_2023 + n * 40 * DAY, ("Ada", "Bob")[n % 2], "we flew the kite at the beach")
        for n in range(6)
    ]
    by_name = scores_of("Where did Bob fly the kite?", said)
    assert min(by_name[1::2]) > max(by_name[::2])
    by_month = scores_of("Where was the kite flown in May 2023?", said)
    assert by_month.index(max(by_month)) == 0
    assert by_month[1] > by_month[2]  # 10 June: early in the month after it
    other_year = scores_of("Where was the kite flown in May 2022?", said)
    assert len(set(other_year)) == 1


def test_words_of_the_best_exchanges_find_evidence_that_shares_no_word_with_the_question() -> None:
    texts = ["the dentist is Dr. Okafor", "Okafor moved her surgery to Elm Road"]
    texts += [f"filler number {n} about the weather" for n in range(60)]
    said = [Memory(n, n * 3, n * DAY, "User", text) for n, text in enumerate(texts)]
    scores = scores_of("Who is the dentist?", said)
    assert scores[0] == max(scores)
    assert scores[1] == sorted(scores)[-2] > 0


def test_a_vague_message_recalls_little_and_a_clear_one_what_is_good() -> None:
    said = [Memory(n, n * 3, n * DAY, "User", f"we met at the place near the river, {n} of us") for n in range(200)]
    clear = [Memory(900 + n, 900 + 3 * n, 900 * DAY, "User", f"the kestrel {n} nests there") for n in range(40)]

    def count(text: str) -> int:
        return len(text.split())

    vague = rank_memories("the river place", said).lay_out(10_000, count, selective=True)
    assert 0 < count(vague.text) <= 300
    good = rank_memories("Where does the kestrel nest?", said + clear).lay_out(10_000, count, selective=True)
    assert {page.key for page in good.pages} >= {memory.key for memory in clear}
    assert count(good.text) < 1_000


@pytest.mark.parametrize("text", ["Tell me something.", "Who are you?", "Is there anything today?", "今天怎么样？"])
def test_words_about_now_or_about_anything_do_not_make_a_question_clear(text: str) -> None:
    said = [Memory(n, n * 3, n * DAY, "User", f"{text} It is number {n}.") for n in range(4)]
    said += [Memory(9 + n, 99 + n * 3, n * DAY, "User", "the pump ran well") for n in range(90)]
    assert rank_memories(text, said).clarity == 0
    said.append(Memory(999, 999, 0, "User", "a kestrel nest"))
    assert rank_memories("Tell me something about the kestrel nest", said).clarity > 0


def test_a_question_that_names_a_speaker_is_clear_even_if_the_bonus_makes_many_turns_alike() -> None:
    said = [Memory(n, n * 3, n * DAY, ("Ada", "Bob")[n % 2], f"the kite {n} flew far away again") for n in range(200)]

    def count(text: str) -> int:
        return len(text.split())

    named, other = (
        count(rank_memories(text, said).lay_out(10_000, count, selective=True, floor=0.1).text)
        for text in ("Where did Ada's kite fly?", "Where did the kite fly?")
    )
    assert other <= 300 < 500 < named


@pytest.mark.parametrize(
    "text",
    [
        "What did we decide about the port?",
        "Can you remind me of the address?",
        "Thanks. Could you please tell me when the meeting is?",
        "List all decisions about Redis.",
        "我们上次说了什么",
        "你能告诉我地址吗",
    ],
)
def test_a_question_about_what_was_said_asks(text: str) -> None:
    assert Question.parse(text, ()).asks


@pytest.mark.parametrize(
    "text",
    [
        "My user id is mia_li_3668.",
        "I want to change my flight to May 17. Can you do that?",
        "Is there another way to pay?",
        "请帮我取消航班",
        "这个可以退款吗",
    ],
)
def test_a_statement_or_a_request_does_not_ask(text: str) -> None:
    assert not Question.parse(text, ()).asks


def test_a_statement_recalls_little_where_a_question_recalls_what_is_good() -> None:
    said = [Memory(n, n * 3, n * DAY, "User", f"filler {n} about the weather of the day") for n in range(300)]
    said += [
        Memory(900 + n, 900 + 3 * n, 900 * DAY, "User", f"the kestrel nests in the tower, note {n}") for n in range(40)
    ]

    def count(text: str) -> int:
        return 3 * len(text.split())

    asked, stated = (
        rank_memories(text, said).lay_out(10_000, count, selective=True, floor=1.0)
        for text in ("Where does the kestrel nest?", "The kestrel nests here again.")
    )
    assert count(asked.text) > 600
    assert 0 < count(stated.text) <= 300
    without_floor = rank_memories("The kestrel nests here again.", said).lay_out(10_000, count, selective=True)
    assert count(without_floor.text) > 600
