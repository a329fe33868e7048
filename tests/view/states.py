"""States of a context for the laws of views: random walks of messages and edits, each replayable from its number.

A walk is one context in memory with a budget, a configuration and sometimes a second handle. `step` does one action of
a user, a model or a developer, which may be refused. A walk also records facts that a law needs: whether anything but a
new message happened since the last view, and the pages that the developer put away.
"""

import json
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import quire
from quire import (
    CompressionConfig,
    Context,
    DetailPage,
    MemoryStorage,
    Message,
    Permission,
    QuireError,
    Segment,
    ToolCall,
)
from tests.view.counting import COUNTER

Values = dict[str, Any]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WORDS = (
    *("pump", "阀门", "tank", "HAT136", "2024-05-20", "/var/log/app.log", "$201", "返回", "the", "a", "of", "\n"),
    *("ValueError", "🙂", "👩‍👩‍👧", "user_81", "refund", "数据库连接失败。", "QUJDREVGR0hJSktMTU5P", "<|endoftext|>"),
    *("<|im_start|>", "[amber-123] Folded earlier:", "[usr-1 12] x: y", "[no result]", "  ", "\t", "…", "é", "e\u0301"),
    *("\x00", "\u2028", "don't", "=====", "1234567", '{"a": [1]}', "</Window>", "שלום", "हिन्दी", "🇩🇪"),
)
ARGUMENTS = ("{}", '{"q": "阀门"}', '{"path": "/var/log/app.log", "lines": 20}', "", "{not json", '{"a":1}', '"text"')
SURROGATE = "\ud800"
PRIVATE_WORD = "TOPSECRET"
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


