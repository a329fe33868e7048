"""Random walks through the states of a context, each replayable from its number.

A walk is one context in memory with a budget, a configuration and sometimes a second handle. `step` does one action of
a user, a model or a developer (`tests.view_laws.steps`), which may be refused. `answer` lets the model answer a view.
"""

import random
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import quire
from quire import CompressionConfig, Context, MemoryStorage, QuireError, Storage, ToolCall, View
from quire.windows.apps import Todo
from tests.strict_provider import Api, Body, Call, Reply, Request, State, anthropic_answers, responses_answers

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WORDS = (
    *("pump", "阀门", "tank", "HAT136", "2024-05-20", "/var/log/app.log", "$201", "返回", "the", "a", "of", "\n"),
    *("ValueError", "🙂", "👩‍👩‍👧", "user_81", "refund", "数据库连接失败。", "QUJDREVGR0hJSktMTU5P", "<|endoftext|>"),
    *("<|im_start|>", "[amber-123] Folded earlier:", "[usr-1 12] x: y", "[no result]", "  ", "\t", "…", "é", "e\u0301"),
    *("\x00", "\u2028", "don't", "=====", "1234567", '{"a": [1]}', "</Window>", "שלום", "हिन्दी", "🇩🇪"),
)
ARGUMENTS = ("{}", '{"q": "阀门"}', '{"path": "/var/log/app.log", "lines": 20}', "", "{not json", '{"a":1}', '"text"')
PRIVATE_WORD = "TOPSECRET"
MODEL = "claude-fable-5-1"
BUDGETS = (240, 280, 340, 420, 530, 680, 980, 1_600, 4_000, 100_000)
CONFIGS = (
    *(CompressionConfig() for _ in range(6)),
    CompressionConfig(enabled=False),
    CompressionConfig(sliding_window=2),
    CompressionConfig(threshold=300, target_tokens=150),
    CompressionConfig(threshold=500, sliding_window=1),
    CompressionConfig(keep_turns=0),
    CompressionConfig(target_tokens=0),
)


class CachedCounter:
    """The real counter with a cache: the walks repeat the same texts."""

    name = "o200k_base/cached"
    exact = True

    def __init__(self) -> None:
        self.count = lru_cache(maxsize=200_000)(quire.VocabularyCounter().count)


COUNTER = CachedCounter()


