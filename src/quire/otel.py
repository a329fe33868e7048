"""Traces and metrics for OpenTelemetry. It needs `quire[otel]`.

    quire.otel.instrument()     # once, after the program has set its providers

Spans of model calls, tool calls and searches follow the semantic conventions for generative AI (1.41, in development);
the others have the attributes `quire.*`. Without `content=True`, no span has a text of a user, a model or a tool.
"""

import json
from contextvars import ContextVar, Token
from typing import Any, NamedTuple

import quire
from quire import probes
from quire.errors import InvalidValue, NotInstalled
from quire.metrics import FAMILIES, measure
from quire.model.messages import Message
from quire.probes import Operation
from quire.providers import parse
from quire.system.rules import check_bool

try:
    from opentelemetry import context as otel_context
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context as OtelContext
    from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider, set_span_in_context
except ModuleNotFoundError as error:
    raise NotInstalled("OpenTelemetry is not installed", "otel", name=error.name) from None

__all__ = ["instrument", "uninstrument"]

_SCHEMA = "https://opentelemetry.io/schemas/1.41.0"
_here: ContextVar[object] = ContextVar("quire_otel")
"""Holds the current span. A reset fails in another context, which shows that a span ends where it did not begin."""


def instrument(
    *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None, content: bool = False
) -> None:
    """Send spans and metrics of all operations of this process to OpenTelemetry from now on.

    Without providers, the global ones are used. With `content`, spans have messages, arguments, results, queries and
    the texts of errors. A second call replaces the first.
    """
    global _observer
    shows_content = check_bool(content, "content")
    tracer = trace.get_tracer("quire", quire.__version__, tracer_provider, _SCHEMA)
    meter = metrics.get_meter("quire", quire.__version__, meter_provider, _SCHEMA)
    uninstrument()
    _observer = _Observer(tracer, meter, shows_content)
    probes.observe(_observer)


def uninstrument() -> None:
    """Stop sending spans and metrics."""
    global _observer
    if _observer is not None:
        probes.unobserve(_observer)
        _observer = None


class _Mark(NamedTuple):
    span: Span
    attached: Token[OtelContext] | None
    here: Token[object] | None


class _Observer:
    """Makes a span and metrics of every operation."""

    def __init__(self, tracer: Tracer, meter: Meter, content: bool) -> None:
        self._tracer = tracer
        self._content = content
        self._instruments = {name: _instrument(meter, name) for name in FAMILIES}
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Tokens of model calls.")
        self._durations = meter.create_histogram("gen_ai.client.operation.duration", "s", "Duration of model calls.")

    def parent(self) -> OtelContext:
        """Return the current context of OpenTelemetry."""
        return otel_context.get_current()

    def start(self, operation: Operation, parent: OtelContext | None) -> _Mark | None:
        """Start a span, and make it the current one."""
        if operation.kind == "usage":
            return None
        name, kind = _span_name(operation)
        attributes = {key: value for key, value in _first_attributes(operation).items() if value is not None}
        span = self._tracer.start_span(name, parent, kind, attributes)
        if not operation.attached:
            return _Mark(span, None, None)
        return _Mark(span, otel_context.attach(set_span_in_context(span, parent)), _here.set(span))

    def detach(self, operation: Operation, mark: _Mark | None) -> _Mark | None:
        """Make the previous span the current one again. The span of this operation stays open."""
        if mark is not None:
            _detach(mark)
        return mark and mark._replace(attached=None, here=None)

    def finish(self, operation: Operation, mark: _Mark | None) -> None:
        """End the span of an operation and record its metrics."""
        if mark is not None:
            self._end(operation, mark)
        for found in measure(operation):
            instrument = self._instruments[found.name]
            labels = {_LABELS[label]: value for label, value in found.labels.items()}
            if isinstance(instrument, Histogram):
                instrument.record(found.value, labels)
            else:
                instrument.add(found.value, labels)
        if operation.kind == "model":
            self._record_model(operation)

    def _end(self, operation: Operation, mark: _Mark) -> None:
        _detach(mark)
        span, error = mark.span, operation.error
        span.set_attributes({key: value for key, value in _last_attributes(operation).items() if value is not None})
        if self._content:
            span.set_attributes({key: value for key, value in _content(operation).items() if value is not None})
        if error is not None and not isinstance(error, GeneratorExit):
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(Status(StatusCode.ERROR, str(error) if self._content else None))
        elif operation.facts.get("failed"):
            span.set_attribute("error.type", "tool_error")
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def _record_model(self, done: Operation) -> None:
        labels = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": done.facts["provider"],
            "gen_ai.request.model": done.facts["model"],
        }
        failed = {} if done.error is None else {"error.type": type(done.error).__qualname__}
        self._durations.record(done.seconds, {**labels, **failed})
        for kind in ("input", "output"):
            if done.facts.get(kind):
                self._tokens.record(done.facts[kind], {**labels, "gen_ai.token.type": kind})


_observer: _Observer | None = None


