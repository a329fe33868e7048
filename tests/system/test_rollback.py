"""Checkpoints and rollback: the whole earlier context, in one commit that can itself be undone."""

from collections.abc import Callable
from typing import Any

import pytest

from quire import (
    Context,
    Entry,
    InvalidValue,
    Lifecycle,
    Permission,
    Segment,
)
from tests.books import folder, leaf, leaves, listed, refused
from tests.marks import long
from tests.talks import calling, full_talk, new_talk, outline, texts


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
    with refused(talk.pages, InvalidValue):
        talk.checkpoint(name)


# Targets


@pytest.mark.parametrize(
    "to", [0, -1, 27, 10**40, True, False, None, 3.0, "", "nowhere", "3", b"here", ["here"], object(), {"seq": 3}]
)
def test_a_target_that_is_none_is_refused(to: Any) -> None:
    talk = full_talk()
    assert talk.seq == 26
    with refused(talk.pages, InvalidValue):
        talk.rollback(to)


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


@pytest.mark.parametrize("to", [1, 8, 15, 20, 27, 34, *long(*range(2, 36, 3))])
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


# Pins and permissions


def test_permissions_stay_as_they_are() -> None:
    talk = new_talk()
    talk.checkpoint("here")
    talk.pages.set_segment_permission("mem", Permission.PRIVATE)
    talk.pages.update_segment("mem", name="other")
    talk.rollback("here")
    segment = talk.pages.get_segment("mem")
    assert (segment.name, segment.permission) == ("Memory", Permission.PRIVATE)


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


def test_pages_come_back_in_their_order_around_a_pinned_page_that_took_the_place_of_one() -> None:
    pages = (talk := new_talk()).pages
    shelf, last, *moving = folder(pages), *leaves(pages, 4)
    for index, before in zip(moving, (last, *moving), strict=False):
        pages.move_page(index, "mem-0", before=before)
    talk.checkpoint("here")
    order = listed(pages, "mem-0")
    for index in moving:
        pages.move_page(index, shelf)
    pages.move_page(since := leaf(pages), "mem-0", before=last)
    pages.pin(since)
    talk.rollback("here")
    assert [index for index in listed(pages, "mem-0") if index != since] == order
    assert (listed(pages, shelf), talk.check()) == ([], [])


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
