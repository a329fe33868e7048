"""The MCP server from outside: its tools, resources and prompt, over stdio and HTTP, for the official client.

The table of tools is that of the agent. The protocol's own suite is in `tests/mcp_server/test_conformance.py`.
"""

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

import httpx
from mcp import Client, MCPError

import quire
from quire import Context, InvalidValue
from quire.mcp_server import server
from quire.windows.apps import Todo
from tests.mcp_server.clients import Line, address_of, over_stdio, read, run, running, served, text_of
from tests.surfaces.agent_table import CALLS, REFUSED, open_book
from tests.surfaces.http_service import AUTHORIZED, TOKEN

pytestmark = pytest.mark.clients
NAME = "支持 42"
URI = "quire://%E6%94%AF%E6%8C%81%2042/"
MODES = ("legacy", "auto")
"""The older protocol, which has a handshake, and the newer one."""
READING = ["find", "read_page", "budget"]
TOOLS = [*{row.tool for row in CALLS} - {"segment"}]
"""The tools of an agent that does not manage segments."""
REFUSALS = [
    (word, *call)
    for word, calls in REFUSED.items()
    for call in calls
    if call[0] in TOOLS and type(call[1]) is dict and not re.search(r"^{1|nan|udc00|.{400}", repr(call[1]))
]
"""The refused calls of an agent that the official client can send."""
RESOURCES = {
    "sys-1": "System: Be careful.",
    "usr-1": "User: I want to fly to Seattle.",
    "mem-1": "Seattle on May 20.",
    "mem-1?start=11&length=3": "May",
    "mem-4": "An old note about trains.",
}
NO_RESOURCES = ("vault-0", "vault-1", "nowhere-0", "mem-99", "", "MEM-1", "mem-1/x", "../mem-1")
POST = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def book() -> Context:
    """Return a context with the pages of the table. Two of them give equal answers."""
    return open_book(quire.open("memory:", NAME, key="kestrel"))


def outline(ctx: Context) -> list[tuple[object, ...]]:
    """Return what a call can change, without times."""
    return [
        (page.index, page.parent, page.name, page.description, page.visibility, page.lifecycle, page.author)
        for page in ctx.pages.list_pages()
    ]


# Tools


@pytest.mark.parametrize("mode", MODES)
def test_a_call_answers_and_changes_what_the_tool_of_the_library_does(mode: Any) -> None:
    async def work() -> int:
        called = 0
        for row in CALLS:
            if row.tool not in TOOLS:
                continue
            ctx, twin = book(), book()
            async with Client(server(ctx), mode=mode) as client:
                answer = await client.call_tool(row.tool, row.arguments)
            assert not answer.is_error, row
            if row.tool not in READING or "query" not in row.arguments:  # a client sees none of the pages of a view
                assert text_of(answer) == twin.tools.call(row.tool, row.arguments)
            assert [part for part in row.says if part not in text_of(answer)] == []
            assert outline(ctx) == outline(twin)
            called += 1
        return called

    assert run(work) > 20


@pytest.mark.parametrize("mode", MODES)
def test_a_refused_call_is_a_tool_error_with_its_word(mode: Any) -> None:
    ctx = book()
    before = ctx.seq, outline(ctx)
    assert {word for word, *_ in REFUSALS} == {"PermissionDenied", "NoSuchPage", "InvalidOperation", "InvalidValue"}

    async def work() -> None:
        async with Client(server(ctx), mode=mode) as client:
            for word, tool, arguments in REFUSALS:
                answer = await client.call_tool(tool, arguments)
                assert answer.is_error, (tool, arguments)
                assert text_of(answer).startswith(f"{word}: ")
            with pytest.raises(MCPError) as caught:
                await client.call_tool("fly", {})
            assert caught.value.code == -32602

    run(work)
    assert (ctx.seq, outline(ctx)) == before


def test_the_tools_are_those_of_the_agent_and_can_be_fewer() -> None:
    ctx = book()

    async def schemas(**settings: Any) -> list[Any]:
        async with Client(server(ctx, **settings)) as client:
            return list((await client.list_tools()).tools)

    listed = run(schemas)
    assert [(tool.name, tool.description, tool.input_schema) for tool in listed] == [
        (tool["name"], tool["description"], tool["inputSchema"]) for tool in ctx.tools.mcp()
    ]
    assert [tool.name for tool in listed if tool.annotations.read_only_hint] == READING
    for settings, names in (
        ({"tools": ["write_page", "find"]}, ["find", "write_page"]),
        ({"read_only": True}, READING),
        ({"read_only": True, "prefix": "q_", "tools": ["budget"]}, ["q_budget"]),
    ):
        assert [tool.name for tool in run(lambda given=settings: schemas(**given))] == names  # type: ignore[misc]
    for wrong in ({"tools": ["fly"]}, {"tools": ["write_page"], "read_only": True}, {"prefix": "a b"}):
        with pytest.raises(InvalidValue):
            server(ctx, **wrong)
    ctx.windows.register(Todo)
    assert "window" in [tool.name for tool in run(schemas)]


