"""Message threads of Anthropic: the provider keeps the history, and a request continues it from an earlier answer.

The tool runner of Anthropic's SDK uses them.
"""

from tests.strict_provider.requests import Body, Problem, State

_SOURCE = "anthropic-sdk-python, src/anthropic/types/beta/beta_message_thread_param.py"


def join_thread(body: Body, state: State) -> Body | Problem:
    """Return the request with the history, the prompt and the tools of the thread that it continues."""
    thread = body.get("thread") or {}
    if thread.get("type") != "continue":
        return body
    previous = str(thread.get("previous_message_id"))
    known = state.threads.get(previous)
    if known is None:
        text = f"thread.previous_message_id: {previous} not found"
        return Problem(text, kind="not_found_error", status=404, rule="known thread", source=_SOURCE)
    kept = {key: value for key, value in known.items() if key in ("system", "tools")}
    return {**kept, **body, "messages": [*known["messages"], *body["messages"]]}


def keep_thread(body: Body, answer: Body, state: State) -> None:
    """Keep the history of a request with a thread, under the id of its answer."""
    if body.get("thread"):
        spoken = {"role": "assistant", "content": answer["content"]}
        state.threads[answer["id"]] = {**body, "messages": [*body["messages"], spoken]}
