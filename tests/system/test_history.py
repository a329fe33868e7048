"""history() and its filters, the audit file, and undo of single conversation operations."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quire import (
    Context,
    Entry,
    InvalidOperation,
    InvalidValue,
)
from tests.books import leaf, leaves, new_book, refused
from tests.talks import calling, new_talk, texts

# Filters


def busy_talk() -> Context:
    """Return entries of two actors: 1 create, 2 user, 3 a note, 4 its change, 5 user, 6 move, 7 remove, 8 hide."""
    talk = new_talk()
    agent = talk.pages.acting_as("agent")
    talk.user("one")
    index = leaf(agent, "note")  # mem-1
    agent.update_page(index, name="other")
    talk.user("two")
    agent.move_page(index, "win-0")  # win-1
    talk.pages.remove_page("win-1")
    agent.hide("usr-1")
    return talk


def seqs(talk: Context, **filters: Any) -> list[int]:
    return [entry.seq for entry in talk.history(**filters)]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"after": 5}, [6, 7, 8]),
        ({"actor": "agent"}, [3, 4, 6, 8]),
        ({"actor": "developer"}, [1, 2, 5, 7]),
        ({"actor": "nobody"}, []),
        ({"actor": "age"}, []),
        ({"operation": "user"}, [2, 5]),
        ({"operation": "create_detail_page"}, [3]),
        ({"operation": ""}, []),
        ({"page": "usr-1"}, [2, 8]),
        ({"page": "mem-1"}, [3, 4, 6]),
        ({"page": "win-1"}, [6, 7]),
        ({"page": "mem-0"}, [1]),
        ({"page": "usr-1", "actor": "agent"}, [8]),
        ({"page": "mem-1", "after": 3, "operation": "update_page"}, [4]),
        ({"actor": "agent", "operation": "user"}, []),
    ],
)
def test_every_filter_must_pass(filters: dict[str, Any], found: list[int]) -> None:
    assert seqs(busy_talk(), **filters) == found


def test_times_are_both_included_in_any_time_zone() -> None:
    book = new_book()
    leaves(book, 3)
    times = {entry.seq: entry.time for entry in book.history()}

    def found(**filters: Any) -> list[int]:
        return [entry.seq for entry in book.history(**filters)]

    assert found(since=times[4]) == [4, 5, 6]
    assert found(until=times[4]) == [1, 2, 3, 4]
    assert found(since=times[5], until=times[3]) == []
    far = timezone(timedelta(hours=-9, minutes=-30))
    assert found(since=times[3].astimezone(far), until=times[3].astimezone(far)) == [3]
    assert found(since=datetime(1, 1, 1, tzinfo=UTC), until=datetime(9999, 12, 31, tzinfo=UTC)) == list(times)


@pytest.mark.parametrize("page", ["mem-2", "usr-9", "nope-1", "mem-01", "", 5, b"mem-1", None.__class__])
def test_a_page_that_never_was_is_refused(page: Any) -> None:
    talk = busy_talk()
    with refused(talk.pages, InvalidValue):
        talk.history(page=page)


# Audit


@pytest.mark.parametrize("filters", [{}, {"actor": "agent"}, {"after": 3, "page": "mem-1"}, {"operation": "none"}])
def test_the_audit_file_has_one_entry_a_line_and_says_what_history_says(
    filters: dict[str, Any], tmp_path: Path
) -> None:
    talk = busy_talk()
    path = tmp_path / "audit.jsonl"
    entries = list(talk.history(**filters))
    assert talk.audit(path, **filters) == len(entries)
    lines = path.read_text().splitlines()
    assert [json.loads(line) for line in lines] == [json.loads(msgspec.json.encode(entry)) for entry in entries]
    read = [msgspec.json.decode(line, type=Entry) for line in lines]
    assert [(e.seq, e.time, e.actor, e.operation, e.pages, e.segments, e.undoes) for e in read] == [
        (e.seq, e.time, e.actor, e.operation, e.pages, e.segments, e.undoes) for e in entries
    ]


# Undo of one conversation operation


def short_talk() -> Context:
    """Messages: 0 one, 1 a call with 2 its result, 3 two, 4 a call that waits."""
    talk = new_talk()
    talk.user("one")  # usr-1
    talk.assistant(None, calling("a"))  # usr-2
    talk.tool_result("a", "1")
    talk.user("two")  # usr-3
    talk.assistant("Looking.", calling("b"))  # usr-4
    return talk


def test_no_undo_takes_a_prompt_away_but_its_change_can_be_undone() -> None:
    talk = new_talk()
    talk.system("first")
    with refused(talk.pages, InvalidOperation):
        talk.undo(talk.seq)
    talk.system("second")
    talk.user("one")
    talk.undo(talk.seq - 1)
    assert texts(talk) == ["first", "one"]
    assert talk.check() == []


def test_undoing_an_arrival_marks_the_message_as_removed_and_redo_brings_it_back() -> None:
    talk = short_talk()
    talk.close_calls()
    talk.user("three")
    undone = talk.undo(talk.seq)
    assert talk.conversation.mark_of(5).name == "REMOVED"
    assert talk.conversation.page_of(5) is None
    assert talk.conversation.message(5).text == "three"
    assert talk.user("four") == 6
    talk.undo(undone)
    assert texts(talk)[-2:] == ["three", "four"]
    assert talk.check() == []
