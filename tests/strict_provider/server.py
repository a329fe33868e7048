"""The HTTP server of the strict provider."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from threading import Lock, Thread
from time import sleep
from types import ModuleType
from typing import Any, NamedTuple

from tests.strict_provider import anthropic_answers, chat_answers, responses_answers
from tests.strict_provider.replies import Fault, Reply, Script
from tests.strict_provider.requests import Api, Body, Problem, Request, State
from tests.strict_provider.rules import check_request
from tests.strict_provider.threads import join_thread, keep_thread

_COUNT = "/v1/messages/count_tokens"
_PATHS: Mapping[str, Api] = {
    "/v1/messages": "anthropic",
    _COUNT: "anthropic",
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
}
_ANSWERS: Mapping[Api, ModuleType] = {
    "anthropic": anthropic_answers,
    "chat": chat_answers,
    "responses": responses_answers,
}


class Answer(NamedTuple):
    """A response: its status, headers, and chunks. A stream that is not `complete` is closed without its end.

    `pause` is the time before each chunk in seconds.
    """

    status: int
    headers: Mapping[str, str]
    chunks: list[bytes]
    complete: bool = True
    pause: float = 0.0


class Exchange(NamedTuple):
    """A request and its response as they were on the wire: `data` and `answer` are the bytes of the bodies."""

    method: str
    path: str
    headers: Sequence[tuple[str, str]]
    data: bytes
    status: int
    answer_headers: Mapping[str, str]
    answer: bytes


class StrictProvider:
    """A provider in a thread, on a free port: `url` for Anthropic's SDK, `url + "/v1"` for OpenAI's.

    `script` answers and can be changed at any time. `requests` has the body of every request, `headers` its headers,
    and `refused` the problem of each one that a rule refused. `state` has the settings, such as the context window.
    `wire`, if it is a list, gets every request and response as bytes, other paths and methods included. `gone` counts
    the responses that the client did not wait for.
    """

    def __init__(self, state: State | None = None, script: Script | None = None) -> None:
        self.state = state or State()
        self.script: Script = script or (lambda _: Reply("ok"))
        self.requests: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.refused: list[Problem] = []
        self.wire: list[Exchange] | None = None
        self.gone = 0
        self._number = 0
        self._lock = Lock()
        self._server = _Server(self)
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> "StrictProvider":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def forget(self) -> None:
        """Forget the requests so far."""
        self.requests.clear()
        self.headers.clear()
        self.refused.clear()

    def respond(self, path: str, body: Body, headers: Mapping[str, str]) -> Answer:
        """Return the response to a request."""
        api = _PATHS[path]
        betas = [part.strip() for part in headers.get("anthropic-beta", "").split(",") if part.strip()]
        with self._lock:
            self.requests.append(body)
            self.headers.append(dict(headers))
            self._number += 1
            number = self._number
            joined = join_thread(body, self.state)
            if isinstance(joined, Problem):
                problem: Problem | None = joined
            else:
                body = joined
                problem = check_request(api, body, self.state, betas=betas, counts=path == _COUNT)
            if problem is not None:
                self.refused.append(problem)
                return self._fail(api, problem, number)
            request = Request(api, body, frozenset(betas), path == _COUNT)
            if request.counts:
                return _plain(anthropic_answers.count_tokens(request))
            try:
                reply = self.script(body)
            except Exception as error:  # a failed assertion of a script becomes visible to its test
                return self._fail(api, Problem(f"the script failed: {error!r}"), number)
            if isinstance(reply, Fault):
                return self._fail(api, _ANSWERS[api].to_problem(reply), number, reply.retry_after)
            answer = _ANSWERS[api].make_answer(request, reply, self.state, number)
            keep_thread(body, answer, self.state)
            return self._stream(request, reply, answer) if body.get("stream") else _plain(answer, reply)

    def _fail(self, api: Api, problem: Problem, number: int, retry_after: str = "") -> Answer:
        headers = {"retry-after": retry_after} if retry_after else {}
        return _plain(_ANSWERS[api].make_error(problem, number), None, problem.status, headers)

    def _stream(self, request: Request, reply: Reply, answer: Body) -> Answer:
        module = _ANSWERS[request.api]
        events = list(islice(module.make_events(request, answer), reply.cut))
        chunks = [_write_event(name, event) for name, event in events]
        if reply.fault is not None:
            error = module.make_error(module.to_problem(reply.fault), self._number)
            chunks.append(_write_event("error" if request.api != "chat" else "", error))
        elif request.api == "chat" and reply.cut is None:
            chunks.append(b"data: [DONE]\n\n")
        is_complete = reply.cut is None or reply.clean or reply.fault is not None
        return Answer(200, {"content-type": "text/event-stream"}, chunks, is_complete, reply.pause)


class _Server(ThreadingHTTPServer):
    """A server that says nothing about clients that went away."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, provider: StrictProvider) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.provider = provider

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _plain(
    body: Body, reply: Reply | None = None, status: int = 200, headers: Mapping[str, str] | None = None
) -> Answer:
    is_complete = reply is None or reply.cut is None
    data = json.dumps(body).encode()
    chunks = [data if is_complete else data[: len(data) // 2]]
    return Answer(status, {"content-type": "application/json", **(headers or {})}, chunks, is_complete)


def _write_event(name: str, event: Body) -> bytes:
    data = json.dumps({"type": name, **event} if name else event)
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def _frames(answer: Answer) -> Iterator[bytes]:
    """Yield the chunks in HTTP's chunked encoding."""
    for chunk in answer.chunks:
        yield b"%x\r\n%s\r\n" % (len(chunk), chunk)
    if answer.complete:
        yield b"0\r\n\r\n"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        data = self.rfile.read(length)
        if len(data) < length:  # the client was killed
            self.close_connection = True
            return
        path = self.path.partition("?")[0]
        if path not in _PATHS:
            self._refuse(404, f"Not found: {path}", data)
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._send(self.server.provider.respond(path, json.loads(data), headers), data)

    def do_GET(self) -> None:
        """Answer the list of models, refuse WebSockets with 426, and know no other path."""
        if self.headers.get("upgrade", "").lower() == "websocket":
            self._refuse(426, "Use POST.")
        elif self.path.partition("?")[0] == "/v1/models":
            self._send(_plain({"object": "list", "data": []}))
        else:
            self._refuse(404, f"Not found: {self.path}")

    def do_HEAD(self) -> None:
        self._send(Answer(200, {}, []))

    def _refuse(self, status: int, message: str, data: bytes = b"") -> None:
        self._send(_plain({"error": {"message": message}}, None, status), data)

    def _send(self, answer: Answer, data: bytes = b"") -> None:
        wire = self.server.provider.wire
        if wire is not None:
            seen = (self.command, self.path, self.headers.items(), data)
            wire.append(Exchange(*seen, answer.status, answer.headers, b"".join(answer.chunks)))
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if self.command == "HEAD":
            self.end_headers()
            return
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for frame in _frames(answer):
                sleep(answer.pause)
                self.wfile.write(frame)
        except ConnectionError:
            self.server.provider.gone += 1
            raise
        if not answer.complete:
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        return
