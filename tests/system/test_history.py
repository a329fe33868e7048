"""history() and its filters, the audit file, and undo of single conversation operations."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

import quire
from quire import (
    Context,
    Entry,
    InvalidOperation,
    InvalidValue,
    NoSuchPage,
    Permission,
    Segment,
    StorageFailure,
    Visibility,
)
from quire.core.records import EntryRecord
from quire.core.state import State
from quire.system import journal
from tests.books import folder, leaf, refused
from tests.talks import calling, full_talk, new_talk, outline, said, texts

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
    talk = busy_talk()
    times = {entry.seq: entry.time for entry in talk.history()}
    assert seqs(talk, since=times[4]) == [4, 5, 6, 7, 8]
    assert seqs(talk, until=times[4]) == [1, 2, 3, 4]
    assert seqs(talk, since=times[3], until=times[5]) == [3, 4, 5]
    assert seqs(talk, since=times[5], until=times[3]) == []
    far = timezone(timedelta(hours=-9, minutes=-30))
    assert seqs(talk, since=times[3].astimezone(far), until=times[3].astimezone(far)) == [3]
    assert seqs(talk, since=times[8] + timedelta(milliseconds=1)) == []
    assert seqs(talk, since=datetime(1, 1, 1, tzinfo=UTC), until=datetime(9999, 12, 31, tzinfo=UTC)) == list(times)
    assert seqs(talk, since=times[4], actor="agent", page="mem-1") == [4, 6]


@pytest.mark.parametrize("field", ["since", "until"])
@pytest.mark.parametrize("value", [datetime(2024, 1, 1), "2024-01-01T00:00:00Z", 5, 1.5, True, datetime.max])
def test_a_time_without_a_zone_is_refused(field: str, value: Any) -> None:
    talk = busy_talk()
    with refused(talk.pages, InvalidValue, field, "time zone"):
        talk.history(**{field: value})


@pytest.mark.parametrize("page", ["mem-2", "usr-9", "nope-1", "mem-01", "", 5, b"mem-1", None.__class__])
def test_a_page_that_never_was_is_refused(page: Any) -> None:
    talk = busy_talk()
    with refused(talk.pages, InvalidValue, "page"):
        talk.history(page=page)


def test_a_history_is_that_of_the_moment_it_was_asked_for() -> None:
    talk = busy_talk()
    asked = talk.history()
    talk.user("later")
    assert [entry.seq for entry in asked] == [1, 2, 3, 4, 5, 6, 7, 8]


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


def test_a_whole_conversation_can_be_audited(tmp_path: Path) -> None:
    talk = full_talk()
    talk.pages.add_segment(Segment(id="own", description="line\u2028break"))
    talk.pages.create_detail_page("名", "", "", "own-0", meta={"a": [1, {"b": "\u2028"}]})
    talk.pages.update_page("own-1", name="other")
    talk.conversation.batch_start()
    talk.rollback(5)
    assert talk.audit(str(tmp_path / "audit.jsonl")) == talk.seq
    with open(tmp_path / "audit.jsonl", encoding="utf-8", newline="\n") as file:
        assert [json.loads(line)["seq"] for line in file] == list(range(1, talk.seq + 1))


def test_an_audit_that_cannot_be_written_is_a_named_error(tmp_path: Path) -> None:
    talk = busy_talk()
    with refused(talk.pages, StorageFailure, "nowhere"):
        talk.audit(tmp_path / "nowhere" / "audit.jsonl")
    with refused(talk.pages, StorageFailure):
        talk.audit(tmp_path)
    places: tuple[Any, ...] = ("", "a\0b", None, 5, b"x")
    for path in places:
        with refused(talk.pages, InvalidValue, "path"):
            talk.audit(path)
    with refused(talk.pages, InvalidValue, "since"):
        talk.audit(tmp_path / "audit.jsonl", since=datetime(2024, 1, 1))
    assert list(tmp_path.iterdir()) == []


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


Step = Callable[[Context], object]
STEPS: dict[str, Step] = {
    "system": lambda t: t.system("You are careful.", name="rules"),
    "user": lambda t: t.user("three"),
    "user parts": lambda t: t.user([{"type": "text", "text": "three"}]),
    "assistant": lambda t: t.assistant("three"),
    "assistant with calls": lambda t: t.assistant(None, calling("c", "d")),
    "tool_result": lambda t: t.tool_result("b", "2"),
    "add": lambda t: t.add([{"role": "user", "content": "three"}, {"role": "assistant", "content": "four"}]),
    "import": lambda t: t.import_messages([{"role": "tool", "tool_call_id": "x", "content": "lost"}]),
    "close_calls": lambda t: t.close_calls(),
    "insert": lambda t: t.conversation.insert({"role": "user", "content": "between"}, at=3),
    "delete": lambda t: t.conversation.delete(0),
    "delete a pair": lambda t: t.conversation.delete(2),
    "replace": lambda t: t.conversation.replace(0, {"role": "user", "content": "other"}),
    "replace a result": lambda t: t.conversation.replace(
        2, {"role": "tool", "tool_call_id": "a", "content": "another"}
    ),
    "compress": lambda t: t.conversation.compress([0, 1]),
    "batch_start": lambda t: t.conversation.batch_start(),
}
PINNED = {"system"}
"""A prompt is pinned, and no undo removes a pinned page."""


@pytest.mark.parametrize("name", [name for name in STEPS if name not in PINNED])
def test_undo_of_an_operation_keeps_what_came_later(name: str) -> None:
    talk, plain = short_talk(), short_talk()
    before = outline(talk)
    STEPS[name](talk)
    seq = talk.seq
    after = outline(talk)
    undone = talk.undo(seq)
    assert outline(talk) == before
    talk.undo(undone)
    assert outline(talk) == after
    for one in (talk, plain):
        leaf(one.pages, "note", detail="later")
        one.pages.update_page("usr-3", description="later")
    talk.undo(talk.seq - 2)
    assert outline(talk)["pages"].keys() == outline(plain)["pages"].keys()
    assert said(talk) == said(plain)
    assert (talk.pages.detail("mem-1"), talk.pages.get_page("usr-3").description) == ("later", "later")
    assert talk.pending_calls() == plain.pending_calls()
    assert talk.conversation.mark_map().batch_boundaries == [0]
    assert talk.check() == []


def test_no_undo_takes_a_prompt_away_but_its_change_can_be_undone() -> None:
    talk = new_talk()
    talk.system("first")
    with refused(talk.pages, InvalidOperation, "pinned"):
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


def test_a_result_undone_waits_again_and_another_is_taken() -> None:
    talk = short_talk()
    talk.tool_result("b", "wrong")
    talk.undo(talk.seq)
    assert [call.id for call in talk.pending_calls()] == ["b"]
    assert talk.tool_result("b", "right") == 6
    assert texts(talk)[-1] == "right"


LATER: list[tuple[str, Step, Step]] = [
    ("tool", lambda t: t.assistant(None, calling("c")), lambda t: t.tool_result("c", "3")),
    ("delete", lambda t: t.user("three"), lambda t: t.conversation.delete(5)),
    ("compress", lambda t: t.user("three"), lambda t: t.conversation.compress(5)),
    ("replace", lambda t: t.user("three"), lambda t: t.conversation.replace(5, {"role": "user", "content": "!"})),
    ("delete", lambda t: t.conversation.compress([0, 1, 3]), lambda t: t.conversation.delete(1)),
    ("move_page", lambda t: t.conversation.delete(0), lambda t: _undone_and_moved(t)),
    ("batch_start", lambda t: t.conversation.batch_start(), lambda t: t.conversation.batch_start()),
    ("hide", lambda t: t.user("three"), lambda t: t.pages.hide("usr-5")),
]


def _undone_and_moved(talk: Context) -> None:
    talk.undo(talk.seq)
    shelf = folder(talk.pages, parent="usr-0")
    talk.pages.move_page("usr-1", shelf)


@pytest.mark.parametrize(("later", "first", "second"), LATER)
def test_the_error_names_the_later_entry_that_changed_the_same_record(later: str, first: Step, second: Step) -> None:
    talk = short_talk()
    first(talk)
    seq = talk.seq
    second(talk)
    with refused(talk.pages, InvalidOperation, f"entry {talk.seq} ({later})"):
        talk.undo(seq)


def test_undo_of_a_batch_end_brings_the_batch_back() -> None:
    talk = short_talk()
    talk.conversation.batch_start()
    talk.user("in the batch")
    talk.conversation.delete(0)
    inside = outline(talk)
    talk.conversation.batch_end(0)
    assert texts(talk)[0] == "one"
    talk.undo(talk.seq)
    assert outline(talk) == inside
    talk.conversation.batch_end(0)
    assert texts(talk) == texts(short_talk())
    assert talk.check() == []


def test_undo_of_a_removed_exchange_brings_its_messages_back() -> None:
    talk = short_talk()
    talk.pages.remove_page("usr-2")
    assert [message.index for message in talk.messages()] == [0, 3, 4]
    with pytest.raises(NoSuchPage):
        talk.pages.get_page("usr-2")
    talk.undo(talk.seq)
    assert said(talk) == said(short_talk())


def test_pins_and_permissions_block_no_undo() -> None:
    talk = new_talk()
    pages = talk.pages
    note = leaf(pages, "note")
    pages.update_page(note, name="other")
    renamed = talk.seq
    pages.pin(note)
    pages.unpin(note)
    unpinned = talk.seq
    with refused(pages, InvalidOperation, "never undone"):
        talk.undo(unpinned)
    undone = talk.undo(renamed)
    assert pages.get_page(note).name == "note"
    pages.pin(note)
    talk.undo(undone)  # a current pin stays
    assert (pages.get_page(note).name, pages.get_page(note).pinned) == ("other", True)
    pages.update_segment("mem", name="Notebook")
    renamed = talk.seq
    pages.set_segment_permission("mem", Permission.READ_ONLY)
    talk.undo(renamed)
    assert (pages.get_segment("mem").name, pages.get_segment("mem").permission) == ("Memory", Permission.READ_ONLY)
    assert talk.check() == []


@pytest.mark.parametrize(
    ("first", "second", "restored"),
    [
        (Permission.PRIVATE, Permission.READ_WRITE, Permission.PRIVATE),
        (Permission.READ_ONLY, Permission.SYSTEM_MANAGED, Permission.READ_ONLY),
        (Permission.READ_WRITE, Permission.PRIVATE, Permission.PRIVATE),
    ],
)
@pytest.mark.parametrize("by", ["undo", "rollback"])
def test_a_restored_segment_does_not_get_the_rights_of_a_later_one(
    by: str, first: Permission, second: Permission, restored: Permission
) -> None:
    pages = new_talk().pages
    pages.add_segment(Segment(id="keys", permission=first))
    leaf(pages, "secret", "keys-0")
    pages.remove_segment("keys")
    removed = pages.seq
    pages.add_segment(Segment(id="keys", permission=second))
    if by == "undo":
        pages.undo(pages.seq)
        pages.undo(removed)
    else:
        pages.rollback(removed - 1)
    assert pages.get_segment("keys").permission is restored
    assert [page.name for page in pages.children("keys-0")] == ["secret"]
    assert pages.check() == []


def test_a_pin_that_opened_a_page_is_undone_after_it_was_lifted() -> None:
    talk = new_talk()
    note = leaf(talk.pages, "note")
    talk.pages.hide(note)
    talk.pages.pin(note)
    pinned = talk.seq
    talk.pages.unpin(note)
    with refused(talk.pages, InvalidOperation, f"changed later by entry {pinned} (pin). Undo that first"):
        talk.undo(pinned - 1)
    talk.undo(pinned)
    assert talk.pages.get_page(note).visibility is Visibility.HIDDEN
    talk.undo(pinned - 1)
    assert talk.pages.get_page(note).visibility is Visibility.EXPANDED


def test_all_that_stands_in_the_way_of_an_undo_is_named_in_the_order_that_works() -> None:
    talk = new_talk()
    note = leaf(talk.pages, "note")
    made = talk.seq
    for name in ("一", "two", "three"):
        talk.pages.update_page(note, name=name)
    talk.undo(talk.seq)  # an undone entry blocks nothing
    folder = talk.pages.create_contents_page("folder", "", "mem-0", [note])
    talk.pages.update_page(folder, name="other")  # blocks the undo of the folder
    chain = [made + 6, made + 5, made + 2, made + 1]
    for count in range(len(chain), 1, -1):
        with refused(talk.pages, InvalidOperation, f"Undo {', '.join(map(str, chain[-count:]))} first, in this order."):
            talk.undo(made)
        talk.undo(chain[-count])
    with refused(talk.pages, InvalidOperation, f"changed later by entry {chain[-1]} (update_page). Undo that first."):
        talk.undo(made)


def test_a_long_list_of_entries_to_undo_is_shortened_and_alternatives_are_hinted() -> None:
    talk = new_talk()
    talk.user("订单在哪里？")
    asked = talk.seq
    for _ in range(4):
        talk.pages.hide("usr-1")
        talk.pages.expand("usr-1")
    last = talk.seq
    named = ", ".join(str(last - n) for n in range(5))
    words = f"Undo {named}, … {asked + 1} first, in this order, 8 entries in all."
    with refused(talk.pages, InvalidOperation, words) as caught:
        talk.undo(asked)
    others = ["conversation.delete([0])", f"rollback({asked - 1})"]
    assert [hint.source for hint in caught.value.hints] == ["hide('usr-1')", *others]
    talk.pages.archive("usr-1")
    with refused(talk.pages, InvalidOperation) as caught:
        talk.undo(asked)
    assert [hint.source for hint in caught.value.hints] == others
    talk.rollback(asked - 1)
    assert talk.messages() == []


def test_a_refused_undo_of_an_import_reads_each_entry_once_and_names_all_its_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = quire.open("memory:", budget=600)
    talk.import_messages([{"role": "user", "content": f"m{number} flight"} for number in range(300)])
    added = talk.seq
    talk.render()
    folded = talk.seq
    read: list[int] = []
    stored = journal.stored_entry

    def count(state: State, seq: int) -> EntryRecord:
        read.append(seq)
        return stored(state, seq)

    monkeypatch.setattr("quire.system.undo.stored_entry", count)
    with pytest.raises(InvalidOperation, match=rf"changed later by entry {folded} \(fold\)") as caught:
        talk.undo(added)
    assert [hint.source for hint in caught.value.hints] == ["conversation.delete(range(0, 300))"]
    assert set(read) == {added, folded}
    assert len(read) <= 4


def test_a_later_change_under_a_pin_is_the_one_to_undo_first() -> None:
    talk = new_talk()
    note = leaf(talk.pages, "note")
    talk.pages.update_page(note, name="second")
    talk.pages.update_page(note, name="third")
    third = talk.seq
    talk.pages.pin(note)
    talk.pages.unpin(note)
    with refused(talk.pages, InvalidOperation, f"changed later by entry {third} (update_page)"):
        talk.undo(third - 1)
    talk.undo(third)
    talk.undo(third - 1)
    assert talk.pages.get_page(note).name == "note"