def test_the_conversation_of_the_client_is_not_that_of_the_context() -> None:
    ctx = book()

    async def work() -> None:
        async with Client(server(ctx, actor="desktop", prefix="q_")) as client:
            assert "[usr-1]" in text_of(await client.call_tool("q_find", {"query": "fly"}))
            assert (
                text_of(await client.call_tool("q_write_page", {"name": "x", "text": "A Tuesday."})) == "Wrote mem-6."
            )
            for _ in range(120):  # calls of a turn are not counted
                assert not (await client.call_tool("q_budget", {})).is_error

    run(work)
    assert [entry.actor for entry in ctx.history()][-1] == "desktop"
    assert "A Tuesday." in str(ctx.render(preview=True).openai())


# Resources, prompt


@pytest.mark.parametrize(("mode", "code"), [("legacy", -32002), ("auto", -32602)])
def test_every_page_that_an_agent_sees_is_a_resource(mode: Any, code: int) -> None:
    ctx = book()
    before = ctx.seq

    async def work() -> None:
        async with Client(server(ctx), mode=mode) as client:
            listed = (await client.list_resources()).resources
            pages = [page.index for page in ctx.agent.list_pages()]
            assert [one.uri for one in listed] == [URI + name for name in ("contents", "view", *pages)]
            note = next(one for one in listed if one.uri == f"{URI}mem-1")
            assert (note.name, note.description, note.mime_type) == ("Trip", "Where to", "text/plain")
            for name, text in RESOURCES.items():
                assert await read(client, URI + name) == text
            assert "[mem-3" in await read(client, f"{URI}mem-2")
            for name in ("contents", "view"):
                text = await read(client, URI + name)
                assert "Trip" in text
                assert "vault" not in text
                assert "Secret" not in text
            page, part = (await client.list_resource_templates()).resource_templates
            assert await read(client, page.uri_template.replace("{page}", "mem-1")) == "Seattle on May 20."
            few = part.uri_template.replace("{page}", "mem-1").replace("{?start,length}", "?length=3")
            assert await read(client, few) == "Sea"
            for name in NO_RESOURCES:
                with pytest.raises(MCPError) as caught:
                    await client.read_resource(URI + name)
                assert (caught.value.code, caught.value.data) == (code, {"code": "no_such_page", "uri": URI + name})
            for uri in (
                "quire://other/mem-1",
                "file:///etc/passwd",
                "mem-1",
                "quire://[/mem-1",
                f"{URI}mem-1?start=-1",
            ):
                with pytest.raises(MCPError):
                    await client.read_resource(uri)

    run(work)
    assert ctx.seq == before  # reading writes nothing


def test_many_pages_are_listed_in_parts() -> None:
    ctx = quire.open("memory:")
    for number in range(250):
        ctx.pages.create_detail_page(f"page {number}", "", "", "mem-0")

    async def work() -> None:
        async with Client(server(ctx)) as client:
            uris, cursor = list[str](), None
            while not uris or cursor:
                part = await client.list_resources(cursor=cursor)
                uris, cursor = uris + [one.uri for one in part.resources], part.next_cursor
                assert len(part.resources) <= 102
            assert len(uris) == len(set(uris)) == 2 + 4 + 250
            for wrong in ("nonsense", "vault-0", ""):
                with pytest.raises(MCPError) as caught:
                    await client.list_resources(cursor=wrong)
                assert caught.value.code == -32602

    run(work)


def test_the_prompt_explains_the_view_with_the_names_of_the_tools() -> None:
    ctx = book()

    async def said(prefix: str) -> str:
        async with Client(server(ctx, prefix=prefix)) as client:
            (prompt,) = (await client.list_prompts()).prompts
            (message,) = (await client.get_prompt(prompt.name)).messages
            assert (prompt.name, message.role) == ("preamble", "user")
            with pytest.raises(MCPError):
                await client.get_prompt("other")
            return str(message.content.text)  # type: ignore[union-attr]

    plain = run(lambda: said(""))
    assert "kestrel" in plain
    named = run(lambda: said("q_"))
    assert "q_find" in named
    assert named.replace("q_", "") == plain


