"""Reading an earlier state, a part of the journal, and folders in parts, cold pages too."""

import pytest

import quire
from quire import InvalidValue, MemoryStorage
from tests.books import WordCounter


def talking() -> quire.Context:
    ctx = quire.open("memory:", counter=WordCounter())
    ctx.user("one")
    ctx.assistant("two")
    ctx.checkpoint("中间")
    ctx.user("three")
    return ctx


def test_a_context_as_of_an_entry_is_what_a_rollback_would_leave_and_writes_nothing() -> None:
    ctx = talking()
    before, entries = ctx.seq, list(ctx.history())
    past = ctx.as_of(3)
    assert [message.text for message in past.messages()] == ["one", "two"]
    assert [message["content"] for message in past.render(preview=True).openai()][-2:] == ["one", "two"]
    past.user("only here")
    past.pages.create_detail_page("a note", "", "x", "mem-0")
    past.render()
    assert (ctx.refresh(), ctx.seq, list(ctx.history())) == (False, before, entries)
    ctx.rollback(3)
    assert [message.text for message in ctx.messages()] == ["one", "two"]


def test_a_context_as_of_a_checkpoint_and_of_now() -> None:
    ctx = talking()
    assert [message.text for message in ctx.as_of("中间").messages()] == ["one", "two"]
    assert ctx.as_of(ctx.seq).messages() == ctx.messages()
    with pytest.raises(InvalidValue):
        ctx.as_of(99)


def test_the_journal_is_read_between_two_entries_and_backwards() -> None:
    ctx = talking()
    seqs = [entry.seq for entry in ctx.history()]
    assert [entry.seq for entry in ctx.history(reverse=True)] == seqs[::-1]
    assert [entry.seq for entry in ctx.history(1, before=4)] == [2, 3]
    assert [entry.seq for entry in ctx.history(1, before=4, reverse=True)] == [3, 2]
    assert [entry.seq for entry in ctx.history(before=99)] == seqs
    assert list(ctx.history(before=0)) == []
    with pytest.raises(InvalidValue):
        ctx.history(before=-1)


def test_the_cold_pages_of_a_folder_are_listed_in_parts() -> None:
    pages = quire.open(MemoryStorage(), counter=WordCounter()).pages
    made = [pages.create_detail_page(f"note {n}", "", "x", "mem-0") for n in range(5)]
    for index in made[1:4]:
        pages.archive(index, cold=True)
    assert [page.index for page in pages.children("mem-0")] == [made[0], made[4]]
    assert [page.index for page in pages.children("mem-0", cold=True)] == made[1:4]
    assert [page.index for page in pages.children("mem-0", cold=True, after=made[1], limit=1)] == [made[2]]
    with pytest.raises(InvalidValue):
        pages.children("mem-0", after=made[1])
    with pytest.raises(InvalidValue):
        pages.children("mem-0", after=made[0], cold=True)
