"""Write a small store with every kind of content to any storage.

Run it as `python -m tests.compat.make_store URL`. The script uses public names of quire only, so that it runs with
any version. It gives fixed keys, and it stops the clock between two steps: two runs write the same content.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import quire

SUPPORT = "support-42"
FORK = "support-42, second try"
IMPORTED = "imported"
OPEN = "团队/张伟"
ERASED = "erased"

BUDGETS = {SUPPORT: 1_000, FORK: 900, IMPORTED: 900, OPEN: 2_000, ERASED: 450}
"""The contexts of the store, each with its budget."""
COMPRESSION = {ERASED: quire.CompressionConfig(keep_turns=1, sliding_window=4)}

_START = 1_750_000_000_000_000_000
_STEP = 7_000_000_000
_now = _START

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # one pixel
CITIES = ("Seattle", "Lisbon", "北京", "Tromsø", "Osaka", "上海")


class Shopping(quire.App):
    """A window with a list of things to buy."""

    name = "shopping"
    description = "A shopping list"

    def __init__(self) -> None:
        self._things: list[str] = []

    def content(self) -> list[str]:
        return list(self._things)

    @quire.action("Add a thing")
    def add(self, thing: str) -> str:
        self._things.append(thing)
        return f"{thing} is on the list."

    def save(self) -> list[str]:
        return list(self._things)

    def restore(self, saved: Any) -> None:
        self._things = [str(thing) for thing in saved]


class Letters:
    """An embedder without a model: it counts letters, so that its vectors are the same on every machine."""

    name = "letters"

    def __call__(self, texts: list[str]) -> list[list[float]]:
        return [[1.0, *(float(text.lower().count(letter)) for letter in "aeinorst北海")] for text in texts]


def open_context(library: quire.Library, name: str, *, create: bool = False) -> quire.Context:
    """Open a context of the store with its original options."""
    ctx = library.open(
        name,
        create=create,
        budget=BUDGETS[name],
        key="张伟-1" if name == OPEN else f"amber-{100 + len(name)}",
        compression=COMPRESSION.get(name),
        embedder=Letters() if name == IMPORTED else None,
    )
    if name == OPEN:
        ctx.windows.register(Shopping)
    return ctx


def make(where: str | quire.Storage) -> None:
    """Write the store."""
    with _stopped_clock(), quire.Library(where) as library:
        with open_context(library, SUPPORT, create=True) as ctx:
            _talk(ctx)
            _keep_notes(ctx)
            _edit(ctx)
            _go_back(ctx)
        with open_context(library, FORK) as ctx:
            _go_another_way(ctx)
        with open_context(library, IMPORTED, create=True) as ctx:
            _import(ctx)
        with open_context(library, OPEN, create=True) as ctx:
            _leave_open(ctx)
        with open_context(library, ERASED, create=True) as ctx:
            _erase(ctx)
        with library.open("deleted", key="gone") as ctx:
            ctx.user("This context is deleted at once.")
        library.delete("deleted")


def _talk(ctx: quire.Context) -> None:
    """Add messages of every provider, with renderings between them that fold the older ones."""
    _tick()
    ctx.system("You are a careful travel agent. 用客户的语言回答。")
    ctx.system("Never book without a confirmation.", name="rules")
    for number, city in enumerate(CITIES):
        _tick()
        ctx.user(f"I want to fly to {city} on May {number + 10}. What does it cost, and is there a window seat?")
        ctx.render()
        call = quire.ToolCall(id=f"call_{number}", name="search_flights", arguments=f'{{"city": "{city}"}}')
        ctx.assistant("I look for flights.", [call])
        _tick()
        ctx.tool_result(f"call_{number}", f"HAT{number} to {city}: ${200 + number}, seat {number}A\n" * 12)
        ctx.assistant(f"HAT{number} flies to {city} for ${200 + number}. Seat {number}A is at the window.")
    ctx.report_usage({"prompt_tokens": 1_700, "completion_tokens": 40}, model="gpt-5-mini", view=ctx.render())
    _tick()
    _say_with_parts(ctx)
    _think(ctx)
    _tick()
    ctx.user("HAT2 的确认号是什么？请告诉我座位。")
    ctx.render()
    ctx.assistant("确认号是 Q0002，座位 2A 靠窗。")


def _say_with_parts(ctx: quire.Context) -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}", "detail": "low"}}
    ctx.user([{"type": "text", "text": "This is my passport."}, image, {"type": "text", "text": "Is it valid?"}])
    ctx.assistant([{"type": "text", "text": "I see one pixel."}, {"type": "text", "text": "I cannot read it."}])
    _tick()
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    ctx.add({"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "And now?"}]})
    ctx.assistant("The same pixel.")


def _think(ctx: quire.Context) -> None:
    """Add answers with the thinking of Anthropic and the reasoning of OpenAI Responses."""
    _tick()
    ctx.user("Compare the weather in Paris and Rome.")
    thinking = {"type": "thinking", "thinking": "Two cities, so two calls.", "signature": "EqQB" + "c" * 60}
    sealed = {"type": "redacted_thinking", "data": "EmwK" + "d" * 40}
    calls = [
        {"type": "tool_use", "id": f"toolu_{city}", "name": "weather", "input": {"city": city}}
        for city in ("Paris", "Rome")
    ]
    content = [thinking, sealed, {"type": "text", "text": "I look at both."}, *calls]
    ctx.add({"role": "assistant", "model": "claude-opus-4-5", "content": content})
    results = [
        {"type": "tool_result", "tool_use_id": "toolu_Paris", "content": "21°"},
        {"type": "tool_result", "tool_use_id": "toolu_Rome", "content": "No such station.", "is_error": True},
    ]
    ctx.add({"role": "user", "content": results})
    ctx.add({"role": "assistant", "content": [{"type": "text", "text": "Paris has 21°. Rome is not known."}]})
    _tick()
    ctx.user("Then only Paris, in an hour.")
    reasoning = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Paris first."}],
        "encrypted_content": "gAAAAAB" + "x" * 60,
    }
    function = {"type": "function_call", "id": "fc_1", "call_id": "call_p", "name": "weather", "arguments": "{}"}
    ctx.add([reasoning, {**function, "status": "completed"}])
    ctx.add({"type": "function_call_output", "call_id": "call_p", "output": "22°"})
    said = {"type": "output_text", "text": "It will have 22°.", "annotations": []}
    ctx.add({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [said]})


def _keep_notes(ctx: quire.Context) -> None:
    """Write, archive, move, pin and hide pages, as the developer and as the agent."""
    pages = ctx.pages
    _tick()
    trips = pages.create_contents_page("Trips", "All journeys of the customer", "mem-0")
    seat = pages.create_detail_page("Seat", "Prefers a window seat", "乘客想要靠窗的座位。", "mem-0")
    visa = pages.create_detail_page(
        "Visa", "", "The visa for 北京 ends in June.", trips, meta={"source": "mail", "n": 1}
    )
    meal = pages.create_detail_page("Meal", "Vegetarian", "No meat. " * 30, trips)
    old = pages.create_contents_page("Old trips", "Journeys before 2024", trips)
    pages.create_detail_page("Oslo", "Winter 2023", "The train was late.", old)
    pages.create_detail_page("Porto", "Spring 2023", "The hotel was loud.", old)
    _tick()
    pages.archive(old, cold=True)
    pages.archive(meal)
    lost = pages.create_detail_page("Lost", "A page that is removed", "Nothing.", "mem-0")
    pages.remove_page(lost)
    _tick()
    pages.add_segment(quire.Segment(id="vault", name="Vault", permission=quire.Permission.PRIVATE))
    pages.create_detail_page("Card", "A secret", "4111 1111 1111 1111", "vault-0")
    pages.add_segment(
        quire.Segment(id="docs", name="Documents", description="Terms", permission=quire.Permission.READ_ONLY)
    )
    terms = pages.create_detail_page(
        "Terms", "How to cancel", "A flight can be cancelled for 24 hours. " * 20, "docs-0"
    )
    pages.hide(terms)
    pages.pin(seat)
    pages.move_page(visa, "docs-0")
    pages.update_page(trips, description="The journeys of the customer")
    pages.update_segment("docs", max_capacity=5_000)
    _tick()
    for name, arguments in (
        ("write_page", {"name": "Plan", "summary": "What to do next", "text": "Book HAT3 and ask for the visa."}),
        ("write_page", {"name": "Draft", "text": "Dear customer"}),
        ("write_page", {"page": "mem-2", "text": "This is refused: the page is pinned."}),
        ("find", {"query": "window seat"}),
        ("expand_details", {"page": "docs-1"}),
        ("hide_details", {"page": "mem-1"}),
        ("archive", {"page": "mem-10"}),
    ):
        ctx.tools.call(name, arguments)
    ctx.render()


def _edit(ctx: quire.Context) -> None:
    """Edit messages, alone and in batches."""
    talk = ctx.conversation
    _tick()
    last = len(ctx.messages(all=True))
    talk.delete(6)
    talk.replace(7, {"role": "user", "content": "I want to fly to Lisbon on May 12, with a dog."})
    talk.compress([10, 11, 12, 13])
    talk.insert([{"role": "user", "content": "One more thing."}, {"role": "assistant", "content": "Yes?"}], at=last - 1)
    _tick()
    talk.batch_start()
    ctx.user("This is tried in a batch.")
    ctx.assistant("It is kept.")
    talk.batch_commit()
    talk.batch_start()
    ctx.user("This is tried too.")
    ctx.assistant("It is taken back.")
    talk.batch_end(0)
    with ctx.temporary():
        ctx.user("Only for this step: answer in French.")
        ctx.assistant("D'accord.")


def _go_back(ctx: quire.Context) -> None:
    """Use checkpoints, rollback, undo and a fork."""
    _tick()
    ctx.checkpoint("before the fork")
    ctx.user("Forget what I said about Lisbon.")
    ctx.assistant("Forgotten.")
    ctx.conversation.compress([2, 3])
    _tick()
    ctx.checkpoint("after the edit")
    ctx.user("No, go back.")
    rolled = ctx.rollback("before the fork")
    ctx.pages.fork(FORK, "after the edit")
    _tick()
    ctx.undo(rolled)
    ctx.undo(next(entry for entry in ctx.history() if entry.operation == "remove_page"))
    ctx.assistant("What do you want to keep?")
    ctx.user("Keep everything. Which seat do I have to Osaka?")
    _tick()
    ctx.find("window seat")
    ctx.tools.call("write_page", {"name": "Osaka", "text": "Seat 4A.", "folder": "mem-1"})
    ctx.render(recall=True)


def _go_another_way(ctx: quire.Context) -> None:
    """Change the fork, so that it shares some bodies with its origin and has others of its own."""
    _tick()
    ctx.user("In this branch I go by train.")
    ctx.assistant("There is a train at nine. 火车九点开。")
    ctx.pages.recall("mem-5")
    ctx.pages.remove_page("docs-2")
    for number in range(4):
        _tick()
        ctx.user(f"And train {number}? " + "Tell me about all of its stops. " * 6)
        ctx.assistant(f"Train {number} stops in {CITIES[number]}. " * 8)
        ctx.render()
    ctx.find("train")


def _import(ctx: quire.Context) -> None:
    """Import a broken history, and search it by words and by vectors."""
    _tick()
    history: list[Any] = [{"role": "system", "content": "You write code."}]
    for number in range(5):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": '{"file": "a.py"}'}}
        history += [
            {"role": "user", "content": f"Test {number} fails on the shore 海边. Why? " + "It failed before. " * 10},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": f"line {number}: AssertionError\n" * 15},
            {"role": "assistant", "content": f"Line {number} compares a string with a number. I change it."},
        ]
    history[7:8] = []  # a result is missing
    history.append({"role": "tool", "tool_call_id": "unknown", "content": "Nobody asked for this."})
    history.append({"role": "user", "content": "Which test was the first?"})
    ctx.import_messages(history)
    _tick()
    ctx.render()
    ctx.assistant("Test 0.")
    ctx.find("which string is compared")
    ctx.pages.create_detail_page("Style", "How to write", "Short functions.", "mem-0")
    ctx.find("style 海")


def _leave_open(ctx: quire.Context) -> None:
    """Leave things unfinished: a window, a batch, a call without its result, changes that wait for a fold."""
    _tick()
    ctx.system("你是团队的助手。")
    ctx.user("我们需要什么？ What do we need?")
    ctx.render()
    window = ctx.windows.open("shopping").id
    ctx.windows.act(window, "add", thing="面包 bread")
    ctx.windows.act(window, "add", thing="tea")
    closed = ctx.windows.open("shopping").id
    ctx.windows.close(closed, "An empty list.")
    _tick()
    ctx.assistant("Bread and tea.")
    ctx.pages.create_detail_page("Shops", "Where to buy", "The shop in the Main Street. " * 10, "mem-0")
    ctx.pages.create_detail_page("Prices", "What it costs", "Tea: 3. Bread: 2. " * 10, "mem-0")
    ctx.render()
    for name, arguments in (
        ("write_page", {"name": "Shopping", "text": "Buy bread first."}),
        ("hide_details", {"page": "mem-1"}),
        ("write_page", {"page": "mem-2", "text": "Tea: 4. Bread: 3."}),
        ("write_page", {"name": "Lists", "pages": ["mem-1", "mem-3"]}),
    ):
        _tick()
        ctx.tools.call(name, arguments)
    ctx.conversation.batch_start()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    ctx.user([{"type": "text", "text": "And for tomorrow? This is the list:"}, image])
    ctx.conversation.delete(2)
    ctx.assistant("I look.", [quire.ToolCall(id="a", name="look"), quire.ToolCall(id="b", name="look")])
    ctx.tool_result("a", {"shop": "closed", "until": "周一"})
    ctx.find("tea")


def _erase(ctx: quire.Context) -> None:
    """Purge a page, clean up the conversation, and set a whole context from JSON."""
    other = quire.open("memory:", key="other")
    other.pages.create_detail_page("Moved", "From JSON", "This text came as JSON.", "mem-0")
    other.user("A message that came as JSON.")
    _tick()
    ctx.pages.unmarshal(other.pages.marshal())
    other.close()
    for number in range(6):
        _tick()
        ctx.user(f"Question {number}: " + "why is the sky blue? " * 6)
        ctx.assistant(f"Answer {number}: " + "because of the air. " * 6)
        ctx.render()
    secret = ctx.pages.create_detail_page("Password", "", "swordfish", "mem-0")
    ctx.find("swordfish")
    ctx.pages.purge(secret)
    ctx.conversation.delete([1, 4])
    ctx.conversation.cleanup()
    _tick()
    ctx.user("Is the sea blue too?")
    ctx.pages.acting_as("keeper").create_detail_page("Sea", "", "It mirrors the sky.", "mem-0")


def _tick() -> None:
    """Let some time pass."""
    global _now
    _now += _STEP


@contextmanager
def _stopped_clock() -> Iterator[None]:
    global _now
    _now = _START
    with patch.object(time, "time_ns", lambda: _now):
        yield


if __name__ == "__main__":
    make(sys.argv[1])
