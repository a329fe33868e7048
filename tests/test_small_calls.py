"""Calls as the documents write them: operations as dicts, positional arguments, pages that are archived."""

from collections.abc import Callable
from typing import Any

import pytest

import quire
from quire import App, DetailPage, Lifecycle, action
from quire.system.page_storage import PageStorage
from quire.windows.app import app_actions


@pytest.fixture
def ctx() -> quire.Context:
    made = quire.open(quire.MemoryStorage())
    for n in range(5):
        made.user(f"message {n}")
    return made


def test_a_batch_opens_where_the_dict_says(ctx: quire.Context) -> None:
    [opened] = ctx.conversation.modify([{"operation": "batch_start", "batch": 3}])
    assert (opened.batch, opened.boundary) == (1, 3)
    assert ctx.conversation.mark_map().batch_boundaries == [0, 3]
    with pytest.raises(quire.InvalidValue, match="exactly one"):
        ctx.conversation.modify([{"operation": "batch_start", "batch": 4, "indices": [3]}])


@pytest.mark.parametrize(
    ("operation", "place"),
    [
        ({"operation": "delete", "indices": [0], "data": {"role": "user", "content": "x"}}, "data"),
        ({"operation": "insert", "data": {"role": "user", "content": "x"}, "batch": 1}, "batch"),
        ({"operation": "batch_commit", "indices": [1]}, "indices"),
        ({"operation": "batch_start", "data": "x"}, "data"),
        ({"operation": "delete", "indices": [0], "reason": "old"}, "reason"),
    ],
)
def test_fields_that_an_operation_does_not_have_are_refused(ctx: quire.Context, operation: Any, place: str) -> None:
    seq = ctx.seq
    with pytest.raises(quire.InvalidValue, match=rf"operations\[0\].*{place}"):
        ctx.conversation.modify([operation])
    assert ctx.seq == seq
    empty: dict[str, Any] = {"indices": [], "data": None, "batch": None}
    ctx.conversation.modify([{**empty, "operation": "batch_start"}, {**empty, "operation": "batch_commit"}])


@pytest.mark.parametrize(
    "wrong",
    [
        {"operation": "delete", "indices": [99]},
        {"operation": "insert", "data": {"nonsense": 1}},
        {"operation": "batch_start", "indices": [99]},
        {"operation": "batch_end", "batch": 7},
        {"operation": "no such"},
        {"operation": ["delete"]},
        {"operation": "batch_commit"},
    ],
)
def test_an_error_names_its_operation_and_nothing_is_changed(ctx: quire.Context, wrong: Any) -> None:
    seq = ctx.seq
    fine = {"operation": "delete", "indices": [0]}
    with pytest.raises(quire.InvalidOperation, match=r"operations\[1\]"):
        ctx.conversation.modify([fine, wrong])
    assert ctx.seq == seq
    assert len(ctx.messages()) == 5


def test_a_modification_names_its_batch(ctx: quire.Context) -> None:
    message = {"role": "user", "content": "x"}
    assert ctx.conversation.insert(message).batch == 0
    ctx.conversation.batch_start()
    ctx.conversation.batch_start()
    made = [
        ctx.conversation.insert(message),
        ctx.conversation.insert(message, at=2),
        ctx.conversation.replace(1, message),
        ctx.conversation.delete(2),
        ctx.conversation.compress([3], "three"),
        *ctx.conversation.modify([{"operation": "insert", "data": message}]),
    ]
    assert [one.batch for one in made] == [2] * 6
    ctx.conversation.batch_commit()
    assert ctx.conversation.insert(message).batch == 1


def test_a_page_is_updated_with_positional_arguments(ctx: quire.Context) -> None:
    ctx.agent.update_page("usr-1", "name", "description")
    assert (ctx.pages.get_page("usr-1").name, ctx.pages.get_page("usr-1").description) == ("name", "description")
    ctx.pages.update_page("usr-1", "other")
    assert (ctx.pages.get_page("usr-1").name, ctx.pages.get_page("usr-1").description) == ("other", "description")