def _detach(mark: _Mark) -> None:
    if mark.here is None or mark.attached is None:
        return
    try:
        _here.reset(mark.here)
    except ValueError:  # the span ends in another context, in which it is not the current one
        return
    otel_context.detach(mark.attached)


_LABELS = {
    "outcome": "quire.outcome",
    "part": "quire.part",
    "operation": "quire.operation",
    "error": "error.type",
    "tool": "gen_ai.tool.name",
    "model": "gen_ai.request.model",
}
_UNITS = {"tokens": "{token}", "seconds": "s"}


def _instrument(meter: Meter, name: str) -> Counter | Histogram:
    """Return the instrument of a metric: `quire_turn_wait_seconds` is `quire.turn_wait` in seconds."""
    words = name.removesuffix("_total").removeprefix("quire_").split("_")
    unit = _UNITS.get(words[-1], f"{{{words[-1].removesuffix('s')}}}")
    title = "quire." + "_".join(words[:-1] if words[-1] == "seconds" else words)
    make = meter.create_histogram if FAMILIES[name].kind == "histogram" else meter.create_counter
    return make(title, unit, FAMILIES[name].about)


def _span_name(operation: Operation) -> tuple[str, SpanKind]:
    facts = operation.facts
    if operation.kind == "model":
        return f"chat {facts['model']}", SpanKind.CLIENT
    if operation.kind == "tool":
        return f"execute_tool {facts['tool']}", SpanKind.INTERNAL
    if operation.kind == "find":
        return "retrieval quire", SpanKind.INTERNAL
    return f"quire.{operation.kind}", SpanKind.INTERNAL


def _first_attributes(operation: Operation) -> dict[str, Any]:
    facts = operation.facts
    common = {"gen_ai.conversation.id": operation.context}
    if operation.kind == "model":
        provider = {"gen_ai.provider.name": facts["provider"], "gen_ai.request.model": facts["model"]}
        return {**common, "gen_ai.operation.name": "chat", **provider}
    if operation.kind == "tool":
        call = {"gen_ai.tool.name": facts["tool"], "gen_ai.tool.call.id": facts["call"]}
        return {**common, "gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function", **call}
    if operation.kind == "find":
        search = {"gen_ai.data_source.id": "quire", "gen_ai.retrieval.top_k": facts["limit"]}
        return {**common, "gen_ai.operation.name": "retrieval", **search}
    if operation.kind == "commit":
        return {**common, "quire.operation": facts["operation"], "quire.seq": facts["seq"]}
    return common


def _last_attributes(operation: Operation) -> dict[str, Any]:
    facts = operation.facts
    if operation.kind == "model":
        return {
            "gen_ai.response.model": facts.get("answered_by"),
            "gen_ai.response.id": facts.get("answer_id"),
            "gen_ai.response.finish_reasons": facts.get("reasons") or None,
            "gen_ai.usage.input_tokens": facts.get("input"),
            "gen_ai.usage.cache_read.input_tokens": facts.get("cached"),
            "gen_ai.usage.output_tokens": facts.get("output"),
        }
    if operation.kind == "render":
        parts = {f"quire.part.{part}.tokens": tokens for part, tokens in facts.get("parts", {}).items()}
        named = {f"quire.view.{key}": facts.get(key) for key in ("tokens", "budget", "is_preview")}
        return {**named, "quire.view.cached_tokens": facts.get("cached"), **parts}
    if operation.kind == "find":
        return {"quire.hits": facts.get("hits")}
    if operation.kind == "fold":
        return {f"quire.fold.{key}": facts.get(key) for key in ("exchanges", "chapters", "saved")}
    return {"quire.turn.state": facts.get("state")} if operation.kind == "turn" else {}


# Content


def _content(operation: Operation) -> dict[str, Any]:
    content = operation.content
    if operation.kind == "tool":
        return {
            "gen_ai.tool.call.arguments": _text(content.get("arguments")),
            "gen_ai.tool.call.result": _text(content.get("result")),
        }
    if operation.kind == "find":
        return {"gen_ai.retrieval.query.text": _text(content.get("query"))}
    if operation.kind != "model":
        return {}
    view, answer = content.get("view"), content.get("answer")
    found = {} if view is None else {"gen_ai.input.messages": _text([_message(one) for one in view.messages])}
    if answer is not None:
        try:
            reasons = operation.facts.get("reasons") or [""]
            said = [{**_message(one), "finish_reason": reasons[0]} for one in parse(answer)]
            found["gen_ai.output.messages"] = _text(said)
        except InvalidValue:  # an empty answer
            pass
    return found


def _message(message: Message) -> dict[str, Any]:
    """Return a message in the form of the semantic conventions."""
    parts: list[dict[str, Any]] = []
    if message.role == "tool":
        parts = [{"type": "tool_call_response", "id": message.tool_call_id, "response": message.text}]
    elif message.text:
        parts = [{"type": "text", "content": message.text}]
    for call in message.tool_calls:
        parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments})
    return {"role": message.role, "parts": parts}


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