# Processes


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    open_book(quire.open(path, NAME)).close()
    return path


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A store, and the URL of a server for it."""
    path = tmp_path_factory.mktemp("mcp") / "store.db"
    open_book(quire.open(path, NAME)).close()
    with address_of(path, "--context", NAME) as url:
        yield path, url


@asynccontextmanager
async def connected(transport: str, address: tuple[Path, str], mode: Any) -> AsyncIterator[Client]:
    """Connect the official client to a process."""
    if transport == "stdio":
        async with over_stdio(address[0], "--context", NAME, mode=mode) as client:
            yield client
    else:
        async with Client(address[1], mode=mode) as client:
            yield client


@pytest.mark.parametrize(("transport", "mode"), [("stdio", "auto"), ("http", "legacy"), ("http", "auto")])
def test_a_process_serves_the_official_client(transport: str, mode: str, address: tuple[Path, str]) -> None:
    async def work() -> str:
        async with connected(transport, address, mode) as client:
            assert [tool.name for tool in (await client.list_tools()).tools][:2] == ["find", "read_page"]
            assert (await client.list_prompts()).prompts
            for row in CALLS:
                if row.tool in READING:
                    answer = text_of(await client.call_tool(row.tool, row.arguments))
                    assert [part for part in row.says if part not in answer] == []
            for name, text in RESOURCES.items():
                assert await read(client, URI + name) == text
            for word, tool, arguments in REFUSALS[:12]:
                assert text_of(await client.call_tool(tool, arguments)).startswith(f"{word}: ")
            return text_of(await client.call_tool("write_page", {"name": "座位", "text": "靠窗"}))

    index = run(work).removeprefix("Wrote ").removesuffix(".")
    with quire.open(address[0], NAME, create=False) as ctx:
        assert ctx.pages.detail(index) == "靠窗"
        assert ctx.check() == []


def test_clients_of_both_protocols_write_at_once_and_lose_nothing(address: tuple[Path, str]) -> None:
    path, url = address
    written: list[str] = []

    async def write(mode: Any) -> None:
        async with Client(url, mode=mode) as client:
            for number in range(10):
                answer = await client.call_tool("write_page", {"name": f"{mode} {number}", "text": "词"})
                assert not answer.is_error, text_of(answer)
                written.append(f"{mode} {number}")

    async def elsewhere() -> None:
        with quire.open(path, NAME) as other:
            for number in range(20):
                assert not other.tools.answer("write_page", {"name": f"else {number}"}).failed
                written.append(f"else {number}")
                await asyncio.sleep(0.001)

    async def work() -> None:
        await asyncio.gather(*(write(mode) for mode in MODES), elsewhere())

    run(work)
    with quire.open(path, NAME) as ctx:
        names = [page.name for page in ctx.pages.children("mem-0")]
        assert sorted(name for name in names if name in written) == sorted(written)
        assert ctx.check() == []


def test_only_the_protocol_is_printed_and_a_killed_server_loses_nothing(store: Path) -> None:
    with running(store) as process:
        line = Line(process)
        for version in ("2025-06-18", "2025-11-25", "2024-11-05"):
            assert line.initialize(version)["protocolVersion"] == version
        for junk in ("this is no JSON", '{"jsonrpc":"2.0"}', "[]"):
            line.send(junk)
        assert line.ask("ping") == {}
        assert line.ask("no/such/method")["code"] == -32601
        long = "长" * 100_000
        assert line.call("write_page", {"name": "long", "text": long})["isError"] is False
        assert line.ask("resources/read", uri=f"{URI}mem-6")["contents"][0]["text"] == long
        process.kill()
    with quire.open(store, NAME) as ctx:
        assert ctx.pages.detail("mem-6") == long
        assert ctx.check() == []
    with running(store) as process:
        line = Line(process)
        assert line.initialize()["serverInfo"]["name"] == "quire"
        assert line.ask("ping") == {}
        process.send_signal(signal.SIGINT)
        said, complaint = process.communicate(timeout=30)
        assert (process.returncode, said, complaint) == (0, "", "")


def test_no_input_stops_the_server_and_strangers_stay_out(address: tuple[Path, str], store: Path) -> None:
    for body in (
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":1,"method":"\\ud83d"}',
    ):
        assert httpx.post(address[1], content=body, headers=POST).status_code in (200, 400, 404, 406)
    assert httpx.post(address[1], content=b" " * ((16 << 20) + 1), headers=POST).status_code == 413
    assert httpx.post(address[1], content=PING, headers=POST).status_code == 400  # it lacks a session
    for wrong in (
        {"Host": "evil.example"},
        {"Host": "10.0.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ):
        refused = httpx.post(address[1], content=PING, headers={**POST, **wrong})
        code = f"forbidden_{next(iter(wrong)).lower()}"
        assert (refused.status_code, refused.json()["error"]["data"]["code"]) == (403, code)
    with served(store, QUIRE_TOKEN=TOKEN) as (_, told):
        assert told.keys() == {"url"}  # the token is not new
        for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
            assert httpx.post(told["url"], content=PING, headers={**POST, **wrong}).status_code == 401
        assert httpx.post(told["url"], content=PING, headers={**POST, **AUTHORIZED}).status_code == 400