def test_an_action_may_call_its_app_anything() -> None:
    class Lamp(App):
        @action
        def light(this, level: int) -> str:  # noqa: N805
            """Set the light."""
            return f"{level}"

        @action
        def off(lamp) -> str:  # noqa: N805
            """Switch it off."""
            return "off"

        @staticmethod
        @action
        def test(level: int) -> str:
            """Test it."""
            return f"{level}"

    found = {one.name: [parameter.name for parameter in one.parameters] for one in app_actions(Lamp)}
    assert found == {"light": ["level"], "off": [], "test": ["level"], "close": ["summary"]}
    assert Lamp().light(3) == "3"
    with pytest.raises(quire.InvalidValue, match="no parameter for the app"):

        class Broken(App):
            @action
            def nothing() -> str:  # type: ignore[misc]
                """Nothing."""
                return ""


def _code(call: Callable[..., Any], *arguments: Any) -> str:
    try:
        call(*arguments)
    except quire.QuireError as error:
        return error.code
    return "done"


def test_the_permission_check_and_the_operation_agree() -> None:
    """On every segment, empty or not: what the check allows, the operation does not refuse for its permission."""
    for permission in quire.Permission:
        segments = [
            quire.Segment(id="sys", name="S", type=quire.SegmentType.SYSTEM, permission=permission),
            quire.Segment(id="usr", name="U", type=quire.SegmentType.USER),
            quire.Segment(id="own", name="O", permission=permission),
        ]
        for index in ("sys-0", "own-0"):
            for operation, arguments in (("hide_details", ()), ("expand_details", ()), ("update_page", ("name",))):
                ctx = quire.open(quire.MemoryStorage(), segments=segments)
                checked = _code(ctx.agent.check_permission, index, operation)
                assert checked == _code(getattr(ctx.agent, operation), index, *arguments), (
                    permission,
                    index,
                    operation,
                )


def test_a_cold_page_is_deleted_by_the_page_storage(ctx: quire.Context) -> None:
    pages = PageStorage(ctx.pages)
    folder = ctx.pages.create_contents_page("folder", "", "mem-0")
    inner = ctx.pages.create_detail_page("inner", "", "text", folder)
    other = ctx.pages.create_detail_page("other", "", "text", folder)
    ctx.pages.archive(folder, cold=True)
    pages.delete(inner)
    assert not pages.exists(inner)
    assert ctx.pages.get_page(folder).lifecycle is Lifecycle.COLD_ARCHIVED
    pages.delete(folder)
    assert not pages.exists(folder)
    assert not pages.exists(other)
    assert ctx.check() == []


def test_save_changes_the_lifecycle(ctx: quire.Context) -> None:
    pages = PageStorage(ctx.pages)
    index = ctx.pages.create_detail_page("note", "", "text", "mem-0")
    for one in (*Lifecycle, *reversed(Lifecycle), Lifecycle.COLD_ARCHIVED, Lifecycle.ACTIVE):
        page: Any = pages.load(index)
        pages.save(DetailPage(index=index, parent="mem-0", name=f"note {one}", lifecycle=one, meta=page.meta))
        stored = pages.load(index)
        assert (stored.lifecycle, stored.name) == (one, f"note {one}")
    assert ctx.check() == []


def test_an_added_page_has_its_message_count(ctx: quire.Context) -> None:
    index = ctx.pages.add_page(DetailPage(index="", parent="mem-0", name="note", message_count=7), "text")
    page = ctx.pages.get_page(index)
    assert isinstance(page, DetailPage)
    assert page.message_count == 7
    with pytest.raises(quire.InvalidValue, match="message_count"):
        ctx.pages.add_page(DetailPage(index="", parent="mem-0", name="note", message_count=-1), "text")
    assert ctx.check() == []
