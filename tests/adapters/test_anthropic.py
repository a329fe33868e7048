"""Anthropic's SDK with a local endpoint: turns far beyond the budget, and the memory tool compared with the SDK's."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic, beta_async_tool, beta_tool
from anthropic.lib.tools import ToolError
from anthropic.tools import BetaLocalFilesystemMemoryTool

import quire
from quire.adapters.anthropic import (
    QuireAsyncMemoryTool,
    QuireMemoryTool,
    TurnOptions,
    acomplete,
    astream,
    complete,
    stream,
)
from tests.marks import long
from tests.strict_provider import Body, Call, Reply, State, StrictProvider

BUDGET = 2_500
ASKED: dict[str, Any] = {"model": "claude-sonnet-5", "max_tokens": 200}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[StrictProvider]:
    with StrictProvider(State(limit=BUDGET)) as made:
        yield made


@pytest.fixture
def client(claude: Anthropic) -> Anthropic:
    return claude


@pytest.fixture
def ctx() -> quire.Context:
    return quire.open("memory:", budget=BUDGET)


def test_many_turns_stay_within_the_budget(
    client: Anthropic, endpoint: StrictProvider, ctx: quire.Context, request: pytest.FixtureRequest
) -> None:
    turns = 1_000 if request.config.getoption("--long") else 18
    memory = QuireMemoryTool(ctx)
    ctx.system("你是一个细心的助手。")

    def script(body: Body) -> Reply:
        number, last = len(endpoint.requests), body["messages"][-1]["content"]
        if "tool_result" not in str(last) and number % 3 == 0:
            path = f"/memories/笔记/{number % 7}.md"
            return Reply(
                "let me see",
                (
                    Call(f"f{number}", "find", {"query": f"question {number}"}),
                    Call(f"c{number}", "memory", {"command": "create", "path": path, "file_text": f"第 {number} 次"}),
                ),
                ("the user asks, so I look it up",),
            )
        return Reply(f"answer {number} " + "with some words to fill the room " * 8, thinking=("hm", ""))

    endpoint.script = script
    ctx.user("记住: 我的会员号是 QX-4471-Z。")
    complete(client, ctx, tools=[memory], **ASKED)
    for number in range(turns):
        ctx.user(f"question {number}, " + "which is rather long " * 6)
        if number % 4:
            reply = complete(client, ctx, tools=[memory], **ASKED)
            assert reply.stop_reason == "end_turn"
        else:
            assert [event.type for event in stream(client, ctx, tools=[memory], **ASKED)][-1] == "message_stop"
    assert len(endpoint.requests) > turns
    assert endpoint.refused == []  # nothing illegal, nothing beyond the budget
    assert list(ctx.history(operation="fold"))
    assert sum("signature" in str(body["messages"]) for body in endpoint.requests) > turns
    assert sum(message.role == "user" for message in ctx.messages()) == turns + 1
    assert "QX-4471-Z" in ctx.tools.call("find", {"query": "会员号"})
    assert len(str(memory.call({"command": "view", "path": "/memories"})).splitlines()) == 3 + 7
    assert ctx.stats().usage["claude-sonnet-5"].reports > 18
    assert ctx.check() == []


def test_an_async_client_is_the_same(endpoint: StrictProvider, ctx: quire.Context) -> None:
    endpoint.forget()
    called: list[int] = []

    async def roll(sides: int) -> str:
        called.append(sides)
        await asyncio.sleep(0)
        return "4"

    def script(body: Body) -> Reply:
        if "tool_result" not in str(body["messages"][-1]):
            view = Call(f"m{len(endpoint.requests)}", "memory", {"command": "view", "path": "/memories"})
            return Reply("", (Call(f"r{len(endpoint.requests)}", "roll", {"sides": 6}), view))
        return Reply("It is a 4.")

    endpoint.script = script
    schema = {"name": "roll", "input_schema": {"type": "object", "properties": {"sides": {"type": "integer"}}}}

    async def work() -> None:
        tools = [schema, QuireAsyncMemoryTool(ctx)]
        async with AsyncAnthropic(base_url=endpoint.url, api_key="none") as client:
            ctx.user("Roll!")
            reply = await acomplete(client, ctx, tools=tools, functions={"roll": roll}, **ASKED)
            assert reply.content[0].text == "It is a 4."  # type: ignore[union-attr]
            ctx.user("Again!")
            types = [e.type async for e in astream(client, ctx, tools=tools, functions={"roll": roll}, **ASKED)]
            assert types.count("message_stop") == 2

    asyncio.run(work())
    assert called == [6, 6]
    assert endpoint.refused == []
    assert all("cache_control" in str(body["messages"]) for body in endpoint.requests)


def test_an_error_for_the_model_is_marked_as_one(
    client: Anthropic, endpoint: StrictProvider, ctx: quire.Context
) -> None:
    @beta_tool
    def open_door(number: int) -> str:
        """Open a door."""
        raise ToolError(f"Door {number} is locked.")

    calls = (
        Call("a", "open_door", {"number": 7}),
        Call("b", "memory", {"command": "view", "path": "/memories/../../etc/passwd"}),
        Call("c", "memory", {"command": "dance"}),
        Call("d", "memory", {"command": "view"}),
    )
    endpoint.script = lambda body: Reply("", calls) if len(body["messages"]) == 1 else Reply("I see.")
    ctx.user("Open it.")
    complete(client, ctx, tools=[open_door, QuireMemoryTool(ctx)], **ASKED)
    results = endpoint.requests[-1]["messages"][-1]["content"]
    assert [block["is_error"] for block in results] == [True] * 4
    assert results[0]["content"] == "Door 7 is locked."
    assert results[1]["content"] == "Path /memories/../../etc/passwd would escape /memories directory"
    assert results[2]["content"].startswith("Invalid memory command: ")


def test_wrong_arguments_for_a_tool_of_the_sdk_are_told_to_the_model(
    client: Anthropic, endpoint: StrictProvider, ctx: quire.Context
) -> None:
    @beta_tool
    def open_door(number: int) -> str:
        """Open a door."""
        if number == 0:
            raise LookupError("a fault of the developer's")
        return f"Door {number} is open."

    wrong: tuple[Body, ...] = ({"number": "七"}, {}, {"number": 7, "lock": 1})
    calls = tuple(Call(f"c{place}", "open_door", arguments) for place, arguments in enumerate(wrong))
    endpoint.script = lambda body: Reply("", calls) if len(body["messages"]) == 1 else Reply("I see.")
    ctx.user("Open it.")
    complete(client, ctx, tools=[open_door], **ASKED)
    results = endpoint.requests[-1]["messages"][-1]["content"]
    assert [block["is_error"] for block in results] == [True] * 3
    assert [("number" in block["content"], "lock" in block["content"]) for block in results] == [
        (True, False),
        (True, False),
        (False, True),
    ]
    assert "七" in results[0]["content"]

    async def work() -> None:
        @beta_async_tool
        async def shut_door(number: int) -> str:
            """Shut a door."""
            return "It is shut."

        shut = Call("d", "shut_door", {"number": []})
        endpoint.script = lambda body: Reply("", (shut,)) if "Shut it." in str(body["messages"][-1]) else Reply("Yes.")
        ctx.user("Shut it.")
        async with AsyncAnthropic(base_url=endpoint.url, api_key="none") as talking:
            await acomplete(talking, ctx, tools=[shut_door], **ASKED)

    asyncio.run(work())
    assert endpoint.requests[-1]["messages"][-1]["content"][0]["is_error"]

    nought = Call("e", "open_door", {"number": 0})
    endpoint.script = lambda _: Reply("", (nought,))
    ctx.user("Open none.")
    with pytest.raises(LookupError):
        complete(client, ctx, tools=[open_door], **ASKED)


def test_a_call_that_nobody_runs_ends_the_turn(client: Anthropic, endpoint: StrictProvider, ctx: quire.Context) -> None:
    endpoint.script = lambda _: Reply("", (Call("t1", "theirs", {}), Call("t2", "budget", {})))
    ctx.user("Go.")
    assert complete(client, ctx, **ASKED).stop_reason == "tool_use"
    assert [call.name for call in ctx.pending_calls()] == ["theirs"]


def test_a_model_that_goes_round_in_circles_is_stopped(
    client: Anthropic, endpoint: StrictProvider, ctx: quire.Context
) -> None:
    endpoint.script = lambda _: Reply("", (Call(f"t{len(endpoint.requests)}", "budget", {}),))
    ctx.user("Go.")
    with pytest.raises(quire.QuotaExceeded):
        complete(client, ctx, options=TurnOptions(requests=5), **ASKED)
    assert len(endpoint.requests) == 5


def test_without_tools_and_marks(client: Anthropic, endpoint: StrictProvider, ctx: quire.Context) -> None:
    endpoint.script = lambda _: Reply("Hi.")
    ctx.user("Hello?")
    complete(client, ctx, options=TurnOptions(tools=False), cache=False, **ASKED)
    assert "tools" not in endpoint.requests[-1]
    assert "cache_control" not in str(endpoint.requests[-1])
    ctx.user("And?")
    only = TurnOptions(tools=ctx.tools.only("find"), render={"recall": True, "reserve": 100})
    complete(client, ctx, options=only, **ASKED)
    assert [tool["name"] for tool in endpoint.requests[-1]["tools"]] == ["find"]


# The memory tool


PATHS = ["/memories", "/memories/", "/memories/a.md", "/memories/笔记", "/memories/笔记/旅行.md", "/memories/x/y/z.txt"]
PATHS += ["/memories/.hidden", "/memories/x", "/memories/x/../a.md", "/memories/../etc", "/etc/passwd", "/memories/b c"]
TEXTS = ["", "one", "一行\n两行\n", "a\nb\nc\nd\ne\nf", "dup\ndup", "tail\n\n", "with\ttab\r\nand cr", "x" * 3_000]


def _random_command(random: Random) -> Body:
    path = random.choice(PATHS)
    match random.choice(["view", "create", "create", "create", "str_replace", "insert", "delete", "rename", "range"]):
        case "view":
            return {"command": "view", "path": path}
        case "range":
            return {"command": "view", "path": path, "view_range": random.choice([[1, 2], [2, -1], [0, 1], [9, 12]])}
        case "create":
            return {"command": "create", "path": path, "file_text": random.choice(TEXTS)}
        case "str_replace":
            old = random.choice(["one", "两", "dup", "c", "nothing", "tail\n", "行"])
            return {
                "command": "str_replace",
                "path": path,
                "old_str": old,
                "new_str": random.choice(["", "新\n的", "z"]),
            }
        case "insert":
            line = random.choice([0, 1, 2, 5, -1, 99])
            return {"command": "insert", "path": path, "insert_line": line, "insert_text": random.choice(TEXTS)}
        case "delete":
            return {"command": "delete", "path": path}
        case _:
            return {"command": "rename", "old_path": path, "new_path": random.choice(PATHS)}


def _answer(tool: Any, command: Body) -> str:
    try:
        return str(tool.call(command))
    except ToolError as error:
        return f"Error: {error.content}"
    except OSError as error:  # the SDK's own backend leaves these to the file system
        return f"os: {type(error).__name__}"


def _without_sizes_of_directories(text: str) -> str:
    return re.sub(
        r"^[0-9.]+[BKMG]\t(\S.*?/|/memories/?|[^\n]*(?<!\.md)(?<!\.txt))$", r"-\t\1", text, flags=re.MULTILINE
    )


@pytest.mark.parametrize("seed", [0, *long(*range(1, 30))])
def test_it_answers_as_the_sdks_own_backend_does(seed: int, tmp_path: Path) -> None:
    """The same commands give the same answers. Only the text of a file system's own error may differ."""
    random = Random(seed)
    theirs = BetaLocalFilesystemMemoryTool(str(tmp_path))
    ctx = quire.open("memory:")
    ours = QuireMemoryTool(ctx)
    for step in range(120):
        command = _random_command(random)
        want, got = _answer(theirs, command), _answer(ours, command)
        if want.startswith("os: "):
            assert got.startswith("Error: "), (seed, step, command, want, got)
            continue
        assert _without_sizes_of_directories(got) == _without_sizes_of_directories(want), (seed, step, command)
    assert ctx.check() == []


