"""Tools over the protocol: the schemas of `ctx.tools`, plain text, and refusals as tool errors."""

from typing import Any

import pytest
from mcp import Client, MCPError

import quire
from quire import Context, InvalidOperation, InvalidValue, MemoryStorage
from quire.mcp_server import server
from quire.testing import FaultyStorage
from quire.windows.apps import Todo
from tests.mcp_server.clients import run, text_of

MODES = ("legacy", "auto")
"""The older protocol, which has a handshake, and the newer one."""


@pytest.mark.parametrize("mode", MODES)
def test_the_tools_are_those_of_the_table_and_answer_in_plain_text(ctx: Context, mode: Any) -> None:
    async def main() -> None:
        async with Client(server(ctx), mode=mode) as client:
            listed = (await client.list_tools()).tools
            assert [tool.name for tool in listed] == ctx.tools.names()
            for tool, schema in zip(listed, ctx.tools.mcp(), strict=True):
                assert (tool.description, tool.input_schema) == (schema["description"], schema["inputSchema"])
                assert tool.output_schema is None
                assert tool.annotations is not None
                assert tool.annotations.read_only_hint is (tool.name in ("find", "read_page", "budget"))
            found = await client.call_tool("find", {"query": "座位"})
            assert not found.is_error
            assert text_of(found) == ctx.tools.call("find", {"query": "座位"})
            written = await client.call_tool("write_page", {"name": "Day", "text": "May 20"})
            assert text_of(written) == "Wrote mem-2."

    run(main)
    assert ctx.pages.detail("mem-2") == "May 20"


@pytest.mark.parametrize("mode", MODES)
def test_a_refused_call_is_a_tool_error_that_a_model_can_act_on(ctx: Context, mode: Any) -> None:
    before = ctx.seq

    async def main() -> None:
        async with Client(server(ctx), mode=mode) as client:
            for name, arguments, words in (
                ("read_page", {"page": "mem-99"}, "NoSuchPage: No page 'mem-99'"),
                ("read_page", {"page": "vault-1"}, "NoSuchPage: No page 'vault-1'"),
                ("write_page", {"page": "sys-1", "text": "Obey."}, "PermissionDenied: operation 'write_page' on sys-1"),
                ("find", {}, "InvalidValue: query is missing"),
                ("find", {"query": 7}, "InvalidValue"),
                ("find", {"query": "x", "more": 1}, "InvalidValue"),
            ):
                refused = await client.call_tool(name, arguments)
                assert refused.is_error, name
                assert words in text_of(refused)
            with pytest.raises(MCPError, match="'fly'"):
                await client.call_tool("fly", {})

    run(main)
    assert ctx.seq == before


def test_tools_can_be_narrowed_and_named_otherwise(ctx: Context) -> None:
    async def names(**settings: Any) -> list[str]:
        async with Client(server(ctx, **settings)) as client:
            for tool in ("find", "write_page"):
                assert (f"{settings.get('prefix', '')}{tool} " in (client.instructions or "")) is (
                    settings.get("prefix", "") + tool in [tool.name for tool in (await client.list_tools()).tools]
                )
            return [tool.name for tool in (await client.list_tools()).tools]

    assert run(lambda: names(tools=["write_page", "find"])) == ["find", "write_page"]
    assert run(lambda: names(read_only=True)) == ["find", "read_page", "budget"]
    assert run(lambda: names(read_only=True, prefix="q_", tools=["budget"])) == ["q_budget"]
    for wrong in ({"tools": ["fly"]}, {"tools": ["write_page"], "read_only": True}, {"prefix": "a b"}, {"poll": 0}):
        with pytest.raises(InvalidValue):
            server(ctx, **wrong)
    with pytest.raises(InvalidValue, match="context is"):
        server("agent.db")  # type: ignore[arg-type]


def test_the_journal_records_a_client_under_its_name(ctx: Context) -> None:
    async def main() -> None:
        async with Client(server(ctx, actor="desktop", prefix="q_")) as client:
            await client.call_tool("q_write_page", {"name": "x"})

    run(main)
    assert [entry.actor for entry in ctx.history()][-1] == "desktop"


def test_the_client_s_conversation_is_separate_from_the_context_s(ctx: Context) -> None:
    ctx.user("May 20, please. 五月二十日")
    assert "Nothing found" in ctx.tools.call(
        "find", {"query": "五月"}
    )  # the model of this conversation already sees it

    async def main() -> None:
        async with Client(server(ctx)) as client:
            assert "[usr-3]" in text_of(await client.call_tool("find", {"query": "五月"}))
            await client.call_tool("write_page", {"name": "Day", "text": "May 20 is a Tuesday."})

    run(main)
    assert "May 20 is a Tuesday." in ctx.render(preview=True).openai()[-1]["content"]


def test_calls_per_turn_are_not_limited(ctx: Context) -> None:
    async def main() -> None:
        async with Client(server(ctx)) as client:
            for _ in range(150):
                assert not (await client.call_tool("budget", {})).is_error

    run(main)


def test_each_call_sees_earlier_changes_by_others() -> None:
    storage = MemoryStorage()
    ctx, other = quire.open(storage), quire.open(storage)

    async def main() -> None:
        async with Client(server(ctx)) as client:
            for number in range(3):
                other.refresh()
                other.pages.create_detail_page(f"theirs {number}", "", f"word{number}", "mem-0")
                assert f"theirs {number}" in text_of(await client.call_tool("find", {"query": f"word{number}"}))
                assert not (await client.call_tool("write_page", {"name": f"mine {number}"})).is_error

    run(main)
    other.refresh()
    assert len(other.pages.children("mem-0")) == 6


def test_a_storage_failure_is_a_tool_error_and_the_server_continues() -> None:
    storage = FaultyStorage(MemoryStorage())
    ctx = quire.open(storage)

    async def main() -> None:
        async with Client(server(ctx)) as client:
            storage.arm(1, lasting=True)
            for name, arguments in (("find", {"query": "x"}), ("write_page", {"name": "x"})):
                answer = await client.call_tool(name, arguments)
                assert answer.is_error
                assert text_of(answer).startswith("InjectedFault: ")
            with pytest.raises(MCPError, match="injected fault"):
                await client.read_resource("quire://default/mem-0")
            storage.heal()
            assert not (await client.call_tool("write_page", {"name": "x"})).is_error

    run(main)


def test_a_context_that_was_deleted_is_named() -> None:
    storage = MemoryStorage()
    ctx = quire.open(storage, "gone")

    async def main() -> None:
        async with Client(server(ctx)) as client:
            quire.Library(storage).delete("gone")
            answer = await client.call_tool("write_page", {"name": "x"})
            assert answer.is_error
            assert text_of(answer) == "NoSuchContext: Context 'gone' was deleted."

    run(main)


def test_windows_appear_among_the_tools_when_there_are_apps(ctx: Context) -> None:
    async def main() -> None:
        async with Client(server(ctx)) as client:
            assert "window" not in [tool.name for tool in (await client.list_tools()).tools]
            ctx.windows.register(Todo)
            listed = (await client.list_tools(cache_mode="bypass")).tools
            assert "window" in [tool.name for tool in listed]
            opened = await client.call_tool("window", {"do": "create", "id": "todo"})
            assert not opened.is_error

    run(main)


def test_without_the_sdk_the_error_is_the_line_that_installs_it(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [name for name in sys.modules if name.partition(".")[0] in ("mcp", "mcp_types")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "quire.mcp_server.protocol")
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    with pytest.raises(InvalidOperation, match=r"pip install .*\[mcp\]'"):
        server(ctx)
