"""Context: one agent's book, opened by URL, path or storage."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property, partial
from os import urandom
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypedDict

from msgspec.structs import replace

from quire.conversation import Conversation, ImportReport, Item, Messages
from quire.core.plan import Plan
from quire.core.records import KEY
from quire.errors import Conflict, InvalidOperation, InvalidValue, QuireError, short_repr
from quire.model.messages import ToolCall
from quire.model.pages import PageIndex, Permission, Segment, SegmentType
from quire.model.text import one_line
from quire.model.tokens import TokenCounter
from quire.storage.base import Durability, Storage, no_such_context
from quire.storage.urls import storage_at
from quire.system import ContextSystem, Entry, Problem
from quire.system.rules import check_bool, check_whole_number
from quire.system.segments import add_segment
from quire.view.billing_factor import Usage
from quire.view.explain import Stats, Why
from quire.view.options import DEFAULT_BUDGET, CompressionConfig, RenderOptions
from quire.view.parts import Folded
from quire.view.preamble import derived_key
from quire.view.view import View
from quire.view.view_facade import Drawing

if TYPE_CHECKING:  # what not every program uses is imported when it is first used
    from quire.agent import AgentContext, Quota
    from quire.agent.tools import Tools
    from quire.search.find import Hit
    from quire.search.vectors import Embedder
    from quire.view.summariser import Summarising
    from quire.view.tail import Volatile
    from quire.windows.windows import WindowCalls, Windows

DEFAULT_SEGMENTS: tuple[Segment, ...] = (
    Segment(
        id="sys",
        name="System",
        description="The system prompt",
        type=SegmentType.SYSTEM,
        permission=Permission.READ_ONLY,
    ),
    Segment(id="mem", name="Memory", description="The agent's own notes", type=SegmentType.CUSTOM),
    Segment(id="usr", name="Conversation", description="The conversation", type=SegmentType.USER),
    Segment(id="win", name="Windows", description="Live windows", type=SegmentType.TOOL),
)


class Context:
    """One agent's book. Use `quire.open`; close it or use it in a `with` block.

    `pages` is the developer's face: every operation on pages and segments, without permission checks.
    `conversation` is the message face; its everyday operations are here too. `agent` is the agent's face, the same
    operations behind permissions, and `tools` makes them tools for a model. `windows` are live windows of apps.
    """

    def __init__(
        self,
        pages: ContextSystem,
        *,
        budget: int = DEFAULT_BUDGET,
        compression: CompressionConfig | None = None,
        preamble: str | None = None,
        owned: Storage | None = None,
    ) -> None:
        self.pages = pages
        self.conversation = Conversation(pages._engine, pages.actor)
        self._drawing = Drawing(pages._engine, pages.actor, compression, self._pieces, preamble)
        self._drawing.budget = check_whole_number(budget, "budget")
        self._owned = owned

    def __repr__(self) -> str:
        return f"<Context {self.pages!r}, budget {self.budget:,}>"

    @property
    def budget(self) -> int:
        """The tokens of a view. The views, the agents and the tools of this context share it."""
        return self._drawing.budget

    @budget.setter
    def budget(self, budget: int) -> None:
        self._drawing.budget = budget

    @property
    def name(self) -> str:
        """The name of this context in its storage."""
        return self.pages.context

    @property
    def seq(self) -> int:
        """The seq of the last journal entry."""
        return self.pages.seq

    def find(self, /, query: str, limit: int = 10, **filters: Any) -> "list[Hit]":
        """The pages that answer a query, archived ones too, best first. The filters are those of `pages.find`."""
        return self.pages.find(query, limit, **filters)

    # The other faces

    @cached_property
    def windows(self) -> "Windows":
        """Live windows of apps. Those that an earlier run left open show again once their apps are registered here."""
        from quire.windows.windows import Windows

        return Windows(self.pages._engine, self.pages.actor)

    @cached_property
    def agent(self) -> "AgentContext":
        """The agent's face: what it may see and do here."""
        return self.acting()

    @cached_property
    def tools(self) -> "Tools":
        """The tools of the agent, for a model."""
        return self.tools_of(self.agent)

    def acting(self, actor: str = "agent", *, manage: bool = False, quota: "Quota | None" = None) -> "AgentContext":
        """The face of an agent under its own name: what it may see and do here.

        `manage` lets it add, remove and open up whole segments; `quota` bounds what it may add.
        """
        from quire.agent import AgentContext

        return AgentContext(self.pages, actor, manage, quota=quota, views=self._drawing)

    def tools_of(self, agent: "AgentContext", *, beside: bool = False) -> "Tools":
        """The tools of an agent: `tools` are those of `agent`.

        `beside` is for a model whose own talk is not the one of this context, such as that of an MCP client: it finds
        the user's last message too, and what it writes is shown to the model that talks here.
        """
        from quire.agent.agent import Desk
        from quire.agent.tools import Tools

        return Tools(Desk(agent, partial(self._windows_of, agent), beside=beside))

    def _pieces(self, options: RenderOptions) -> "Sequence[Volatile]":
        """What stands in the tail of a view: windows, as soon as anybody has asked for them."""
        used = "windows" in self.__dict__ or options.include_obsolete
        return self.windows.pieces(options) if used else ()

    def _windows_of(self, agent: "AgentContext") -> "WindowCalls | None":
        """The windows as an agent may use them; None if it sees no place for them, or there is no app."""
        if not self.windows.apps():
            return None
        try:
            agent.check_permission(self.windows.place(), "get_page")
        except QuireError:
            return None
        from quire.agent.gate import charge
        from quire.windows.windows import WindowCalls

        windows = self.windows.acting_as(agent.actor, charge=partial(charge, quota=agent.quota))
        return WindowCalls(windows, lambda index: agent.check_permission(index, "window"))

    # Messages

    def system(self, text: str, name: str | None = None) -> int:
        """Set the system prompt, or a further one by its name; its message index. The same text changes nothing."""
        return self.conversation.system(text, name)

    def user(self, content: Any) -> int:
        """Add a user message: text, or a list of parts in any provider's shape; its message index."""
        return self.conversation.user(content)

    def assistant(self, content: Any = None, tool_calls: Iterable[Any] | None = None) -> int:
        """Add an assistant message, perhaps with tool calls; its message index."""
        return self.conversation.assistant(content, tool_calls)

    def tool_result(self, call_id: str, content: Any) -> int:
        """Add the result of a tool call, early or late; its message index."""
        return self.conversation.tool_result(call_id, content)

    def add(self, message: Any) -> int:
        """Add a message, several, or a whole response in any provider's shape; the index of the last."""
        return self.conversation.add(message)

    def messages(self, all: bool = False) -> Messages:  # noqa: A002 - the word the contract has
        """The messages in the conversation in the order they stand; with `all` every one by index, marked ones too."""
        return self.conversation.messages(all)

    def items(self, active: bool = False) -> Iterator[Item]:
        """Prompts, exchanges and summaries by seq; with `active` only those that no edit took out. Streams."""
        return self.conversation.items(active)

    def import_messages(
        self, messages: Iterable[Any], *, progress: Callable[[ImportReport], None] | None = None
    ) -> ImportReport:
        """Take in a whole history, also a broken one; what was taken in, and what was wrong with it."""
        return self.conversation.import_messages(messages, progress=progress)

    def pending_calls(self) -> list[ToolCall]:
        """The calls of the newest exchange that have no result yet."""
        return self.conversation.pending_calls()

    def close_calls(self) -> list[ToolCall]:
        """Give up waiting for the results of the newest exchange; the calls that had none."""
        return self.conversation.close_calls()

    def temporary(self) -> AbstractContextManager[None]:
        """A block whose messages and edits are gone when it ends, however it ends."""
        return self.conversation.temporary()

    # The view

    def render(self, /, options: RenderOptions | None = None, **changes: Any) -> View:
        """What the model is to see: never above the budget, always legal, the same bytes for the same state.

        Options are those of `RenderOptions`, as one or by name. At the context's own budget it may first commit one
        fold; as a `preview` or with another `max_tokens` it writes nothing. Raises `IrreducibleFloor` if what must be
        shown does not fit.
        """
        return self._drawing.render(options, changes)

    def why(self, index: PageIndex, view: View | None = None) -> Why:
        """Why a page is shown as it is, or not at all, and the call that would bring it in.

        It is about the last view at the context's own budget, or what it would be if anything changed since; or about
        the `view` that is given.
        """
        return self._drawing.why(index, view)

    def stats(self) -> Stats:
        """How many items there are, what they cost, and what each segment holds."""
        return self._drawing.stats()

    def report_usage(
        self, usage: object, model: str | None = None, *, tools: int = 0, view: View | None = None
    ) -> Usage:
        """Learn from an answer's usage, or from the whole answer, what its model bills for what is counted here.

        It is compared with the last view at the context's own budget, or with the `view` that was sent, and the tokens
        of the `tools` sent beside it (`count_tools`); `reserve` is no part of it. One factor for each model is kept in
        the context, shown by `stats()` and followed by `render(model=…)`. Raises `InvalidValue`.
        """
        return self._drawing.report_usage(usage, model, tools, view)

    def dump(self) -> str:
        """One line for every item: whether it counts, its seq, its type and the beginning of what it says."""
        return self._drawing.dump()

    def on_fold(self, listener: Callable[[Folded], None]) -> Callable[[], None]:
        """Have a function called after every fold; what is returned ends that."""
        return self._drawing.on_fold(listener)

    @property
    def summarising(self) -> "Summarising | None":
        """What the summariser of `CompressionConfig` is at: its errors, and `wait`; None if there is none."""
        return self._drawing.summarising

    # History

    def history(
        self,
        after: int = 0,
        *,
        actor: str | None = None,
        operation: str | None = None,
        page: PageIndex | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Entry]:
        """The journal entries above `after` (and below `before`) that pass every filter, oldest first. Streams.

        `reverse` gives the newest first.
        """
        return self.pages.history(
            after,
            actor=actor,
            operation=operation,
            page=page,
            since=since,
            until=until,
            before=before,
            reverse=reverse,
        )

    def audit(self, /, path: str | os.PathLike[str], **filters: Any) -> int:
        """Write the journal to a file as JSON Lines; how many entries. The filters are those of `history`."""
        return self.pages.audit(path, **filters)

    def undo(self, entry: Entry | int) -> int:
        """Undo one operation and keep all that came after; the seq of the new entry."""
        return self.pages.undo(entry)

    def checkpoint(self, name: str) -> int:
        """Name the state of the context, to come back to with `rollback(name)`; its seq."""
        return self.pages.checkpoint(name)

    def rollback(self, to: str | int | Entry) -> int:
        """Bring the whole context back to a checkpoint or an entry, in one commit that can be undone; its seq."""
        return self.pages.rollback(to)

    def fork(self, new_name: str, at: str | int | Entry | None = None) -> "Context":
        """Make another context of this one, as it is or as it was at a checkpoint or an entry, and open it.

        Bodies are shared, both go their own ways, and each survives the other. It shares this one's connection.
        """
        self.pages.fork(new_name, at)
        drawing = self._drawing
        pages = ContextSystem(actor=self.pages.actor, _engine=self.pages._engine.open_context(new_name))
        fork = Context(pages, budget=self.budget, compression=drawing.config, preamble=drawing.preamble)
        if "windows" in self.__dict__:
            self.windows.share(fork.windows)
        return fork

    def as_of(self, to: str | int | Entry) -> "Context":
        """This context as a rollback to a checkpoint or an entry would leave it, to look at: nothing is written.

        It is kept in memory over the same storage, and whatever is done to it reaches nobody.
        """
        drawing = self._drawing
        config = replace(drawing.config, cache_seconds=None)  # how long ago that is folds nothing that stood there then
        past = Context(self.pages.as_of(to), budget=self.budget, compression=config, preamble=drawing.preamble)
        if "windows" in self.__dict__:
            self.windows.share(past.windows)
        return past

    # Housekeeping

    def refresh(self) -> bool:
        """Take over what other writers committed; whether there was anything. `NoSuchContext` if it was deleted."""
        return self.pages.refresh()

    def check(self) -> list[Problem]:
        """Everything that is wrong with this context; an empty list when nothing is."""
        return self.pages.check()

    def close(self) -> None:
        """Release the storage, if this context opened it. Nothing is lost by not closing."""
        if self._drawing.summarising is not None:
            self._drawing.summarising.close()
        if "windows" in self.__dict__:
            self.windows.rest()
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open(  # noqa: A001 - quire.open is the name users expect
    where: str | os.PathLike[str] | Storage,
    context: str = "default",
    *,
    budget: int = DEFAULT_BUDGET,
    durability: Durability = "normal",
    counter: TokenCounter | None = None,
    compression: CompressionConfig | None = None,
    segments: Sequence[Segment] | None = None,
    key: str | None = None,
    preamble: str | None = None,
    embedder: "Embedder | None" = None,
    create: bool = True,
) -> Context:
    """Open a context, creating it with its segments if it is new.

    `where` is `memory:`, `file:DIR`, `sqlite:FILE`, a path (SQLite), or a storage object, which stays the caller's to
    close. `compression` says when the conversation folds, `preamble` tells the model in other words how to read its
    view (`{key}` in it stands for the context's key; "" for no word at all). `segments` replaces the usual four at
    creation, `key` the random word by which a model tells lines of ours from look-alikes.
    `embedder` makes vectors of texts, so that pages are also found and recalled by what they mean (`quire.embedders`).
    With `create=False` nothing is made: a context that is not there is `NoSuchContext`, a store `StorageFailure`.
    """
    setup = Setup(
        budget=budget,
        counter=counter,
        compression=compression,
        segments=segments,
        key=key,
        preamble=preamble,
        embedder=embedder,
    )
    storage, owns = storage_at(where, durability=durability, create=check_bool(create, "create"))
    try:
        return open_in(storage, context, setup, storage if owns else None, create=create)
    except BaseException:
        if owns:
            storage.close()
        raise


