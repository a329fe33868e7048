"""The server, the inspector, the command line, and adapters."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import quire
import quire.server
from quire import Message, QuireError, ToolCall
from quire.cli import main
from quire.testing import StubProvider
from tests.known_failures import given, until_step


@until_step(6, "a number out of range is an error of the server")
@pytest.mark.parametrize("body", [b'{"n":1e999}', b'{"name":' + b"9" * 5_000 + b"}"], ids=["float", "integer"])
def test_a_number_out_of_range_in_a_body_is_a_bad_request(body: bytes, tmp_path: Path) -> None:
    import http.client

    with quire.open(tmp_path / "a.db", "plain") as ctx:
        ctx.user("x")
    with quire.server.start(tmp_path / "a.db", port=0) as server:
        client = http.client.HTTPConnection("127.0.0.1", server.port)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {server.token}"}
        client.request("POST", "/api/contexts/plain/undo", body, headers)
        status = client.getresponse().status
        client.close()
    assert status == 400


@until_step(6, "the error lists the contexts of others")
def test_the_error_for_a_missing_context_names_no_other_context(tmp_path: Path) -> None:
    with quire.Library(tmp_path / "a.db") as library:
        for name in ("alice@bank.de", "wang.fang@example.cn"):
            library.create(name).close()
        with pytest.raises(QuireError) as raised:
            library.open("mallory", create=False)
    assert "alice" not in str(raised.value)
    assert "wang.fang" not in str(raised.value)


@until_step(6, "some commands take the name of a context in another way", raises=SystemExit)
@pytest.mark.parametrize("command", ["delete", "erase"])
def test_each_command_names_a_context_in_the_same_way(command: str, tmp_path: Path) -> None:
    where = str(tmp_path / "a.db")
    quire.open(where, "m").close()
    assert main([command, where, "-c", "m", "--yes"]) == 0


@pytest.mark.servers
@until_step(6, "the key does nothing on the map")
def test_the_key_of_the_map_explains_the_chosen_page(tmp_path: Path) -> None:
    import shutil

    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome-stable"))), None)
    if path is None:
        pytest.skip("no Chromium was found")
    with quire.open(tmp_path / "a.db", "m", budget=2_000) as ctx:
        ctx.document("Policy", "Refunds take ten days. " * 20)
        ctx.user("x")
        ctx.render()
    with quire.server.start(tmp_path / "a.db", port=0) as server, sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"]).new_page(locale="en-US")
        page.goto(f"http://127.0.0.1:{server.port}/#token={server.token}&context=m")
        page.click("text=Policy >> nth=0")
        page.wait_for_timeout(500)
        before = page.inner_text("body")
        page.keyboard.press("w")
        page.wait_for_timeout(1_000)
        after = page.inner_text("body")
    assert len(after) > len(before)


@pytest.mark.clients
@until_step(5, "the turn ends, and the model is not told", raises=(AssertionError, TypeError))
def test_a_tool_that_was_never_offered_is_answered_and_the_loop_goes_on() -> None:
    openai = pytest.importorskip("openai")
    from quire.adapters.openai import complete

    def model(messages: list[Message]) -> Message:
        if messages[-1].role == "user":
            return Message(role="assistant", tool_calls=(ToolCall("c1", "send_mail", "{}"),))
        return Message(role="assistant", content="recovered")

    with StubProvider(model) as stub, openai.OpenAI(base_url=stub.url + "/v1", api_key="k") as client:
        ctx = quire.open("memory:", budget=3_000)
        ctx.user("hello")
        reply = complete(client, ctx, model="m", tools=[], on_error="tell")
    assert reply.choices[0].message.content == "recovered"
    assert ctx.pending_calls() == []


@until_step(5, "a field of the output is sent back")
def test_a_field_that_only_an_output_has_is_not_sent_back() -> None:
    ctx = quire.open("memory:")
    ctx.user("x")
    ctx.add([{"type": "compaction", "id": "cmp_1", "encrypted_content": "x", "created_by": "server"}])
    ctx.user("y")
    items: list[Any] = list(ctx.render().responses())
    given("compaction" in [item.get("type") for item in items])
    assert [item for item in items if "created_by" in item] == []


@pytest.mark.clients
@until_step(5, "reasoning is bound to the prefix for every provider")
def test_reasoning_reaches_the_model_of_the_agents_sdk() -> None:
    pytest.importorskip("agents")
    from agents import Agent, RunConfig, Runner
    from agents.decorators import tool
    from agents.testing import ScriptedModel, assistant_message, function_call
    from openai.types.responses import ResponseReasoningItem

    from quire.adapters.openai_agents import QuireSession

    @tool
    def ticket() -> str:
        return "T-1"

    def think(number: int) -> Any:
        return ResponseReasoningItem(id=f"rs_{number}", type="reasoning", summary=[], encrypted_content="gAAA")

    model = ScriptedModel(
        [[think(1), function_call("ticket", {}, call_id="c1")], [think(2), assistant_message("done")]]
    )
    session = QuireSession("s", quire.MemoryStorage(), preamble="")
    settings = RunConfig(call_model_input_filter=session.model_input_filter)
    asyncio.run(Runner.run(Agent(name="x", model=model, tools=[ticket]), "go", session=session, run_config=settings))
    assert "reasoning" in [item.get("type") for item in model.calls[-1].input]


@pytest.mark.clients
@until_step(5, "an empty history is an error of quire's own", raises=IndexError)
def test_an_empty_history_is_the_error_of_pydantic_ai() -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent, UserError
    from pydantic_ai.capabilities import ProcessHistory
    from pydantic_ai.models.test import TestModel

    from quire.adapters.pydantic_ai import QuireCapability

    capabilities: Any = [ProcessHistory(lambda _: []), QuireCapability(quire.MemoryStorage())]
    with pytest.raises(UserError):
        asyncio.run(Agent(TestModel(), capabilities=capabilities).run("x"))
