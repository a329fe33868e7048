"""Anthropic's SDK with a local endpoint: turns far beyond the budget, and the memory tool compared with the SDK's."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from anthropic import Anthropic, AsyncAnthropic, BadRequestError, beta_async_tool, beta_tool
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
from quire.model.messages import count_message_tokens
from quire.providers import parse
from tests.strict_provider import Body, Call, Reply, State, StrictProvider

BUDGET = 4_000
ASKED: dict[str, Any] = {"model": "claude-sonnet-5", "max_tokens": 200}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[StrictProvider]:
    with StrictProvider(State(limit=BUDGET)) as made:
        yield made


@pytest.fixture
def client(endpoint: StrictProvider) -> Iterator[Anthropic]:
    endpoint.forget()
    with Anthropic(base_url=endpoint.url, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def ctx() -> quire.Context:
    return quire.open("memory:", budget=BUDGET)


def checked(ctx: quire.Context, body: Body) -> int:
    """Return the tokens of a request. Check that it is legal and within the budget."""
    assert quire.check_legal(body["messages"], "anthropic") == []
    prompt = body.get("system", "")
    words = prompt if isinstance(prompt, str) else "".join(block["text"] for block in prompt)
    counter = ctx.pages.counter
    tokens = sum(count_message_tokens(message, counter.count) for message in parse(body["messages"]))
    tokens += counter.count(words) + 4 + quire.count_tools(body.get("tools", ()), counter)
    assert tokens <= BUDGET, f"{tokens} tokens"
    return tokens


def test_many_turns_stay_within_the_budget(
    client: Anthropic, endpoint: StrictProvider, ctx: quire.Context, request: pytest.FixtureRequest
) -> None:
    turns = 1_000 if request.config.getoption("--long") else 90
    memory = QuireMemoryTool(ctx)
    ctx.system("你是一个细心的助手。")

    def script(body: Body) -> Reply:
        number, last = len(endpoint.requests), body["messages"][-1]["content"]
        checked(ctx, body)
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
    assert sum("signature" in str(body["messages"]) for body in endpoint.requests) > turns
    assert sum(message.role == "user" for message in ctx.messages()) == turns + 1
    assert "QX-4471-Z" in ctx.tools.call("find", {"query": "会员号"})
    assert len(str(memory.call({"command": "view", "path": "/memories"})).splitlines()) == 3 + 7
    assert ctx.stats().usage["claude-sonnet-5"].reports > 50
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
    for body in endpoint.requests:
        assert checked(ctx, body) > 0
        assert "cache_control" in str(body["messages"])


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
            raise ValueError("a fault of the developer's")
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
    with pytest.raises(ValueError, match="developer"):
        complete(client, ctx, tools=[open_door], **ASKED)


def test_a_turn_that_was_broken_off_is_gone_on_with(
    client: Anthropic, endpoint: StrictProvider, ctx: quire.Context
) -> None:
    endpoint.script = lambda body: (
        Reply("", (Call("t1", "look", {}), Call("t2", "other", {}))) if len(body["messages"]) == 1 else Reply("Found.")
    )
    ctx.user("Look!")

    def look() -> str:
        raise RuntimeError("the lamp went out")

    with pytest.raises(RuntimeError, match="lamp"):
        complete(client, ctx, functions={"look": look}, **ASKED)
    assert [call.id for call in ctx.pending_calls()] == ["t1", "t2"]
    with pytest.raises(quire.InvalidOperation, match=r"'t2' \(other\).*tool_result"):
        complete(client, ctx, functions={"look": lambda: {"found": "灯"}}, **ASKED)
    ctx.tool_result("t2", "by hand")
    reply = complete(client, ctx, **ASKED)
    assert reply.content[0].text == "Found."  # type: ignore[union-attr]
    said = endpoint.requests[-1]["messages"][-1]["content"]
    assert [block["content"] for block in said] == ['{"found": "灯"}', "by hand"]
    assert "cache_control" in said[-1]


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
    with pytest.raises(quire.QuotaExceeded, match="5 requests"):
        complete(client, ctx, options=TurnOptions(requests=5), **ASKED)
    assert len(endpoint.requests) == 5


def test_a_model_with_nothing_to_say_to_a_result_is_not_asked_again(
    client: Anthropic, endpoint: StrictProvider, ctx: quire.Context
) -> None:
    endpoint.script = lambda body: Reply("", (Call("t1", "budget", {}),)) if len(body["messages"]) == 1 else Reply("")
    ctx.user("Go.")
    assert complete(client, ctx, **ASKED).content == []
    assert len(endpoint.requests) == 2
    ctx.user("And now?")
    assert complete(client, ctx, **ASKED).content == []
    assert quire.check_legal(endpoint.requests[-1]["messages"], "anthropic") == []


def test_an_async_tool_with_a_client_that_is_not_is_told_to_the_caller(
    client: Anthropic, endpoint: StrictProvider, ctx: quire.Context
) -> None:
    endpoint.script = lambda _: Reply("", (Call("t1", "memory", {"command": "view", "path": "/memories"}),))
    ctx.user("Go.")
    with pytest.raises(quire.InvalidOperation, match="'memory' is async"):
        complete(client, ctx, tools=[QuireAsyncMemoryTool(ctx)], **ASKED)
    assert [call.id for call in ctx.pending_calls()] == ["t1"]


def test_what_the_server_refuses_changes_nothing(
    client: Anthropic, endpoint: StrictProvider, ctx: quire.Context
) -> None:
    def script(_: Body) -> Reply:
        raise RuntimeError("overloaded")

    endpoint.script = script
    ctx.user("Hello?")
    for ask in (complete, lambda *args, **more: list(stream(*args, **more))):
        with pytest.raises(BadRequestError, match="overloaded"):
            ask(client, ctx, **ASKED)
    assert [message.role for message in ctx.messages()] == ["user"]


def test_a_stream_that_nobody_reads_to_its_end_is_not_added(
    client: Anthropic, endpoint: StrictProvider, ctx: quire.Context
) -> None:
    endpoint.script = lambda _: Reply("a long answer " * 50)
    ctx.user("Hello?")
    events = stream(client, ctx, **ASKED)
    next(events)
    cast(Any, events).close()
    assert [message.role for message in ctx.messages()] == ["user"]
    complete(client, ctx, **ASKED)
    assert [message.role for message in ctx.messages()] == ["user", "assistant"]


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


@pytest.mark.parametrize("seed", range(6))
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


def test_the_numbers_of_lines_are_six_wide(ctx: quire.Context) -> None:
    tool = QuireMemoryTool(ctx)
    tool.call({"command": "create", "path": "/memories/旅行.md", "file_text": "去上海\n五月二十日"})
    said = tool.call({"command": "view", "path": "/memories/旅行.md"})
    assert said == "Here's the content of /memories/旅行.md with line numbers:\n     1\t去上海\n     2\t五月二十日"
    long = "\n" * 999_999
    tool.call({"command": "create", "path": "/memories/long", "file_text": long})
    with pytest.raises(ToolError, match="File /memories/long exceeds maximum line limit of 999,999 lines"):
        tool.call({"command": "view", "path": "/memories/long"})


def test_everything_it_does_can_be_undone(ctx: quire.Context) -> None:
    tool = QuireMemoryTool(ctx)
    tool.call({"command": "create", "path": "/memories/a/b.md", "file_text": "kept"})
    tool.call({"command": "str_replace", "path": "/memories/a/b.md", "old_str": "kept", "new_str": "lost"})
    tool.call({"command": "delete", "path": "/memories/a"})
    assert {entry.actor for entry in ctx.history() if entry.operation != "create"} == {"memory"}
    ctx.undo(ctx.seq)
    ctx.undo(ctx.seq - 2)
    assert str(tool.call({"command": "view", "path": "/memories/a/b.md"})).endswith("     1\tkept")
    assert tool.clear_all_memory() == "All memory cleared"
    assert len(str(tool.call({"command": "view", "path": "/memories"})).splitlines()) == 2


def test_another_writer_in_the_middle_of_a_rename_does_not_leave_it_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = quire.MemoryStorage()
    ctx, other = quire.open(storage), quire.open(storage)
    tool = QuireMemoryTool(ctx)
    tool.call({"command": "create", "path": "/memories/a.txt", "file_text": "one"})
    move = quire.AgentContext.move_page

    def move_and_be_overtaken(*args: Any) -> Any:
        moved = move(*args)
        other.refresh()
        other.user("Hello from elsewhere.")
        return moved

    monkeypatch.setattr(quire.AgentContext, "move_page", move_and_be_overtaken)
    rename = {"command": "rename", "old_path": "/memories/a.txt", "new_path": "/memories/b/c.txt"}
    assert str(tool.call(rename)).startswith("Successfully renamed")
    assert str(tool.call({"command": "view", "path": "/memories/b/c.txt"})).endswith("\tone")


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
    with pytest.raises(ToolError, match="QuotaExceeded: "):
        tool.call(create)
    with pytest.raises(ToolError, match="control character"):
        tool.call({**create, "path": "/memories/a\x07b"})
    ctx.pages.set_segment_permission("mem", quire.Permission.READ_ONLY)
    with pytest.raises(ToolError, match="PermissionDenied: "):
        tool.call({**create, "file_text": "x"})
    bare = quire.open("memory:", segments=[quire.Segment(id="usr", name="C", type=quire.SegmentType.USER)])
    with pytest.raises(ToolError, match="no segment 'mem'"):
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


def test_commands_called_directly_raise_the_errors_of_the_sdk(tmp_path: Path) -> None:
    ctx = quire.open(quire.MemoryStorage())
    tool = QuireMemoryTool(ctx)
    of_sdk = BetaLocalFilesystemMemoryTool(str(tmp_path))
    commands: list[tuple[str, dict[str, Any]]] = [
        ("create", {"path": "/memories/a.md", "file_text": "one\ntwo\none"}),
        ("create", {"path": "/memories/a.md", "file_text": "again"}),
        ("create", {"path": "/elsewhere/a.md", "file_text": "x"}),
        ("view", {"path": "/memories/none.md"}),
        ("view", {"path": "/memories/../../etc/passwd"}),
        ("str_replace", {"path": "/memories/a.md", "old_str": "three", "new_str": "3"}),
        ("str_replace", {"path": "/memories/a.md", "old_str": "one", "new_str": "1"}),
        ("str_replace", {"path": "/memories", "old_str": "one", "new_str": "1"}),
        ("insert", {"path": "/memories/a.md", "insert_line": 9, "insert_text": "x"}),
        ("delete", {"path": "/memories"}),
        ("delete", {"path": "/memories/none.md"}),
        ("rename", {"old_path": "/memories/none.md", "new_path": "/memories/b.md"}),
        ("rename", {"old_path": "/memories", "new_path": "/memories/b.md"}),
        ("rename", {"old_path": "/memories/a.md", "new_path": "/memories/a.md"}),
    ]
    for name, fields in commands:
        answers = []
        for one in (tool, of_sdk):
            try:
                answers.append(getattr(one, name)(SimpleNamespace(command=name, view_range=None, **fields)))
            except ToolError as error:
                answers.append(("ToolError", str(error)))
        assert answers[0] == answers[1], (name, fields)


def test_a_direct_command_that_quire_refuses_is_an_error_of_the_sdk() -> None:
    ctx = quire.open(quire.MemoryStorage())
    tool = QuireMemoryTool(ctx, agent=ctx.as_agent("scribe", quota=quire.Quota(bytes=10)))
    command: Any = SimpleNamespace(command="create", path="/memories/a.md", file_text="x" * 1_000)
    with pytest.raises(ToolError, match="QuotaExceeded"):
        tool.create(command)
    with pytest.raises(ToolError, match="Invalid memory command"):
        tool.view(cast(Any, SimpleNamespace(command="view")))
    other = QuireAsyncMemoryTool(ctx)
    with pytest.raises(ToolError, match="does not exist"):
        asyncio.run(other.view(cast(Any, SimpleNamespace(command="view", path="/memories/none", view_range=None))))