class Options(TypedDict, total=False):
    """What can be said when a context is opened, by name: see `open`."""

    budget: int
    counter: TokenCounter | None
    compression: CompressionConfig | None
    segments: Sequence[Segment] | None
    key: str | None
    preamble: str | None
    embedder: "Embedder | None"


class Setup(NamedTuple):
    """`Options` with what holds where nothing is said."""

    budget: int = DEFAULT_BUDGET
    counter: TokenCounter | None = None
    compression: CompressionConfig | None = None
    segments: Sequence[Segment] | None = None
    key: str | None = None
    preamble: str | None = None
    embedder: "Embedder | None" = None


def setup_of(options: Options) -> Setup:
    """What is said with what holds else. Raises `TypeError` for an option that there is not, as `open` does."""
    unknown = [name for name in options if name not in Setup._fields]
    if unknown:
        raise TypeError(f"There is no option {short_repr(min(unknown))}; options are {', '.join(Setup._fields)}.")
    return Setup(**options)


def open_in(
    storage: Storage,
    context: str,
    setup: Setup,
    owned: Storage | None = None,
    *,
    create: bool = True,
    anew: bool = False,
) -> Context:
    """Open a context in an open storage; one that is new is made, or else `NoSuchContext`.

    With `anew` it must not exist yet, else `InvalidOperation`.
    """
    key = derived_key(urandom(8)) if setup.key is None else one_line(setup.key, "key", 32, empty=False)
    system = ContextSystem(storage, context, counter=setup.counter, embedder=setup.embedder)
    opened = Context(system, budget=setup.budget, compression=setup.compression, preamble=setup.preamble, owned=owned)
    if create and opened.seq == 0:
        try:
            segments = DEFAULT_SEGMENTS if setup.segments is None else setup.segments
            system._engine.run(system.actor, "create", _create, segments, key)
        except Conflict:  # someone else created it a moment ago: theirs is as good
            if anew:
                raise _taken(context) from None
            opened.refresh()
            if opened.seq == 0:  # and deleted it again
                raise
    elif opened.seq == 0:
        raise no_such_context(storage, context)
    elif anew:
        raise _taken(context)
    return opened


def _taken(context: str) -> InvalidOperation:
    return InvalidOperation(f"Context {context!r} exists already; open() opens it.")


def _create(plan: Plan, segments: Sequence[Segment], key: str) -> None:
    if not isinstance(segments, list | tuple):
        raise InvalidValue(f"segments is {short_repr(segments)}; a list of quire.Segment is needed.")
    for segment in segments:
        add_segment(plan, segment)
    plan.put_note(KEY, name=key)
