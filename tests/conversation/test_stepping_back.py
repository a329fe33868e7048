"""No message is ever lost, and the journal leads back to every earlier state."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

from quire import Context, QuireError
from quire.conversation import MarkMap
from quire.model.pages import Mark
from tests.talks import calling, new_talk

SEEDS = [seed if seed < 4 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(100)]


class Moment(NamedTuple):
    """Return the visible state of a conversation: its messages, all that arrived, their marks, and the batches."""

    shown: list[tuple[int, str]]
    stored: list[tuple[int, str]]
    marks: list[Mark]
    batches: MarkMap


def test_originals_are_the_same_bytes_after_100_compressions_and_undos() -> None:
    random = Random(20_004)
    talk = new_talk()
    added = [_random_text(random) for _ in range(60)]
    for n, text in enumerate(added):
        (talk.user if n % 2 else talk.assistant)(text)
    compressions: list[int] = []
    done = 0
    while done < 100:
        first = random.randrange(len(added))
        before = talk.seq
        talk.conversation.compress(range(first, min(first + random.randint(1, 12), len(added))))
        if talk.seq > before:
            compressions.append(talk.seq)
            done += 1
        while len(compressions) > 8:
            talk.undo(compressions.pop(random.randrange(len(compressions))))
        assert [message.content for message in talk.messages(all=True)] == added
    for seq in reversed(compressions):
        talk.undo(seq)
    assert [message.content for message in talk.messages()] == added
    assert not any(talk.conversation.is_modified(index) for index in range(len(added)))
    assert talk.check() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fork_or_a_rollback_shows_every_earlier_moment_as_it_was(seed: int) -> None:
    random = Random(seed)
    talk = new_talk()
    talk.system("Be brief.")
    moments = {talk.seq: _moment(talk)}
    for n in range(40):
        _random_step(talk, random, n)
        moments[talk.seq] = _moment(talk)
    present = moments[talk.seq]
    for seq, then in moments.items():
        fork = talk.fork(f"at-{seq}", at=seq)
        found = _moment(fork)
        assert (found.shown, found.stored) == (then.shown, then.stored), seq
        assert found.marks == then.marks
        assert fork.check() == []
        assert fork.user("on we go") == len(then.stored)
    for seq, then in moments.items():
        before = talk.seq
        talk.rollback(seq)
        found = _moment(talk)
        assert (found.shown, found.stored) == (then.shown, present.stored), seq
        assert found.marks[: len(then.marks)] == then.marks
        assert Mark.NONE not in found.marks[len(then.marks) :]
        assert found.batches.batch_boundaries == then.batches.batch_boundaries
        assert talk.check() == []
        if talk.seq > before:
            talk.undo(talk.seq)
        assert _moment(talk) == present, seq
        assert talk.check() == []


def test_a_rollback_meets_every_moment_also_after_other_rollbacks() -> None:
    random = Random(5)
    talk = new_talk()
    moments = {talk.seq: _moment(talk)}
    for n in range(60):
        if n % 6 == 5:
            seq = random.choice(list(moments))
            talk.rollback(seq)
            assert _moment(talk).shown == moments[seq].shown
        else:
            _random_step(talk, random, n)
        moments[talk.seq] = _moment(talk)
    assert talk.check() == []


def _moment(talk: Context) -> Moment:
    stored = [(message.index, message.text) for message in talk.messages(all=True)]
    return Moment(
        shown=[(message.index, message.text) for message in talk.messages()],
        stored=stored,
        marks=[talk.conversation.mark_of(index) for index, _ in stored],
        batches=talk.conversation.mark_map(),
    )


def _random_text(random: Random) -> str:
    """Text with everything that is difficult for a codec."""
    alphabet = "ab \n\t\"'\\{}<>é语言𝄞\u200b\u2028"
    return "".join(random.choice(alphabet) for _ in range(random.randint(1, 80))) + "."


def _random_step(talk: Context, random: Random, n: int) -> None:
    """Make a random change of the conversation. A refused one changes nothing and is not counted."""
    conversation, length = talk.conversation, len(talk.messages(all=True))
    indices = sorted(random.sample(range(length), min(length, random.randint(1, 3)))) or [0]
    pending = talk.pending_calls()
    steps: list[Callable[[], object]] = [
        lambda: talk.user(f"question {n}"),
        lambda: talk.assistant(f"answer {n}"),
        lambda: talk.assistant(None, calling(f"a{n}", f"b{n}")),
        lambda: talk.tool_result(pending[0].id if pending else "none", f"result {n}"),
        lambda: conversation.insert({"role": "user", "content": f"inserted {n}"}, at=indices[0]),
        lambda: conversation.delete(indices),
        lambda: conversation.replace(indices[0], {"role": "user", "content": f"instead {n}"}),
        lambda: conversation.compress(indices),
        conversation.batch_start,
        lambda: conversation.batch_end(0),
        conversation.batch_commit,
        lambda: talk.undo(random.randint(2, talk.seq)),
        lambda: talk.pages.archive(f"usr-{random.randint(1, 9)}", cold=True),
        lambda: talk.pages.recall(f"usr-{random.randint(1, 9)}"),
    ]
    weights = [3, 3, 3, 4, 2, 2, 2, 2, 1, 1, 1, 2, 1, 1]
    (step,) = random.choices(steps, weights)
    before = talk.seq
    try:
        step()
    except QuireError:
        assert talk.seq == before
