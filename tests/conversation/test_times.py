"""Messages keep the times of their source; pages, search, recall and pauses use them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import quire

TIME = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)


def created(ctx: quire.Context, index: int) -> datetime:
    page = ctx.conversation.page_of(index)
    assert page is not None
    return ctx.pages.get_page(page).created_at


def test_added_messages_take_a_time_and_their_pages_have_it(tmp_path: Path) -> None:
    with quire.open(tmp_path / "t.db") as ctx:
        ctx.user("Hi", at=TIME)
        ctx.assistant(
            None, [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}], at=TIME + timedelta(minutes=1)
        )
        ctx.tool_result("c1", "4", at=TIME + timedelta(minutes=2))
        ctx.add({"role": "user", "content": "Now"})
        ctx.add([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], at=TIME)
        before = ctx.history
        assert all(entry.time > TIME + timedelta(days=1) for entry in before())
    with quire.open(tmp_path / "t.db") as ctx:
        minutes = [None if m.at is None else (m.at - TIME) // timedelta(minutes=1) for m in ctx.messages()]
        assert minutes == [0, 1, 2, None, 0, 0]
        assert created(ctx, 0) == TIME
        assert created(ctx, 1) == TIME + timedelta(minutes=1)
        page = ctx.pages.get_page(ctx.conversation.page_of(1) or "")
        assert page.updated_at == TIME + timedelta(minutes=2)
        assert created(ctx, 3) > TIME + timedelta(days=1)
        assert [hit.index for hit in ctx.find("Hi", until=TIME + timedelta(seconds=1))] == [ctx.conversation.page_of(0)]
        assert ctx.check() == []


@pytest.mark.parametrize("bad", ["2024-05-01", 1714566600, datetime(2024, 5, 1)])
def test_a_time_without_a_zone_is_refused(bad: Any) -> None:
    ctx = quire.open("memory:")
    with pytest.raises(quire.InvalidValue):
        ctx.user("Hi", at=bad)
    assert len(ctx.messages()) == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("timestamp", "2024-05-01T12:30:00Z"),
        ("created_at", "2024-05-01T14:30:00+02:00"),
        ("at", TIME),
        ("created", 1714566600),
        ("time", 1714566600000.0),
    ],
)
def test_an_import_keeps_the_times_of_its_source(key: str, value: object) -> None:
    ctx = quire.open("memory:")
    ctx.import_messages([{"role": "user", "content": "Hi", key: value}, {"role": "assistant", "content": "Ho", key: 0}])
    first, second = ctx.messages()
    assert first.at == TIME == created(ctx, 0)
    assert first.raw is None
    assert second.at is None
    assert ctx.render().openai()[-2]["content"] == "Hi"


def test_the_message_object_of_another_context_keeps_its_time() -> None:
    source, target = quire.open("memory:"), quire.open("memory:")
    source.user("Hi", at=TIME)
    target.import_messages(source.messages())
    target.add(source.messages()[0])
    assert [message.at for message in target.messages()] == [TIME, TIME]
    copy = quire.open("memory:")
    copy.pages.unmarshal(source.pages.marshal())
    assert copy.messages()[0].at == TIME == created(copy, 0)