def test_files_are_pages_that_are_found_and_take_one_line_of_the_view(ctx: quire.Context) -> None:
    tool = QuireMemoryTool(ctx)
    for number in range(30):
        tool.call(
            {"command": "create", "path": f"/memories/{number}.md", "file_text": f"乘客 {number} 要靠窗的座位 " * 30}
        )
    ctx.user("哪位乘客?")
    view = ctx.render()
    assert view.tokens < 400
    assert ctx.find("靠窗")[0].index.startswith("mem-")
    shared = QuireMemoryTool(ctx, ctx.pages.create_contents_page("Team", "", "mem-0"))
    shared.call({"command": "create", "path": "/memories/x", "file_text": "for all"})
    assert "x" in [page.name for page in ctx.pages.children(ctx.pages.find("Team")[0].index)]


def test_what_the_context_refuses_is_told(ctx: quire.Context) -> None:
    tool = QuireMemoryTool(ctx, agent=ctx.as_agent("scribe", quota=quire.Quota(bytes=100)))
    create = {"command": "create", "path": "/memories/big", "file_text": "x" * 200}
    with pytest.raises(ToolError):
        tool.call(create)
    with pytest.raises(ToolError):
        tool.call({**create, "path": "/memories/a\x07b"})
    ctx.pages.set_segment_permission("mem", quire.Permission.READ_ONLY)
    with pytest.raises(ToolError):
        tool.call({**create, "file_text": "x"})
    bare = quire.open("memory:", segments=[quire.Segment(id="usr", name="C", type=quire.SegmentType.USER)])
    with pytest.raises(ToolError):
        QuireMemoryTool(bare).call(create)


def test_the_sdks_own_tool_runner_works_with_it(
    client: Anthropic, endpoint: StrictProvider, ctx: quire.Context
) -> None:
    create = Call(
        "t1", "memory", {"command": "create", "path": "/memories/coffee.md", "file_text": "The user likes 咖啡."}
    )
    endpoint.script = lambda body: Reply("Noted.") if "tool_result" in str(body["messages"]) else Reply("", (create,))
    runner = client.beta.messages.tool_runner(
        messages=[{"role": "user", "content": "I like coffee"}], tools=[QuireMemoryTool(ctx)], **ASKED
    )
    assert runner.until_done().content[0].text == "Noted."
    assert endpoint.requests[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    assert "咖啡" in str(ctx.find("咖啡")[0].snippet)
