"""The caller's summariser: it runs outside the turn, passes the fact check, applies at the next fold, never blocks."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import quire
from quire import CompressionConfig, Context, InvalidValue
from quire.model.tokens import VocabularyCounter
from quire.view.options import Summariser

COUNT = VocabularyCounter().count


def opened(summariser: Summariser | None, budget: int = 1_500) -> Context:
    return quire.open("memory:", budget=budget, key="amber-123", compression=CompressionConfig(summariser=summariser))


def talk_on(ctx: Context, start: int, turns: int) -> int:
    """Continue the conversation with views. Return the number of folds."""
    count = 0
    for turn in range(start, start + turns):
        ctx.user(f"Question {turn} about HAT{turn}. " + "I would like to know. " * 12)
        ctx.assistant(f"Answer {turn}: it is {turn + 5000}. " + "That is all. " * 12)
        count += ctx.render().fold is not None
    return count


def until_fold(ctx: Context, start: int) -> int:
    turn = start
    while not talk_on(ctx, turn, 1):
        turn += 1
    return turn + 1


def waited(ctx: Context) -> None:
    assert ctx.summarising is not None
    assert ctx.summarising.wait(20)


def descriptions(ctx: Context) -> list[str]:
    state = ctx.pages._engine.current()
    return [page.header.description for page in state.segment_pages() if page.header.line_tokens]


def test_its_text_takes_its_place_at_the_next_fold() -> None:
    asked: list[tuple[str, int]] = []

    def summarise(text: str, tokens: int) -> str:
        asked.append((text, tokens))
        return "In short: a flight."

    ctx = opened(summarise)
    turn = until_fold(ctx, 0)
    waited(ctx)
    assert asked
    assert all(text.startswith("User: Question") and "\nAssistant: Answer" in text for text, _ in asked)
    view = ctx.render()
    assert not any(text.startswith("In short") for text in descriptions(ctx))  # not before the next fold
    seq = ctx.seq
    assert ctx.render().openai() == view.openai()
    assert ctx.seq == seq
    until_fold(ctx, turn)
    assert sum(text.startswith("In short: a flight.") for text in descriptions(ctx)) >= len(asked)
    assert [entry.operation for entry in ctx.history()].count("fold") == 2  # in the same commit
    assert ctx.check() == []


def test_what_is_too_long_is_clipped_and_facts_fill_what_is_left() -> None:
    ctx = opened(lambda text, tokens: "word " * 500 if "Question 0 " in text else "Short.")
    turn = until_fold(ctx, 0)
    waited(ctx)
    until_fold(ctx, turn)
    state = ctx.pages._engine.current()
    folded = [page.header for page in state.segment_pages() if page.header.line_tokens and page.header.level <= 1]
    assert any(header.description.startswith("word word") for header in folded)
    assert any(header.description.startswith("Short. | HAT") for header in folded)
    for header in folded:
        assert COUNT(header.description) == header.summary_tokens <= header.tokens / 10


@pytest.mark.parametrize("given", [None, "", "  \n ", 5, ["text"]])
def test_what_is_no_summary_leaves_the_extracted_one(given: object) -> None:
    ctx = opened(lambda text, tokens: given)  # type: ignore[arg-type, return-value]
    plain = opened(None)
    for context in (ctx, plain):
        turn = until_fold(context, 0)
        if context.summarising is not None:
            waited(ctx)
        until_fold(context, turn)
    assert descriptions(ctx) == descriptions(plain)
    assert ctx.summarising is not None
    errors = {(type(error), repr(given) in str(error)) for error in ctx.summarising.errors}
    assert errors == ({(quire.InvalidValue, True)} if isinstance(given, int | list) else set())


def test_an_error_is_kept_and_never_reaches_the_turn() -> None:
    def fails(text: str, tokens: int) -> str:
        raise ConnectionError("no model there")

    ctx = opened(fails)
    talk_on(ctx, 0, 60)
    waited(ctx)
    assert ctx.summarising is not None
    assert 0 < len(ctx.summarising.errors) <= 16
    assert str(ctx.summarising.errors[-1]) == "no model there"
    assert descriptions(ctx)


def test_work_that_was_cancelled_is_an_error_like_others() -> None:
    async def cancelled(text: str, tokens: int) -> str:
        raise asyncio.CancelledError

    ctx = opened(cancelled)
    until_fold(ctx, until_fold(ctx, 0))
    waited(ctx)
    assert ctx.summarising is not None
    assert all(isinstance(error, asyncio.CancelledError) for error in ctx.summarising.errors)
    assert len(ctx.summarising.errors) > 1


def test_an_async_function_will_do() -> None:
    async def summarise(text: str, tokens: int) -> str:
        return "Awaited."

    ctx = opened(summarise)
    turn = until_fold(ctx, 0)
    waited(ctx)
    until_fold(ctx, turn)
    assert any(text.startswith("Awaited.") for text in descriptions(ctx))


def test_a_slow_one_makes_no_turn_wait_and_closing_does_not_either() -> None:
    go = threading.Event()
    ctx = opened(lambda text, tokens: "Late." if go.wait(30) else None)
    assert talk_on(ctx, 0, 60) > 1  # no summary arrived, and everything continued
    assert ctx.summarising is not None
    assert not ctx.summarising.wait(0)
    before = time.monotonic()
    ctx.close()
    assert time.monotonic() - before < 20
    go.set()
    assert ctx.summarising.wait(20)
    assert not ctx.summarising.errors


def test_a_page_that_changed_keeps_what_it_has() -> None:
    ctx = opened(lambda text, tokens: "In short.")
    turn = until_fold(ctx, 0)
    waited(ctx)
    lines = [page.index for page in ctx.render().pages if page.granularity == "line"]
    ctx.pages.update_page(lines[0], description="Mine.")
    ctx.pages.expand(lines[1])
    until_fold(ctx, turn)
    assert ctx.pages.get_page(lines[0]).description == "Mine."
    waited(ctx)
    assert ctx.check() == []


def test_an_undone_fold_takes_its_summaries_with_it() -> None:
    ctx = opened(lambda text, tokens: "In short.")
    turn = until_fold(ctx, 0)
    waited(ctx)
    folds = [entry.seq for entry in ctx.history(operation="fold")]
    ctx.undo(folds[-1])
    until_fold(ctx, turn)
    assert ctx.check() == []
    waited(ctx)


def test_without_one_there_is_no_thread() -> None:
    ctx = opened(None)
    before = threading.active_count()
    talk_on(ctx, 0, 40)
    assert ctx.summarising is None
    assert threading.active_count() == before


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(InvalidValue, match="summariser"):
        quire.open("memory:", compression=CompressionConfig(summariser="gpt"))  # type: ignore[arg-type]


@pytest.fixture
def model() -> Iterator[str]:
    """A server with OpenAI's API."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            said = f"Summary of {len(request['messages'][-1]['content'])} characters."
            message = {"role": "assistant", "content": said}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            body = json.dumps(
                {"id": "1", "object": "chat.completion", "created": 0, "model": "small", "choices": [choice]}
            ).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        log_message: Callable[..., None] = lambda *_: None

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def test_a_client_of_openais_is_a_summariser(model: str) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=model, api_key="none", max_retries=0)

    def summarise(text: str, tokens: int) -> str | None:
        reply = client.chat.completions.create(
            model="small", max_tokens=tokens, messages=[{"role": "user", "content": text}]
        )
        content: str | None = reply.choices[0].message.content
        return content

    ctx = opened(summarise)
    turn = until_fold(ctx, 0)
    waited(ctx)
    assert ctx.summarising is not None
    assert not ctx.summarising.errors
    until_fold(ctx, turn)
    assert any(text.startswith("Summary of ") for text in descriptions(ctx))
