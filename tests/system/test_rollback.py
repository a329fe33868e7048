"""Checkpoints and rollback: the whole earlier context, in one commit that can itself be undone."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from quire import (
    Context,
    Entry,
    InvalidOperation,
    InvalidValue,
    Lifecycle,
    MemoryStorage,
    NoSuchPage,
    NoSuchSegment,
    Permission,
    Segment,
    SegmentType,
)
from quire.testing import FaultyStorage
from tests.books import folder, leaf, leaves, listed, refused
from tests.marks import broad
from tests.talks import calling, full_talk, new_talk, outline, said, texts


def last_entry(talk: Context) -> Entry:
    return list(talk.history())[-1]


# Checkpoints


def test_a_checkpoint_names_a_state_and_all_are_listed_oldest_first() -> None:
    talk = new_talk()
    talk.user("one")
    first = talk.checkpoint("before the tests")
    talk.user("two")
    second = talk.checkpoint("后来")
    assert (first, second) == (3, 5)
    assert list(talk.pages.checkpoints().items()) == [("before the tests", 3), ("后来", 5)]
    assert last_entry(talk).operation == "checkpoint"
    assert last_entry(talk).changes == ()
    talk.rollback("before the tests")
    assert texts(talk) == ["one"]


@pytest.mark.parametrize("name", ["", "  ", "2", "0" * 50, "x" * 201, "a\0b", "\ud800", None, 5, b"x", ["here"], True])
def test_a_name_that_cannot_be_one_is_refused(name: Any) -> None:
    talk = new_talk()
    with refused(talk.pages, InvalidValue, "name"):
        talk.checkpoint(name)


def test_a_name_is_given_once() -> None:
    talk = new_talk()
    talk.checkpoint("here")
    talk.user("one")
    with refused(talk.pages, InvalidOperation, "'here'", "entry 2"):
        talk.checkpoint("here")
    with refused(talk.pages, InvalidOperation, "'here'"):
        talk.checkpoint("here\n".strip())


def test_a_checkpoint_undone_is_no_more_and_its_name_is_free() -> None:
    talk = new_talk()
    made = talk.checkpoint("here")
    undone = talk.undo(made)
    assert talk.pages.checkpoints() == {}
    with refused(talk.pages, InvalidValue, "'here'"):
        talk.rollback("here")
    talk.undo(undone)
    assert talk.pages.checkpoints() == {"here": made}
    talk.undo(talk.seq)
    talk.user("one")
    again = talk.checkpoint("here")
    assert talk.pages.checkpoints() == {"here": again}


def test_checkpoints_outlive_a_rollback_so_that_one_can_go_forward_again() -> None:
    talk = new_talk()
    talk.checkpoint("early")
    talk.user("one")
    talk.checkpoint("late")
    talk.rollback("early")
    assert texts(talk) == []
    talk.rollback("late")
    assert texts(talk) == ["one"]
    assert list(talk.pages.checkpoints()) == ["early", "late"]


def test_another_handle_sees_the_checkpoints() -> None:
    storage = MemoryStorage()
    one, two = new_talk(storage), new_talk(storage)
    one.checkpoint("here")
    two.refresh()
    assert two.pages.checkpoints() == {"here": 2}
    with refused(two.pages, InvalidOperation, "'here'"):
        two.checkpoint("here")


# Targets


@pytest.mark.parametrize(
    "to", [0, -1, 27, 10**40, True, False, None, 3.0, "", "nowhere", "3", b"here", ["here"], object(), {"seq": 3}]
)
def test_a_target_that_is_none_is_refused(to: Any) -> None:
    talk = full_talk()
    assert talk.seq == 26
    with refused(talk.pages, InvalidValue):
        talk.rollback(to)


def test_the_error_names_the_checkpoints_there_are() -> None:
    talk = new_talk()
    with refused(talk.pages, InvalidValue, "'nowhere'", "checkpoint(name)"):
        talk.rollback("nowhere")
    for number in range(20):
        talk.checkpoint(f"point {number}")
    with refused(talk.pages, InvalidValue, "'nowhere'", "'point 19'"):
        talk.rollback("nowhere")


def test_an_entry_of_somewhere_else_is_refused_if_there_is_none_like_it() -> None:
    talk = new_talk()
    entry = Entry(seq=99, time=datetime.now(UTC), actor="developer", operation="user")
    with refused(talk.pages, InvalidValue, "99"):
        talk.rollback(entry)


@pytest.mark.parametrize("kind", ["name", "seq", "entry"])
def test_a_state_is_named_by_a_checkpoint_a_seq_or_an_entry(kind: str) -> None:
    talk = new_talk()
    talk.user("one")
    seq = talk.checkpoint("here")
    before = outline(talk)
    entry = last_entry(talk)
    talk.user("two")
    to: Any = {"name": "here", "seq": seq, "entry": entry}[kind]
    assert talk.rollback(to) == seq + 2 == talk.seq
    assert outline(talk) == before
    assert (last_entry(talk).operation, last_entry(talk).undoes) == ("rollback", None)


def test_going_back_to_where_one_is_changes_nothing() -> None:
    talk = full_talk()
    seq = talk.seq
    assert talk.rollback(seq) == seq
    talk.checkpoint("here")
    assert talk.rollback("here") == talk.seq == seq + 1


# Every state


def changes(talk: Context) -> list[Callable[[], object]]:
    """Changes of every kind, each on the result of those before it."""
    pages, conversation = talk.pages, talk.conversation
    return [
        lambda: talk.system("You are careful."),
        lambda: talk.user("one"),  # usr-1
        lambda: talk.assistant(None, calling("a", "b")),  # usr-2
        lambda: talk.tool_result("a", "1"),
        lambda: talk.user("two"),  # usr-3
        lambda: talk.tool_result("b", "late"),
        lambda: talk.system("You are brave."),
        lambda: folder(pages, "shelf"),  # mem-1
        lambda: leaf(pages, "in it", "mem-1", "text"),  # mem-2
        lambda: leaf(pages, "beside it"),  # mem-3
        lambda: pages.hide("mem-1"),
        lambda: pages.move_page("mem-1", "win-0"),  # win-1, win-2
        lambda: pages.set_detail("win-2", "other text"),
        lambda: pages.add_segment(Segment(id="new")),
        lambda: pages.move_page("win-1", "new-0"),  # new-1, new-2
        lambda: pages.move_page("new-1", "mem-0"),  # mem-4, mem-5
        lambda: pages.remove_segment("new"),
        lambda: pages.archive("mem-4", cold=True),
        lambda: pages.update_segment("mem", name="other"),
        lambda: conversation.delete(1),
        lambda: talk.assistant("three"),
        lambda: conversation.compress([5, 7]),
        lambda: conversation.batch_start(),
        lambda: talk.user("in a batch"),
        lambda: conversation.batch_start(),
        lambda: conversation.replace(8, {"role": "user", "content": "in its place"}),
        lambda: conversation.batch_end(0),
        lambda: pages.create_contents_page("chapter", "", "usr-0", ["usr-3"]),
        lambda: conversation.insert([{"role": "user", "content": "inserted"}], at=2),
        lambda: pages.recall("mem-4"),
        lambda: pages.remove_page("mem-4"),
        lambda: talk.import_messages([{"role": "assistant", "content": "imported"}, {"role": "user", "content": "!"}]),
        lambda: pages.unmarshal(pages.marshal()),
        lambda: talk.undo(talk.seq),
    ]


def history_of(talk: Context) -> dict[int, dict[str, Any]]:
    """Make all the changes. Return the outline after each entry."""
    states = {talk.seq: outline(talk)}
    for change in changes(talk):
        seq = talk.seq
        change()
        assert talk.seq == seq + 1
        states[talk.seq] = outline(talk)
    return states


def without_later_prompts(state: dict[str, Any]) -> dict[str, Any]:
    """Prompts are pinned, and pinned pages stay."""
    prompts = {"sys-1"}
    pages = {index: form for index, form in state["pages"].items() if index not in prompts}
    pages["sys-0"] = pages["sys-0"] | {"children": []}
    return state | {"pages": pages}


@pytest.mark.parametrize("to", [*range(1, 36, 2), *broad(*range(2, 36, 2))])
def test_every_earlier_state_comes_back_exactly_and_the_way_back_can_be_undone(to: int) -> None:
    talk = new_talk()
    states = history_of(talk)
    assert len(states) == 35
    now, seq = outline(talk), talk.seq
    assert talk.rollback(to) == talk.seq
    then = outline(talk)
    strip = without_later_prompts if to == 1 else (lambda state: state)
    assert strip(then) == strip(states[to])
    assert talk.check() == []
    if then == now:
        return
    assert talk.seq == seq + 1
    back = talk.undo(talk.seq)
    assert outline(talk) == now
    assert talk.check() == []
    talk.undo(back)
    assert outline(talk) == then
    assert talk.check() == []
    talk.rollback(seq)
    assert outline(talk) == now


def test_going_back_and_forth_many_times_loses_nothing() -> None:
    talk = new_talk()
    states = history_of(talk)
    top = max(states)
    for to in (20, 8, 31, 12, 25, 3, top, 15):
        talk.rollback(to)
        assert talk.check() == []
        assert outline(talk) == states[to]


def test_what_arrived_since_stays_readable_and_numbers_go_on() -> None:
    talk = new_talk()
    talk.user("one")
    talk.checkpoint("here")
    talk.user("two")
    talk.rollback("here")
    assert said(talk) == [(0, "user", "one")]
    assert said(talk, all=True) == [(0, "user", "one"), (1, "user", "two")]
    assert talk.conversation.is_modified(1)
    assert talk.user("three") == 2
    assert talk.pages.get_page("usr-3").name == "three"
    with pytest.raises(NoSuchPage):
        talk.pages.get_page("usr-2")


def test_a_thousand_changes_go_back_in_one_commit() -> None:
    storage = FaultyStorage(MemoryStorage())
    talk = new_talk(storage)
    pages = leaves(talk.pages, 50)
    before = outline(talk)
    talk.checkpoint("here")
    for number in range(1_000):
        talk.pages.update_page(pages[number % 50], description=f"change {number}")
    storage.arm(0)
    talk.rollback("here")
    assert storage.calls.count("commit") == 1
    assert outline(talk) == before
    assert len(last_entry(talk).pages) == 50


def test_a_commit_that_is_refused_leaves_the_state_of_now() -> None:
    storage = MemoryStorage()
    one, two = new_talk(storage), new_talk(storage)
    one.user("one")
    two.refresh()
    one.user("two")
    with pytest.raises(Exception, match="refresh"):
        two.rollback(1)
    two.refresh()
    assert texts(two) == ["one", "two"]
    two.rollback(1)
    assert texts(two) == []


# Batches and calls


def test_batches_open_then_are_open_again_and_can_be_ended() -> None:
    talk = new_talk()
    talk.user("one")
    talk.conversation.batch_start()
    talk.user("in the batch")
    talk.checkpoint("inside")
    talk.conversation.batch_end(0)
    talk.user("after it")
    talk.rollback("inside")
    assert talk.conversation.mark_map().batch_boundaries == [0, 1]
    assert texts(talk) == ["one", "in the batch"]
    talk.user("more")
    ended = talk.conversation.batch_end(0)
    assert (ended.covered, texts(talk)) == ((1, 3), ["one"])
    assert talk.check() == []


def test_a_batch_opened_since_is_open_no_more() -> None:
    talk = new_talk()
    talk.checkpoint("outside")
    talk.conversation.batch_start()
    talk.user("in the batch")
    talk.rollback("outside")
    assert talk.conversation.mark_map().current_batch == 0
    talk.conversation.cleanup()


def test_calls_that_waited_then_wait_again() -> None:
    talk = new_talk()
    talk.user("one")
    talk.assistant(None, calling("a", "b"))
    talk.checkpoint("waiting")
    talk.tool_result("a", "1")
    talk.user("never mind")
    talk.rollback("waiting")
    assert [call.id for call in talk.pending_calls()] == ["a", "b"]
    assert talk.tool_result("a", "another") == 4
    assert texts(talk) == ["one", "", "another"]
    with refused(talk.pages, InvalidOperation, "'b'"):
        talk.pages.hide("usr-2")


# Pins and permissions


def test_permissions_stay_as_they_are() -> None:
    talk = new_talk()
    talk.checkpoint("here")
    talk.pages.set_segment_permission("mem", Permission.PRIVATE)
    talk.pages.update_segment("mem", name="other")
    talk.rollback("here")
    segment = talk.pages.get_segment("mem")
    assert (segment.name, segment.permission) == ("Memory", Permission.PRIVATE)


def test_a_segment_that_was_made_private_and_removed_comes_back_private() -> None:
    talk = new_talk()
    talk.checkpoint("here")
    talk.pages.set_segment_permission("mem", Permission.PRIVATE)
    talk.pages.remove_segment("mem")
    talk.rollback("here")
    assert talk.pages.get_segment("mem").permission is Permission.PRIVATE


def test_what_was_pinned_since_stays_pinned_and_shown_with_what_it_said_then() -> None:
    talk = new_talk()
    pages = talk.pages
    shelf = folder(pages)
    page = leaf(pages, "then", shelf)
    pages.hide(shelf)
    talk.checkpoint("here")
    pages.pin(page)
    pages.update_page(page, name="later")
    talk.rollback("here")
    found = pages.get_page(page)
    assert (found.name, found.pinned, found.effective) == ("then", True, Lifecycle.ACTIVE)
    assert talk.check() == []


def test_what_was_unpinned_since_stays_unpinned_also_if_it_was_removed() -> None:
    talk = new_talk()
    pages = talk.pages
    kept, removed, moved = leaves(pages, 3)
    for index in (kept, removed, moved):
        pages.pin(index)
    talk.checkpoint("here")
    for index in (kept, removed, moved):
        pages.unpin(index)
    pages.remove_page(removed)
    pages.move_page(moved, "win-0")
    talk.rollback("here")
    assert [pages.get_page(index).pinned for index in (kept, removed, moved)] == [False, False, False]
    assert listed(pages, "mem-0") == [kept, removed, moved]


def test_a_page_made_and_pinned_since_stays_with_its_folders_and_its_segment() -> None:
    talk = new_talk()
    pages = talk.pages
    talk.checkpoint("here")
    pages.add_segment(Segment(id="new"))
    shelf = folder(pages, parent="new-0")
    page = leaf(pages, "pinned", shelf)
    other = leaf(pages, "not pinned", shelf)
    pages.add_segment(Segment(id="empty"))
    pages.pin(page)
    talk.rollback("here")
    assert listed(pages, "new-0") == [shelf]
    assert listed(pages, shelf) == [page]
    with pytest.raises(NoSuchPage):
        pages.get_page(other)
    with pytest.raises(NoSuchSegment):
        pages.get_segment("empty")
    assert talk.check() == []
    talk.undo(talk.seq)
    assert listed(pages, shelf) == [page, other]


def test_a_prompt_set_since_stays_and_one_changed_since_says_what_it_said() -> None:
    talk = new_talk()
    talk.system("first")
    talk.checkpoint("here")
    talk.system("second")
    talk.system("another", name="rules")
    talk.user("one")
    talk.rollback("here")
    assert texts(talk) == ["first", "another"]
    assert talk.check() == []


def test_a_page_that_moved_and_was_pinned_there_is_not_doubled() -> None:
    talk = new_talk()
    index = talk.pages.get_page("usr-0").index
    talk.user("one")
    talk.checkpoint("here")
    twice = talk.pages.move_page("usr-1", "mem-0")["usr-1"]
    new = talk.pages.move_page(twice, "sys-0")[twice]
    talk.rollback("here")
    assert listed(talk.pages, index) == []
    assert [page.index for page in talk.pages.children("sys-0")] == [new]
    for old in ("usr-1", twice):
        with refused(talk.pages, NoSuchPage, repr(new)):
            talk.pages.get_page(old)
    assert talk.check() == []


def test_a_pinned_page_that_stands_where_another_stood_stays_and_the_other_finds_its_place_beside_it() -> None:
    talk = new_talk()
    pages = talk.pages
    first, second, third, fourth = leaves(pages, 4)
    talk.checkpoint("here")
    pages.remove_page(first)
    pages.unmarshal(pages.marshal())  # assigns new ranks
    pages.pin(second)
    talk.rollback("here")
    order = listed(pages, "mem-0")
    assert sorted(order) == [first, second, third, fourth]
    assert [index for index in order if index != second] == [first, third, fourth]
    talk.undo(talk.undo(talk.seq))
    assert listed(pages, "mem-0") == order
    assert talk.check() == []


# Moves between segments


def test_moves_between_segments_are_turned_around_and_old_indices_lead_home() -> None:
    talk = new_talk()
    pages = talk.pages
    shelf = folder(pages)
    inside = leaf(pages, "inside", shelf)
    talk.checkpoint("here")
    there = pages.move_page(shelf, "win-0")
    back = pages.move_page(there[shelf], "mem-0")
    again = pages.move_page(back[there[shelf]], "win-0")
    top = talk.seq
    talk.rollback("here")
    assert (listed(pages, "mem-0"), listed(pages, shelf)) == ([shelf], [inside])
    for old, home in ((shelf, shelf), (inside, inside)):
        for moved in (there[old], back[there[old]], again[back[there[old]]]):
            with refused(pages, NoSuchPage, repr(home)):
                pages.get_page(moved)
    talk.rollback(top)
    for moved in (inside, there[inside], back[there[inside]]):
        with refused(pages, NoSuchPage, repr(again[back[there[inside]]])):
            pages.get_page(moved)
    assert talk.check() == []


def test_going_back_into_the_middle_of_a_journey_leaves_no_circle() -> None:
    talk = new_talk()
    pages = talk.pages
    home = index = leaf(pages)
    stops: list[tuple[int, str]] = [(talk.seq, index)]
    for target in ("win-0", "mem-0", "win-0", "mem-0", "usr-0"):
        index = pages.move_page(index, target)[index]
        stops.append((talk.seq, index))
    for to, stands in [stops[2], stops[4], stops[0], stops[5], stops[1], stops[3]]:
        talk.rollback(to)
        assert [page.index for page in pages.list_pages() if page.parent] == [stands]
        for _, other in stops:
            if other != stands:
                with pytest.raises(NoSuchPage) as caught:
                    pages.get_page(other)
                assert caught.value.moved_to in (stands, None)
        assert talk.check() == []
    assert home == stops[0][1]


# Segments


def test_segments_added_since_go_and_removed_ones_come_back_with_all_their_pages() -> None:
    talk = new_talk()
    pages = talk.pages
    cold = leaf(pages, "cold", detail="text")
    pages.archive(cold, cold=True)
    talk.checkpoint("here")
    pages.remove_segment("mem")
    pages.add_segment(Segment(id="new"))
    leaf(pages, parent="new-0")
    pages.add_segment(Segment(id="mem", type=SegmentType.TOOL, name="another"))
    leaf(pages, "another")
    talk.rollback("here")
    assert [(s.id, s.name, s.type) for s in pages.list_segments()][1] == ("mem", "Memory", SegmentType.CUSTOM)
    assert [s.id for s in pages.list_segments()] == ["sys", "mem", "usr", "win"]
    pages.recall(cold)
    assert listed(pages, "mem-0") == [cold]
    assert talk.check() == []
    with refused(pages, InvalidOperation, repr(cold), "recall"):
        talk.undo(talk.seq - 1)


def test_the_conversation_does_not_go_away_with_the_segment_that_holds_it() -> None:
    talk = new_talk()
    talk.pages.unmarshal(json.dumps({"segments": [], "pages": {}}))
    talk.checkpoint("empty")
    talk.pages.add_segment(Segment(id="talk", type=SegmentType.USER))
    with refused(talk.pages, InvalidOperation, "'talk'", "conversation"):
        talk.rollback("empty")


# Limits of a rollback


def test_nothing_before_a_cleanup_comes_back() -> None:
    talk = new_talk()
    talk.checkpoint("before")
    talk.user("one")
    talk.user("two")
    talk.conversation.delete(0)
    talk.conversation.cleanup()
    cleaned = talk.seq
    talk.user("three")
    before: tuple[Any, ...] = (1, "before", cleaned - 1)
    for to in before:
        with refused(talk.pages, InvalidOperation):
            talk.rollback(to)
    with refused(talk.pages, InvalidOperation, str(cleaned)):
        talk.undo(cleaned)
    talk.rollback(cleaned)
    assert said(talk) == [(0, "user", "two")]
    assert talk.check() == []


def test_a_cleanup_that_had_nothing_to_do_ends_nothing() -> None:
    talk = new_talk()
    talk.user("one")
    talk.conversation.cleanup()
    talk.rollback(1)
    assert texts(talk) == []


def test_a_rollback_inside_a_temporary_block_goes_with_it() -> None:
    talk = new_talk()
    talk.user("one")
    talk.user("two")
    with talk.temporary():
        talk.rollback(2)
        assert texts(talk) == ["one"]
    assert texts(talk) == ["one", "two"]
    assert talk.check() == []