class Model:
    """A model behind the strict provider. Its thinking is signed over the request that it answers."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.state = State(prefill=True, bind_reasoning=True)
        self.answers = 0

    def ask(self, view: View, api: Api) -> Body:
        """Return the request with a view in the form of an API."""
        match api:
            case "anthropic":
                return {"model": MODEL, "max_tokens": 1_000, **view.anthropic(cache=True, model=MODEL)}
            case "chat":
                return {"model": MODEL, "messages": view.openai()}
            case _:
                return {"model": MODEL, "store": False, "input": view.responses(model=MODEL), **INCLUDE}

    def answer(self, view: View, reply: Reply) -> Body:
        """Return the answer to a view."""
        self.answers += 1
        answers = anthropic_answers if self.api == "anthropic" else responses_answers
        request = Request(self.api, self.ask(view, self.api))
        answer: Body = answers.make_answer(request, reply, self.state, self.answers)
        return answer


INCLUDE = {"include": ["reasoning.encrypted_content"]}


class Walk:
    """One context on its way through states. The number determines everything.

    With `reopens`, every view is drawn by a new handle.
    """

    def __init__(self, number: int, steps: "Steps", *, storage: Storage | None = None, reopens: bool = False) -> None:
        self.chance = random.Random(number)
        self.steps = steps
        self.reopens = reopens
        self.storage = storage or MemoryStorage()
        self.budget = self.chance.choice(BUDGETS)
        self.config = self.chance.choice(CONFIGS)
        self.model = Model(self.chance.choice(("anthropic", "responses")))
        self.ctx = self.open()
        self.second = self.open() if self.chance.random() < 0.2 else None
        self.number = 0
        self.edited = False
        """Whether anything happened since the last view that may change its content."""
        self.looked = False
        """Whether a view was drawn between two states."""
        self.reserved: str | None = None
        """An index of which the page is not added yet."""
        self.long = self.chance.choice((3, 8, 20, 50))
        self.trace: list[str] = []
        if self.chance.random() < 0.8:
            self.act("prompt")

    def open(self) -> Context:
        """Return another handle on this context."""
        given: dict[str, Any] = {"budget": self.budget, "compression": self.config, "counter": COUNTER}
        ctx = quire.open(self.storage, "walk", key="fern-100", **given)
        ctx.windows.register(Todo)
        return ctx

    def step(self) -> None:
        """Do one action, or a few."""
        kinds = list(self.steps)
        talk = [what for what in kinds for _ in range(self.steps[what].often) if self.steps[what].often]
        edits = [what for what in kinds if not self.steps[what].often]
        self.act(self.chance.choice(talk if self.chance.random() < 0.75 else edits))

    def act(self, what: str) -> None:
        """Do an action by its name; what quire refuses changes nothing."""
        self.number += 1
        self.trace.append(what)
        step = self.steps[what]
        self.edited = self.edited or not step.arrives
        try:
            step.act(self)
        except quire.Conflict:
            self.ctx.refresh()
            self.edited = True
        except QuireError as error:
            self.trace[-1] += f" ({error.code})"

    def options(self) -> dict[str, Any]:
        """Return the options of the next view: mostly the defaults."""
        chance = self.chance
        if chance.random() < 0.7:
            return {}
        given: tuple[dict[str, Any], ...] = (
            {"preview": True},
            {"max_tokens": chance.choice(BUDGETS)},
            {"max_tokens": chance.choice(BUDGETS), "preview": True},
            {"reserve": chance.choice((10, self.budget // 4))},
            {"include_system_prompt": False},
            {"include_system_prompt": False, "preview": True},
            {"recall": True},
            {"recall": 0.3, "budget_line": True},
            {"include_obsolete": True},
            {"windows": "inline"},
        )
        return chance.choice(given)

    def render(self, **options: Any) -> View:
        """Draw a view, with a new handle if the walk says so."""
        if self.reopens:
            self.ctx = self.open()
        return self.ctx.render(**options)

    def answer(self, view: View) -> None:
        """Let the model answer a view: with thinking, text and calls, of which some get their results."""
        self.number += 1
        self.trace.append("answer")
        ids = [f"call_{self.number}_{n}" for n in range(self.chance.choice((0, 0, 1, 2)))]
        calls = tuple(Call(call_id, "look", {"q": self.text(2)}) for call_id in ids)
        text = "" if calls and self.chance.random() < 0.5 else self.text()
        reply = Reply(text, calls, tuple(self.text(6) for _ in range(self.chance.choice((0, 1, 1)))))
        try:
            self.ctx.add(self.model.answer(view, reply), view=view)
            for call in calls[: self.chance.randint(0, 4)]:
                self.ctx.tool_result(call.id, self.text())
        except quire.Conflict:
            self.ctx.refresh()
            self.edited = True

    # Texts and choices

    def text(self, most: int | None = None) -> str:
        """Return some words; the texts of every action have its number in them."""
        words = self.chance.choices(WORDS, k=self.chance.randint(0, most or self.long))
        return f"said ref{self.number}q " + " ".join(words)

    def content(self) -> Any:
        """Return a user's content: mostly text, sometimes parts, sometimes nothing."""
        dice = self.chance.random()
        if dice < 0.8:
            return self.text()
        if dice < 0.84:
            return self.chance.choice(("", " ", "\n", []))
        if dice < 0.86:
            return self.text() + "\ud800"  # half of a surrogate pair
        url = self.chance.choice((f"data:image/png;base64,{PNG}", "https://example.com/a.png"))
        image = {"type": "image_url", "image_url": {"url": url}}
        texts = [{"type": "text", "text": self.text(5)} for _ in range(self.chance.randint(0, 2))]
        return self.chance.choice(([*texts, image], [image, *texts], texts))

    def calls(self) -> list[ToolCall]:
        """Return some calls, sometimes with repeated ids, or with ids that some providers refuse."""
        ids = self.chance.choice((("c1", "c2", "c3"), (f"c{self.number}", f"d{self.number}", "e.1/ü")))
        names, chosen = ("search", "run_sql"), ids[: self.chance.randint(1, 3)]
        return [ToolCall(call, self.chance.choice(names), self.chance.choice(ARGUMENTS)) for call in chosen]

    def indices(self) -> list[int]:
        """Return a few message indices, mostly neighbours."""
        count = max(len(self.ctx.messages(all=True)), 1)
        first = self.chance.randrange(count)
        return list(range(first, min(count, first + self.chance.randint(1, 4))))

    def page(self, *segments: str) -> str:
        """Return a page of one of the segments, if possible an existing one."""
        segment = self.chance.choice(segments or ("usr",))
        pages = [page.index for page in self.ctx.pages.list_pages(segment)]
        return self.chance.choice(pages[1:]) if len(pages) > 1 else f"{segment}-1"


class Step:
    """An action: how often it is chosen among messages (0: an edit), and whether a view only grows by it."""

    def __init__(self, act: Callable[[Walk], object], often: int = 0, arrives: bool = False) -> None:
        self.act, self.often, self.arrives = act, often, arrives


Steps = Mapping[str, Step]
