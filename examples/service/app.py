"""A chat service: streaming answers, tools, summaries, retention and metrics. Copy it and replace the tools.

Each request is a turn with the id of the request as its key. So a client that gets no answer sends the request again,
to any worker: nothing is lost, nothing is added twice, and a tool that ran does not run again.

    SERVICE_STORE=postgresql://… uvicorn service.app:app --workers 4 --timeout-graceful-shutdown 30

Settings are read from the environment: SERVICE_STORE (a path or a URL), SERVICE_MODEL, SERVICE_BUDGET and SERVICE_DAYS.
The model is any endpoint of the OpenAI SDK: OPENAI_BASE_URL and OPENAI_API_KEY.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any

from openai import AsyncOpenAI, OpenAI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

import quire
from quire.adapters.openai import astream
from quire.adapters.turns import TurnOptions

PROMPT = "You help the customers of a small airline. Answer in one or two sentences."
MAX_TEXT = 20_000


def order_status(order_id: str) -> str:
    """Return the status of an order."""
    return f"Order {order_id} left the warehouse this morning."


class Settings:
    """The settings of a worker."""

    def __init__(self, values: Mapping[str, str] = os.environ) -> None:
        self.store = values.get("SERVICE_STORE", "service.db")
        self.model = values.get("SERVICE_MODEL", "gpt-5-mini")
        self.budget = int(values.get("SERVICE_BUDGET", "8000"))
        self.days = int(values.get("SERVICE_DAYS", "90"))


class Service:
    """The state of one worker: the library, the client of the model, and the tasks that repeat."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.client = AsyncOpenAI(max_retries=2)
        self.library = quire.aio.Library(settings.store, summariser=self.summarise)

    def summarise(self, text: str, most: int) -> str | None:
        """Return a summary of a folded text. quire calls it in a thread, outside of the turns."""
        messages = [{"role": "user", "content": f"Summarise in at most {most // 2} words:\n\n{text}"}]
        answer = OpenAI().chat.completions.create(model=self.settings.model, messages=messages)  # type: ignore[arg-type]
        return answer.choices[0].message.content

    async def answer(self, user: str, request_id: str, text: str) -> AsyncIterator[str]:
        """Yield the pieces of an answer. A request that was answered gets the same answer again."""
        turn = self.library.turn(user, key=request_id, keep=True, budget=self.settings.budget, embedder=embed)
        async with turn as ctx:
            if ctx.turn_state == "finished":
                asked = await ctx.user(text)  # it is known, so nothing is added
                later = (message for message in await ctx.messages() if message.index > asked)
                yield next(message.text for message in later if message.role == "assistant" and not message.tool_calls)
                return
            await ctx.system(PROMPT)  # the same prompt changes nothing
            await ctx.user(text)
            chunks = astream(
                self.client,
                ctx,
                model=self.settings.model,
                tools=[order_status],
                on_error="tell",
                options=TurnOptions(render={"recall": True}),
            )
            async for chunk in chunks:
                if chunk.choices and chunk.choices[0].delta.content:
                    yield chunk.choices[0].delta.content

    async def write_summaries(self) -> None:
        """Ask for the summaries that are pending. Each is asked for by one worker."""
        await self.library.summarise(max_seconds=20)

    async def remove_old(self) -> None:
        """Remove the conversations without a message for a long time, and their bytes."""
        await self.library.expire(timedelta(days=self.settings.days), scrub=True)


def embed(texts: list[str]) -> list[list[float]]:
    """Return a vector for each text: counts of letter pairs. Replace it by an embedding model."""
    return [_letter_pairs(text.lower()) for text in texts]


def _letter_pairs(text: str) -> list[float]:
    counts = [0.0] * 128
    for first, second in pairwise(text):
        counts[(ord(first) * 31 + ord(second)) % 128] += 1.0
    return counts


async def chat(request: Request) -> Response:
    """Answer `{"id": …, "text": …}` as server-sent events: pieces of text, then `done` or `error`."""
    try:
        body = json.loads(await request.body())
        request_id, text = body["id"], body["text"]
    except (ValueError, KeyError, TypeError):
        return JSONResponse({"error": 'The body must be {"id": …, "text": …}.'}, 400)
    if not (isinstance(request_id, str) and 0 < len(request_id) <= 100):
        return JSONResponse({"error": "id must be a text of 1 to 100 characters."}, 400)
    if not (isinstance(text, str) and 0 < len(text) <= MAX_TEXT):
        return JSONResponse({"error": f"text must have 1 to {MAX_TEXT} characters."}, 400)
    service: Service = request.app.state.service
    return StreamingResponse(
        events(service.answer(request.path_params["user"], request_id, text)), media_type="text/event-stream"
    )


async def events(pieces: AsyncIterator[str]) -> AsyncIterator[str]:
    """Yield an event for each piece of the answer, then one for the end. `retry` says if the same request may help."""
    try:
        async for piece in pieces:
            yield _event("text", {"text": piece})
    except quire.QuireError as error:
        may_retry = isinstance(error, quire.Busy | quire.Conflict | quire.OutcomeUnknown)
        yield _event("error", {"code": error.code, "error": str(error), "retry": may_retry})
    except Exception as error:  # the client of the model; the turn is kept, so the request can be repeated
        yield _event("error", {"code": "model", "error": type(error).__name__, "retry": True})
    else:
        yield _event("done", {})


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


async def metrics(_: Request) -> Response:
    """Return the metrics of this worker for Prometheus."""
    return PlainTextResponse(quire.metrics.text(), media_type=quire.metrics.CONTENT_TYPE)


async def health(_: Request) -> Response:
    """Answer that this worker runs."""
    return PlainTextResponse("ok")


async def repeat(work: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Do some work again and again. An error does not end it."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except Exception as error:  # the next round tries again
            print(f"{work.__name__}: {error}", flush=True)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Open the library, start the tasks; at the end, after the last request, stop them and close it."""
    quire.metrics.start()
    service = app.state.service = Service(Settings())
    tasks = [
        asyncio.create_task(repeat(service.write_summaries, 5)),
        asyncio.create_task(repeat(service.remove_old, 3_600)),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await service.library.close()
        await service.client.close()


app = Starlette(
    routes=[
        Route("/chat/{user}", chat, methods=["POST"]),
        Route("/metrics", metrics),
        Route("/health", health),
    ],
    lifespan=lifespan,
)