class Walk:
    """One context on its way through states. The number determines everything."""

    def __init__(self, number: int) -> None:
        self.chance = random.Random(number)
        self.storage = MemoryStorage()
        self.budget = self.chance.choice(BUDGETS)
        self.config = self.chance.choice(CONFIGS)
        self.ctx = self.open()
        self.second = self.open() if self.chance.random() < 0.2 else None
        self.number = 0
        self.edited = False
        """Whether anything happened since the last view that may change its content."""
        self.looked = False
        """Whether a view was drawn between two states."""
        self.put_away: set[str] = set()
        """The pages that the developer hid, archived or put into a folder."""
        self.reserved: str | None = None
        """An index of which the page is not added yet."""
        self.long = self.chance.choice((3, 8, 20, 50))
        self.trace: list[str] = []
        if self.chance.random() < 0.8:
            self._do("prompt")

    def open(self) -> Context:
        """Return another handle on this context."""
        given: Values = {"budget": self.budget, "compression": self.config, "counter": COUNTER, "key": "fern-100"}
        return quire.open(self.storage, "walk", **given)

    def step(self) -> None:
        """Do one action, or a few."""
        self._do(self.chance.choice(self.chance.choice((TALK, TALK, TALK, EDITS))))

    def options(self) -> Values:
        """Return the options of the next view: mostly the defaults."""
        chance = self.chance
        if chance.random() < 0.7:
            return {}
        return chance.choice(
            (
                {"preview": True},
                {"max_tokens": chance.choice(BUDGETS)},
                {"max_tokens": chance.choice(BUDGETS), "preview": True},
                {"reserve": chance.choice((10, self.budget // 4))},
                {"include_system_prompt": False},
                {"include_system_prompt": False, "preview": True},
            )
        )

    def _do(self, what: str) -> None:
        self.number += 1
        self.trace.append(what)
        act, arrives = STEPS[what]
        self.edited = self.edited or not arrives
        try:
            act(self)
        except quire.Conflict:
            self.ctx.refresh()
            self.edited = True
        except QuireError as error:
            self.trace[-1] += f" ({error.code})"

    # Texts

    def text(self, most: int | None = None) -> str:
        """Return some words; every text has its own number in it."""
        words = self.chance.choices(WORDS, k=self.chance.randint(0, most or self.long))
        return f"said {self.number} " + " ".join(words)

    def content(self) -> Any:
        """Return a user's content: mostly text, sometimes parts, sometimes nothing."""
        dice = self.chance.random()
        if dice < 0.8:
            return self.text()
        if dice < 0.84:
            return self.chance.choice(("", " ", "\n", []))
        if dice < 0.86:
            return self.text() + SURROGATE
        url = self.chance.choice((f"data:image/png;base64,{PNG}", "https://example.com/a.png"))
        image = {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
        texts = [{"type": "text", "text": self.text(5)} for _ in range(self.chance.randint(0, 2))]
        return self.chance.choice(([*texts, image], [image, *texts], texts))

    def calls(self) -> list[ToolCall]:
        """Return some calls, sometimes with repeated ids, or with ids that some providers refuse."""
        ids = self.chance.choice((("c1", "c2", "c3"), (f"c{self.number}", f"d{self.number}", "e.1/ü")))
        chosen = ids[: self.chance.randint(1, 3)]
        return [ToolCall(call, self.chance.choice(("search", "run_sql")), self._arguments()) for call in chosen]

    def _arguments(self) -> str:
        return self.chance.choice(ARGUMENTS)

    # Choices

    def indices(self) -> list[int]:
        """Return a few message indices, mostly neighbours."""
        count = max(len(self.ctx.messages(all=True)), 1)
        first = self.chance.randrange(count)
        return list(range(first, min(count, first + self.chance.randint(1, 4))))

    def page(self, segment: str = "usr") -> str:
        """Return a page of a segment, if possible an existing one."""
        pages = [page.index for page in self.ctx.pages.list_pages(segment)]
        return self.chance.choice(pages[1:]) if len(pages) > 1 else f"{segment}-1"

    def away(self, *indices: str) -> None:
        """Record that the developer puts these pages away."""
        self.put_away.update(indices)


def _prompt(walk: Walk) -> None:
    walk.ctx.system(walk.text(10), name=walk.chance.choice((None, None, None, "rules")))


def _assistant(walk: Walk) -> None:
    walk.ctx.assistant(walk.text())


def _calls(walk: Walk) -> None:
    walk.ctx.assistant(walk.chance.choice((None, "", walk.text(5))), tool_calls=walk.calls())


def _exchange(walk: Walk) -> None:
    """Add calls with all their results, in any order, before the next view."""
    _calls(walk)
    waiting = walk.ctx.pending_calls()
    for call in walk.chance.sample(waiting, len(waiting)):
        walk.ctx.tool_result(call.id, walk.chance.choice((walk.text(), walk.text(3 * walk.long), "", {"found": 1})))


def _result(walk: Walk) -> None:
    waiting = walk.ctx.pending_calls()
    known = [call.id for call in waiting] or ["c1", "c2", "c3"]
    walk.edited = walk.edited or not waiting  # a late result changes the middle of the view
    walk.ctx.tool_result(walk.chance.choice(known), walk.chance.choice((walk.text(), "", "rain")))


def _late_system(walk: Walk) -> None:
    if any(message.role != "system" for message in walk.ctx.messages()):  # otherwise it is one more prompt
        walk.ctx.add({"role": "system", "content": walk.text(8)})


def _named(walk: Walk) -> None:
    walk.ctx.add({"role": "user", "name": walk.chance.choice(("ada", "张伟")), "content": walk.text()})


def _thinking(walk: Walk) -> None:
    """Add a turn in Anthropic's form: thinking, text, a call and its result with text after it."""
    call = f"toolu_{walk.number}"
    blocks: list[Values] = [
        {"type": "thinking", "thinking": walk.text(6), "signature": "c2ln"},
        {"type": "text", "text": walk.text(6)},
        {"type": "tool_use", "id": call, "name": "look", "input": {"q": walk.text(2)}},
    ]
    chosen = blocks[walk.chance.choice((0, 0, 1, 2)) :]
    walk.ctx.add({"role": "assistant", "content": chosen[: walk.chance.randint(1, 3)]})
    if any(block["type"] == "tool_use" for block in chosen) and walk.ctx.pending_calls():
        result = {"type": "tool_result", "tool_use_id": call, "content": walk.text()}
        words = [{"type": "text", "text": walk.text(5)}] if walk.chance.random() < 0.5 else []
        walk.ctx.add({"role": "user", "content": [result, *words]})


def _responses(walk: Walk) -> None:
    """Add items of the Responses API: reasoning, a message, a call and its output."""
    call = f"call_{walk.number}"
    items: list[Values] = [
        {"type": "reasoning", "id": f"rs_{walk.number}", "summary": [{"type": "summary_text", "text": walk.text(4)}]},
        {"role": "assistant", "content": walk.text(6)},
        {"type": "function_call", "call_id": call, "name": "look", "arguments": walk._arguments()},
        {"type": "function_call_output", "call_id": call, "output": walk.text()},
    ]
    walk.ctx.add(walk.chance.choice((items, items[1:], items[2:], items[:2], items[:3])))


def _import(walk: Walk) -> None:
    """Import a broken history: orphans, duplicates, missing ids."""
    function = {"name": "f", "arguments": "{}"}
    called = [{"id": i, "type": "function", "function": function} for i in walk.chance.choices(("x", "y", "x"), k=2)]
    broken: list[Values] = [
        {"role": "tool", "tool_call_id": "nobody", "content": "orphan"},
        {"role": "user", "content": walk.text()},
        {"role": "assistant", "content": None, "tool_calls": called},
        {"role": "tool", "tool_call_id": "x", "content": "found"},
        {"role": "tool", "tool_call_id": "x", "content": "found again"},
        {"role": "assistant", "content": ""},
        {"role": "system", "content": walk.text(4)},
    ]
    walk.ctx.import_messages(walk.chance.sample(broken, walk.chance.randint(1, len(broken))))
    _misplaced(walk)


def _misplaced(walk: Walk) -> None:
    """Import blocks that are not of their role, or add them as earlier versions stored them.

    The choice depends on the number of the step, so that the other steps of a walk stay the same.
    """
    use = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "nobody", "content": "found"}
    thinking = {"type": "thinking", "thinking": "Well", "signature": "c2ln"}
    said = {"type": "text", "text": f"said {walk.number}"}
    runs: list[list[Values]] = [
        [{"role": "user", "content": [said, use]}],
        [{"role": "user", "content": [thinking, said]}],
        [{"role": "assistant", "content": [said, answer]}],
        [{"role": "user", "content": [said, {"type": "image_url"}]}],
        [{"role": "assistant", "function_call": {"name": "look", "arguments": "{}"}}],
    ]
    run = runs[walk.number % len(runs)]
    if walk.number % 2 or "function_call" in run[0]:
        walk.ctx.import_messages(run)
        return
    content = [
        block if block is said else {"type": "other", "kind": block["type"], "part": json.dumps(block)}
        for block in run[0]["content"]
    ]
    walk.ctx.conversation._add_parsed([Message(role=run[0]["role"], content=content, origin="anthropic")])


def _insert(walk: Walk) -> None:
    role = walk.chance.choice(("user", "assistant", "system"))
    walk.ctx.conversation.insert({"role": role, "content": walk.text()}, at=walk.indices()[0])


def _replace(walk: Walk) -> None:
    role = walk.chance.choice(("user", "assistant"))
    walk.ctx.conversation.replace(walk.indices()[:1], {"role": role, "content": walk.text()})


def _batch(walk: Walk) -> None:
    walk.ctx.conversation.batch_start(walk.chance.choice((None, walk.indices()[0])))
    for _ in range(walk.chance.randint(0, 3)):
        walk._do(walk.chance.choice((*TALK, *RECORD)))


def _temporary(walk: Walk) -> None:
    with walk.ctx.temporary():
        for _ in range(walk.chance.randint(1, 3)):
            walk._do(walk.chance.choice((*TALK, *RECORD)))
        walk.looked = True
        with suppress(quire.IrreducibleFloor):
            view = walk.ctx.render()
            assert view.tokens <= view.budget


def _hide(walk: Walk) -> None:
    index = walk.page(walk.chance.choice(("usr", "usr", "mem", "sys")))
    walk.away(index)
    walk.ctx.pages.hide(index)


def _archive(walk: Walk) -> None:
    index = walk.page(walk.chance.choice(("usr", "usr", "mem")))
    walk.away(index)
    walk.ctx.pages.archive(index, cold=walk.chance.random() < 0.5)


def _move(walk: Walk) -> None:
    """Move within the conversation, into one of its folders, or into the notes."""
    target = walk.chance.choice(("usr-0", "usr-0", walk.page(), "mem-0"))
    before = walk.chance.choice((None, walk.page()))
    moved = walk.ctx.pages.move_page(walk.page(), target, before)
    walk.away(*(new for old, new in moved.items() if old in walk.put_away))


def _gather(walk: Walk) -> None:
    pages = sorted({walk.page() for _ in range(3)})
    folder = walk.ctx.pages.create_contents_page("Part", walk.text(4), "usr-0", pages)
    if walk.chance.random() < 0.5:
        walk.away(folder)
        walk.ctx.pages.hide(folder)


def _note(walk: Walk) -> None:
    parent = walk.chance.choice(("mem-0", "mem-0", "mem-0", walk.page("mem"), "win-0", "usr-0"))
    pinned = walk.chance.random() < 0.1
    walk.ctx.pages.create_detail_page("note", walk.text(4), walk.text(), parent, pinned=pinned)


def _reserve(walk: Walk) -> None:
    """Reserve an index, or add the page of an index that was reserved before."""
    if walk.reserved is None:
        walk.reserved = walk.ctx.pages.generate_index("mem")
        return
    index, walk.reserved = walk.reserved, None
    walk.ctx.pages.add_page(DetailPage(index=index, name="reserved", parent="mem-0"), walk.text())


def _agent(walk: Walk) -> None:
    """Change a page as an agent, sometimes with the developer's name."""
    name = walk.chance.choice((walk.ctx.pages.actor, "agent"))
    page = walk.page(walk.chance.choice(("usr", "mem")))
    walk.ctx.as_agent(name).update_page(page, description=walk.text(4))


def _private(walk: Walk) -> None:
    with suppress(QuireError):
        walk.ctx.pages.add_segment(Segment(id="own", name=PRIVATE_WORD, permission=Permission.PRIVATE))
    walk.ctx.pages.create_detail_page(PRIVATE_WORD, PRIVATE_WORD, f"{PRIVATE_WORD} {walk.text()}", "own-0")


def _capacity(walk: Walk) -> None:
    segment = walk.chance.choice(("mem", "mem", "usr"))
    walk.ctx.pages.update_segment(segment, max_capacity=walk.chance.choice((0, 20, 60, 200)))


def _unfold(walk: Walk) -> None:
    folds = [entry.seq for entry in walk.ctx.history(operation="fold")]
    if folds:
        walk.ctx.undo(walk.chance.choice((folds[-1], walk.chance.choice(folds))))


def _other_handle(walk: Walk) -> None:
    """Write or fold with the other handle. This one is refreshed now, or when it is refused."""
    if walk.second is None:
        return
    walk.second.refresh()
    first, walk.ctx = walk.ctx, walk.second
    try:
        walk._do(walk.chance.choice((*TALK, *EDITS)))
        with suppress(quire.IrreducibleFloor):
            walk.ctx.render()
    finally:
        walk.ctx = first
    if walk.chance.random() < 0.7:
        walk.ctx.refresh()


STEPS: dict[str, tuple[Callable[[Walk], object], bool]] = {
    "user": (lambda walk: walk.ctx.user(walk.content()), True),
    "assistant": (_assistant, True),
    "calls": (_calls, True),
    "exchange": (_exchange, True),
    "result": (_result, True),
    "late system": (_late_system, True),
    "named": (_named, True),
    "thinking": (_thinking, True),
    "responses": (_responses, False),  # an item may continue an existing message
    "import": (_import, False),
    "prompt": (_prompt, False),
    "close": (lambda walk: walk.ctx.close_calls(), True),
    "insert": (_insert, False),
    "delete": (lambda walk: walk.ctx.conversation.delete(walk.indices()), False),
    "replace": (_replace, False),
    "compress": (lambda walk: walk.ctx.conversation.compress(walk.indices()), False),
    "batch": (_batch, False),
    "end batch": (lambda walk: walk.ctx.conversation.batch_end(0), False),
    "commit batch": (lambda walk: walk.ctx.conversation.batch_commit(), False),
    "temporary": (_temporary, False),
    "undo": (lambda walk: walk.ctx.undo(walk.chance.randint(max(1, walk.ctx.seq - 12), walk.ctx.seq)), False),
    "unfold": (_unfold, False),
    "rollback": (lambda walk: walk.ctx.rollback(max(1, walk.ctx.seq - walk.chance.randint(0, 6))), False),
    "hide": (_hide, False),
    "expand": (lambda walk: walk.ctx.pages.expand(walk.page(walk.chance.choice(("usr", "usr", "mem")))), False),
    "archive": (_archive, False),
    "restore": (lambda walk: walk.ctx.pages.restore(walk.page()), False),
    "recall": (lambda walk: walk.ctx.pages.recall(walk.page()), False),
    "pin": (lambda walk: walk.ctx.pages.pin(walk.page()), False),
    "unpin": (lambda walk: walk.ctx.pages.unpin(walk.page(walk.chance.choice(("usr", "usr", "sys")))), False),
    "move": (_move, False),
    "gather": (_gather, False),
    "note": (_note, False),
    "set detail": (lambda walk: walk.ctx.pages.set_detail(walk.page("mem"), walk.text()), False),
    "remove": (lambda walk: walk.ctx.pages.remove_page(walk.page(walk.chance.choice(("usr", "mem")))), False),
    "reserve": (_reserve, False),
    "agent": (_agent, False),
    "private": (_private, False),
    "capacity": (_capacity, False),
    "cleanup": (lambda walk: walk.ctx.conversation.cleanup(), False),
    "other handle": (_other_handle, False),
}
TALK = (
    *("user", "user", "user", "assistant", "assistant", "exchange", "exchange", "calls", "result", "result"),
    *("late system", "named", "thinking", "responses", "import", "close"),
)
RECORD = ("insert", "delete", "replace", "compress", "undo")
EDITS = tuple(what for what in STEPS if what not in TALK) + RECORD
