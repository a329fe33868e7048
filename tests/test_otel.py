"""Spans and metrics, with the real OpenTelemetry SDK and exporters in memory."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import quire
from quire import otel
from tests.marks import long
from tests.strict_provider import Body, Call, Reply, StrictProvider

MODEL = "gpt-5"


class Telemetry:
    """The providers of one test."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])

    def instrument(self, **options: Any) -> None:
        otel.instrument(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Return the finished spans with this name, or with a name that begins with these words."""
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith(name)]

    def metrics(self) -> dict[str, Any]:
        data = self._reader.get_metrics_data()
        assert data is not None
        scopes = (scope for resource in data.resource_metrics for scope in resource.scope_metrics)
        return {metric.name: metric for scope in scopes for metric in scope.metrics}


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry()
    made.instrument()
    yield made
    otel.uninstrument()
    made.tracers.shutdown()
    made.meters.shutdown()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[StrictProvider]:
    with StrictProvider() as made:
        yield made


def script(body: Body) -> Reply:
    """Call two tools, then answer."""
    if body["messages"][-1]["role"] == "user":
        calls = (Call("c1", "find", {"query": "HAT7"}), Call("c2", "order_status", {"order": "HAT7"}))
        return Reply("I look.", calls)
    return Reply("It is on its way.")


def order_status(order: str) -> str:
    """Return the status of an order.

    Args:
        order: the number of the order.
    """
    return f"{order} is on its way"


async def order_status_later(order: str) -> str:
    """Return the status of an order."""
    await asyncio.sleep(0)
    return f"{order} is on its way"


def parent_of(span: ReadableSpan, spans: list[ReadableSpan]) -> str:
    found = [one.name for one in spans if span.parent and one.context.span_id == span.parent.span_id]
    return found[0] if found else ""


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_render_fold_and_commit_are_nested(telemetry: Telemetry) -> None:
    ctx = quire.open("memory:", "user-7", budget=1_500)
    for turn in range(30):
        ctx.user(f"Question {turn} about flight HAT{turn}. " * 5)
        view = ctx.render()
        ctx.assistant(f"Answer {turn}. " * 10)
    spans = telemetry.spans()
    renders, folds = telemetry.spans("quire.render"), telemetry.spans("quire.fold")
    commits = telemetry.spans("quire.commit")
    assert len(renders) == 30
    assert len(commits) == ctx.seq
    done = [span for span in folds if facts(span).get("quire.fold.exchanges")]
    assert len(done) == len(list(ctx.history(operation="fold"))) > 0
    assert {parent_of(span, spans) for span in folds} == {"quire.render"}
    inner = [span for span in commits if facts(span)["quire.operation"] == "fold"]
    assert {parent_of(span, spans) for span in inner} == {"quire.fold"}
    last = facts(renders[-1])
    assert last["quire.view.tokens"] == view.tokens
    assert last["quire.view.cached_tokens"] == view.shared_prefix
    assert last["gen_ai.conversation.id"] == "user-7"
    assert {key: last[f"quire.part.{key}.tokens"] for key in view.by_kind()} == view.by_kind()


@pytest.mark.clients
@pytest.mark.parametrize("form", ["complete", "astream", *long("stream", "acomplete")])
def test_model_and_tool_calls_follow_the_conventions(telemetry: Telemetry, endpoint: StrictProvider, form: str) -> None:
    from openai import AsyncOpenAI, OpenAI

    from quire.adapters.openai import acomplete, astream, complete, stream

    endpoint.forget()
    endpoint.script = script
    url = f"{endpoint.url}/v1"

    async def run() -> None:
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            if form == "acomplete":
                functions = {"order_status": order_status_later}
                await acomplete(client, ctx, model=MODEL, tools=[order_status], functions=functions)
            else:
                async for _ in astream(client, ctx, model=MODEL, tools=[order_status]):
                    pass

    with telemetry.tracers.get_tracer("test").start_as_current_span("request"):
        ctx = quire.open("memory:", "user-7")
        ctx.user("Where is my order HAT7?")
        if form in ("acomplete", "astream"):
            asyncio.run(run())
        else:
            with OpenAI(base_url=url, api_key="none", max_retries=0) as client:
                if form == "complete":
                    complete(client, ctx, model=MODEL, tools=[order_status])
                else:
                    list(stream(client, ctx, model=MODEL, tools=[order_status]))
    assert ctx.messages()[-1].text == "It is on its way."
    models, tools = telemetry.spans("chat "), telemetry.spans("execute_tool ")
    assert [span.name for span in models] == [f"chat {MODEL}"] * 2
    assert sorted(span.name for span in tools) == ["execute_tool find", "execute_tool order_status"]
    first = facts(models[0])
    assert models[0].kind is SpanKind.CLIENT
    assert (first["gen_ai.operation.name"], first["gen_ai.provider.name"]) == ("chat", "openai")
    assert (first["gen_ai.request.model"], first["gen_ai.conversation.id"]) == (MODEL, "user-7")
    assert first["gen_ai.usage.input_tokens"] > 0
    assert first["gen_ai.usage.output_tokens"] > 0
    assert first["gen_ai.response.finish_reasons"] == ("tool_calls",)
    called = next(facts(span) for span in tools if span.name == "execute_tool order_status")
    assert called["gen_ai.tool.call.id"] == "c2"
    assert called["gen_ai.operation.name"] == "execute_tool"
    retrieval = telemetry.spans("retrieval")
    assert [parent_of(span, telemetry.spans()) for span in retrieval] == ["execute_tool find"]
    assert len({span.context.trace_id for span in telemetry.spans()}) == 1
    assert "execute_tool order_status" not in {parent_of(span, telemetry.spans()) for span in telemetry.spans()}
    assert "HAT7" not in json.dumps([facts(span) for span in telemetry.spans()])
    usage = telemetry.metrics()["gen_ai.client.token.usage"].data.data_points
    assert {point.attributes["gen_ai.token.type"] for point in usage} == {"input", "output"}
    assert sum(point.count for point in telemetry.metrics()["gen_ai.client.operation.duration"].data.data_points) == 2


@pytest.mark.clients
def test_content_is_there_only_if_it_is_switched_on(telemetry: Telemetry, endpoint: StrictProvider) -> None:
    from openai import OpenAI

    from quire.adapters.openai import complete

    telemetry.instrument(content=True)
    endpoint.forget()
    endpoint.script = script
    ctx = quire.open("memory:")
    ctx.user("Where is my order HAT7?")
    with OpenAI(base_url=f"{endpoint.url}/v1", api_key="none", max_retries=0) as client:
        complete(client, ctx, model=MODEL, tools=[order_status])
    last = facts(telemetry.spans("chat ")[-1])
    sent = json.loads(last["gen_ai.input.messages"])
    assert {"role": "user", "parts": [{"type": "text", "content": "Where is my order HAT7?"}]} in sent
    assert [part["type"] for message in sent for part in message["parts"]].count("tool_call_response") == 2
    said = json.loads(last["gen_ai.output.messages"])
    text = {"type": "text", "content": "It is on its way."}
    assert said == [{"role": "assistant", "parts": [text], "finish_reason": "stop"}]
    tool = facts(telemetry.spans("execute_tool order_status")[0])
    assert tool["gen_ai.tool.call.result"] == "HAT7 is on its way"
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"order": "HAT7"}
    assert facts(telemetry.spans("retrieval")[0])["gen_ai.retrieval.query.text"] == "HAT7"


def test_metrics_have_the_names_of_opentelemetry_and_errors_have_no_text(telemetry: Telemetry) -> None:
    ctx = quire.open("memory:", budget=1_500)
    for turn in range(20):
        with ctx.turn(f"r{turn}"):
            ctx.user(f"Question {turn} about flight HAT{turn}. " * 5)
            view = ctx.render()
            ctx.assistant(f"Answer {turn}. " * 10)
    with pytest.raises(ZeroDivisionError), ctx.turn("k"):
        1 / 0  # noqa: B018
    ctx.report_usage({"prompt_tokens": view.tokens}, model=MODEL)
    found = telemetry.metrics()
    total = {name: sum(getattr(point, "value", 0) for point in one.data.data_points) for name, one in found.items()}
    [failed] = [span for span in telemetry.spans() if span.status.status_code is StatusCode.ERROR]
    assert (failed.name, facts(failed)["error.type"]) == ("quire.turn", "ZeroDivisionError")
    assert failed.status.description is None
    assert not failed.events  # they would have the text of the error
    assert total["quire.turns"] == 21
    assert total["quire.folds"] == len(list(ctx.history(operation="fold"))) > 0
    assert total["quire.billed_tokens"] == view.tokens
    assert {point.attributes["quire.part"] for point in found["quire.view_tokens"].data.data_points} >= {"exchange"}
    assert found["quire.turn_wait"].unit == "s"
    assert found["quire.view_tokens"].unit == "{token}"
    assert found["quire.folds"].unit == "{fold}"


def test_async_contexts_make_the_same_spans_without_complaints(
    telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with quire.aio.open("memory:") as ctx, ctx.turn("k"):
            await ctx.user("x")
            await ctx.render()

    with telemetry.tracers.get_tracer("test").start_as_current_span("request"):
        asyncio.run(run())
    spans = telemetry.spans("quire.")
    assert {span.name for span in spans} >= {"quire.turn", "quire.wait", "quire.render", "quire.commit"}
    assert len({span.context.trace_id for span in telemetry.spans()}) == 1
    assert not caplog.records
    before = len(telemetry.spans())
    otel.uninstrument()
    quire.open("memory:").user("x")
    assert len(telemetry.spans()) == before
