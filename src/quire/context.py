"""Context: the pages, the conversation and the views of one agent session. `quire.open` opens it."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, cast

from msgspec.structs import replace

from quire.conversation import Conversation, ImportReport, Item, Messages, Modification
from quire.errors import InvalidValue, names_options
from quire.model.messages import Message, Provider, ToolCall
from quire.model.pages import PageIndex
from quire.storage.base import Storage
from quire.storage.urls import close_storage
from quire.system import ContextSystem, Entry, Problem
from quire.system.rules import check_bool
from quire.system.tree import write_document, write_page
from quire.view.cost import Usage
from quire.view.explain import Stats, Why
from quire.view.facade import ViewFacade
from quire.view.options import CompressionConfig, RenderFields, RenderOptions
from quire.view.parts import FoldResult
from quire.view.view import View

if TYPE_CHECKING:  # imported when first used: not every program needs them
    from typing import Unpack

    from quire.agent import AgentContext, Quota
    from quire.agent.tools import Tools
    from quire.conversation.turn import TurnState
    from quire.search.find import FindFilters, Hit
    from quire.system.journal import HistoryFilters
    from quire.view.fold.summary_worker import SummaryWorker
    from quire.view.sent import LastSent
    from quire.view.tail import TailPiece
    from quire.windows.windows import Windows


@names_options
class Context:
    """One agent's context. `quire.open` returns it; close it, or use it in a `with` block.

    | attribute      | holds                                                                              |
    |----------------|------------------------------------------------------------------------------------|
    | `pages`        | every operation on pages and segments, without permission checks                   |
    | `conversation` | the messages and their edits; the most used operations are methods of this class too |
    | `agent`        | the operations of an agent, with permission checks                                 |
    | `tools`        | the operations of the agent as tools for a model                                   |
    | `windows`      | live windows of apps                                                               |
    """

    def __init__(
        self,
        pages: ContextSystem,
        *,
        budget: int | None = None,
        compression: CompressionConfig | None = None,
        preamble: str | None = None,
        owned_storage: Storage | None = None,
    ) -> None:
        self.pages = pages
        self._views = ViewFacade(pages._engine, pages.actor, compression, self._pieces, preamble)
        self.conversation = Conversation(pages._engine, pages.actor, self._views.answer)
        if budget is not None:
            self._views.budget = budget
        self._owned_storage = owned_storage

    def __repr__(self) -> str:
        return f"<Context {self.pages!r}, budget {self.budget:,}>"

    @property
    def budget(self) -> int:
        """The most tokens of a view, for all handles of this context. A new value is stored with the next write."""
        return self._views.budget

    @budget.setter
    def budget(self, budget: int) -> None:
        self._views.budget = budget

    @property
    def name(self) -> str:
        """The name of this context in its storage."""
        return self.pages.context

    @property
    def seq(self) -> int:
        """The seq of the last journal entry."""
        return self.pages.seq

    # Pages: short forms of the most used operations of `pages`

    def write(self, name: str, text: str, folder: PageIndex = "mem", summary: str = "") -> PageIndex:
        """Write a page by name: replace the text of the page of this name in a folder, or add one. Return its index.

        `folder` is a page index or the id of a segment. The same text and summary again change nothing. The names in
        the folder are compared one by one; use `pages.create_detail_page` for thousands of pages in one folder.
        """
        return self.pages._engine.run(self.pages.actor, "write", write_page, name, text, folder, summary)

    def document(self, name: str, text: str, pinned: bool = False, *, summary: str = "") -> PageIndex:
        """Write a document that the model reads and cannot change. Return its index.

        It is a page of the READ_ONLY segment `docs`, which the first document creates. The same name again replaces the
        text. A `pinned` document is always shown in full.
        """
        check_bool(pinned, "pinned")
        run = self.pages._engine.run
        return run(self.pages.actor, "document", write_document, name, text, summary, pinned=pinned)

    def find(self, /, query: str, limit: int = 10, **filters: "Unpack[FindFilters]") -> "list[Hit]":
        """Return the pages that match a query, best first, archived ones too. See `pages.find` for the filters."""
        return self.pages.find(query, limit, **filters)

    def pin(self, index: PageIndex) -> None:
        """Always show a page in full, until `unpin`."""
        self.pages.pin(index)

    def unpin(self, index: PageIndex) -> None:
        """Remove a pin."""
        self.pages.unpin(index)

    # Windows, agents and tools

    @cached_property
    def windows(self) -> "Windows":
        """Live windows of apps. Windows that an earlier run left open are shown again when their app is registered."""
        from quire.windows.windows import Windows

        return Windows(self.pages._engine, self.pages.actor)

    @cached_property
    def agent(self) -> "AgentContext":
        """The operations of the agent `agent`, with permission checks."""
        return self.as_agent()

    @cached_property
    def tools(self) -> "Tools":
        """The operations of `agent` as tools for a model."""
        return self.tools_of(self.agent)

    def as_agent(
        self,
        actor: str = "agent",
        *,
        manage: bool = False,
        quota: "Quota | None" = None,
        remove_user_messages: bool = False,
    ) -> "AgentContext":
        """Return the operations of an agent, with permission checks. The journal records `actor` as its name.

        With `manage` it may add and remove segments and set their permissions. `quota` bounds what it may add. With
        `remove_user_messages` it may take messages of the user out of the conversation.
        """
        from quire.agent import AgentContext

        return AgentContext(
            self.pages, actor, manage, quota=quota, views=self._views, remove_user_messages=remove_user_messages
        )

    def tools_of(self, agent: "AgentContext", *, beside: bool = False) -> "Tools":
        """Return the tools of an agent that `as_agent` returned.

        Use `beside=True` when the model's own conversation is not stored in this context (an MCP client, for example).
        Then `find` also returns the last user message, and the view of this context shows what the model writes.
        """
        from quire.agent.handlers import ToolContext
        from quire.agent.tools import Tools

        return Tools(ToolContext(agent, self.windows, beside=beside))

    def _pieces(self, options: RenderOptions) -> "Sequence[TailPiece]":
        """Return the windows for the tail of a view.

        Windows are not loaded before the program uses `windows` or the options ask for obsolete windows.
        """
        used = "windows" in self.__dict__ or options.include_obsolete
        return self.windows._tail_parts(options) if used else ()

    # Messages

    def system(self, text: str, name: str | None = None) -> int:
        """Set the system prompt, or a further one with a `name`. Return its index. The same text changes nothing."""
        return self.conversation.system(text, name)

    def user(
        self,
        content: Any,
        *,
        id: str | None = None,  # noqa: A002 - a name of the public API
        at: datetime | None = None,
    ) -> int:
        """Add a user message: text, or a list of parts in any provider's shape. Return its message index.

        See `add` for `id` and `at`.
        """
        return self.conversation._add_message("user", content, None, id, at)

    def assistant(
        self,
        content: Any = None,
        tool_calls: Iterable[Any] | None = None,
        *,
        view: View | None = None,
        id: str | None = None,  # noqa: A002 - a name of the public API
        at: datetime | None = None,
    ) -> int:
        """Add an assistant message, with or without tool calls. Return its message index.

        See `add` for `view`, `id` and `at`.
        """
        return self.conversation.assistant(content, tool_calls, view=view, id=id, at=at)

    def tool_result(
        self,
        call_id: str,
        content: Any,
        *,
        id: str | None = None,  # noqa: A002 - a name of the public API
        at: datetime | None = None,
    ) -> int:
        """Add the result of a tool call; a late one is accepted too. Return its message index.

        See `add` for `id` and `at`.
        """
        return self.conversation.tool_result(call_id, content, id=id, at=at)

    def add(
        self,
        message: Any,
        *,
        view: View | None = None,
        id: str | None = None,  # noqa: A002 - a name of the public API
        at: datetime | None = None,
        provider: Provider | None = None,
    ) -> int:
        """Add a message, a list of them, or a response in any provider's shape. Return the index of the last one.

        `view` is the view that a reply answers; give it if another handle rendered it. The default is the last view
        of this handle, if no message was added since. The reply is stored with the new texts at the end of that view
        (windows, recalled pages) and, if it has thinking, with a digest of the messages that were sent.

        A message with an `id` is added once: if a message in the conversation has this id, its index is returned,
        whatever the new text. Of several messages, the first has the id, and the others `id.2`, `id.3` and so on.

        `at` is the time of messages that have none of their own; without it, they have the time of their arrival.

        A dict of an unknown shape is refused. With a `provider`, dicts are read in the form of this provider, and items
        of an unknown type are kept as they are. Items of SDK objects are always kept.
        """
        return self.conversation.add(message, view=view, id=id, at=at, provider=provider)

    def messages(self, all: bool = False) -> Messages:  # noqa: A002 - a name of the public API
        """Return the messages in their current order; with `all` every message by index, deleted ones too."""
        return self.conversation.messages(all)

    def turns(self) -> Iterator[list[Message]]:
        """Yield the turns in order, each as a list: a user message and everything up to the next user message."""
        return self.conversation.turns()

    def delete(self, indices: int | Iterable[int]) -> Modification:
        """Take messages out of the conversation. `messages(all=True)` still returns them, and `undo` restores them."""
        return self.conversation.delete(indices)

    def replace(self, indices: int | Iterable[int], message: Any) -> Modification:
        """Replace messages by another one, or several, in any provider's shape."""
        return self.conversation.replace(indices, message)

    def compress(self, indices: int | Iterable[int], summary: str | None = None) -> Modification:
        """Replace messages by a summary. Without `summary`, the text is extracted from the messages."""
        return self.conversation.compress(indices, summary)

    def items(self, active: bool = False) -> Iterator[Item]:
        """Yield prompts, exchanges and summaries by seq. With `active`, leave out those that an edit removed."""
        return self.conversation.items(active)

    def import_messages(
        self,
        messages: Iterable[Any],
        *,
        progress: Callable[[ImportReport], None] | None = None,
        provider: Provider | None = None,
    ) -> ImportReport:
        """Add a whole history, even a damaged one. Return a report of what was added and what was wrong.

        A message keeps the time that it has in the source: `Message.at`, or a key `at`, `timestamp`, `created_at`,
        `created` or `time` of a dict. See `add` for `provider`.
        """
        return self.conversation.import_messages(messages, progress=progress, provider=provider)

    def pending_calls(self) -> list[ToolCall]:
        """Return the calls of the newest exchange that have no result yet."""
        return self.conversation.pending_calls()

    def close_calls(self) -> list[ToolCall]:
        """Stop waiting for results of the newest exchange. Return the calls that had none."""
        return self.conversation.close_calls()

    @contextmanager
    def turn(self, key: str | None = None, *, wait: float = 30.0, keep: bool = False) -> Iterator[Self]:
        """Run a block as a turn: only one worker at a time, in any process, is in a turn of this context.

        Other workers wait up to `wait` seconds for the turn, then raise `Busy`. At the start of the block, the context
        is refreshed. If the block raises, all entries that this handle made in it are taken back in one commit that can
        be undone; entries of other writers stay. With `keep`, the entries of this handle stay too. If the worker dies,
        the same happens when its lease expires, after 25 seconds. With a `key`, the n-th message that is added (not by
        `import_messages`) has the id `key#n`, so a repeated turn adds nothing twice; `turn_state` says how far an
        earlier turn with this key came. A turn inside a turn of the same handle is part of the outer turn.
        """
        from quire.conversation.turn import run_turn  # late: not every program has turns

        with run_turn(self.pages._engine, self.pages.actor, key, wait, keep):
            yield self

    @property
    def turn_state(self) -> "TurnState | None":
        """How far an earlier turn with this key came: "new", "unfinished" or "finished"; None outside a turn."""
        turn = self.pages._engine.turn
        return None if turn is None else turn.state

    def temporary(self) -> AbstractContextManager[None]:
        """Return a `with` block. When it ends or raises, its messages and edits leave the conversation."""
        return self.conversation.temporary()

    # The view

    def render(self, /, options: RenderOptions | None = None, **changes: "Unpack[RenderFields]") -> View:
        """Return the view for the model: within the budget, legal for its provider, the same bytes for the same state.

        Give `RenderOptions`, or its fields by name. At the budget of the context, this may commit one fold first. With
        `preview` or another `max_tokens` it writes nothing. Raise `IrreducibleFloor` if the pages that must be shown
        do not fit.
        """
        return self._views.render(options, changes)

    def why(self, index: PageIndex, view: View | None = None) -> Why:
        """Explain how a page is shown, or why it is not, and name the call that would show it.

        The answer is about `view`. Without one, it is about the last view at the budget of the context, drawn again if
        the context has changed since.
        """
        return self._views.why(index, view)

    def last_sent(self) -> "LastSent | None":
        """Return the last view that a model answered, as it was sent: with its windows, recalled pages and tools.

        Every process can read it, because it is stored with the reply. None if no reply to a view was added yet.
        """
        from quire.view.sent import draw_sent, newest_sent  # late: for inspection

        sent = self.pages._engine.read(newest_sent)
        if sent is None:
            return None
        return draw_sent(sent, lambda: Context(self.pages.as_of(sent.entry), preamble=self._views.preamble))

    def stats(self) -> Stats:
        """Return the number of items, their tokens, and the same for each segment."""
        return self._views.stats()

    def report_usage(
        self, usage: object, model: str | None = None, *, tools: int = 0, view: View | None = None
    ) -> Usage:
        """Learn from the usage of a response, or the whole response, how many tokens its model bills per counted token.

        The billed tokens are compared with the tokens of `view` (default: the last view at the budget of the context)
        plus the tokens of the `tools` that were sent with it (`count_tools`). `reserve` is not part of this. The
        context keeps one factor for each model; `stats()` returns it and `render(model=…)` applies it. Raise
        `InvalidValue` if `usage` is not a usage report.
        """
        return self._views.report_usage(usage, model, tools, view)

    def dump(self) -> str:
        """Return one line for every item: whether it is active, its seq, its type and the start of its text."""
        return self._views.dump()

    def on_fold(self, listener: Callable[[FoldResult], None]) -> Callable[[], None]:
        """Call a function after every fold. Return a function that removes this listener."""
        return self._views.on_fold(listener)

    @property
    def summarising(self) -> "SummaryWorker | None":
        """The state of the summariser of `CompressionConfig`: its errors, and `wait`. None without a summariser."""
        return self._views.summaries

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
        """Yield the journal entries above `after` and below `before` that match every filter, oldest first.

        With `reverse` the newest entry comes first.
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

    def audit(self, /, path: str | os.PathLike[str], **filters: "Unpack[HistoryFilters]") -> int:
        """Write the journal to a file as JSON Lines. Return the number of entries. See `history` for the filters."""
        return self.pages.audit(path, **filters)

    def undo(self, entry: Entry | int) -> int:
        """Undo one operation and keep later changes. Return the seq of the new entry."""
        return self.pages.undo(entry)

    def checkpoint(self, name: str) -> int:
        """Name the current state, so that `rollback(name)` can return to it. Return its seq."""
        return self.pages.checkpoint(name)

    def rollback(self, to: str | int | Entry | None = None, *, before: Message | int | None = None) -> int:
        """Return the whole context to a checkpoint or an entry, in one commit that can be undone. Return its seq.

        With `before`, return to the state before a message was added. Raise `InvalidOperation` if an earlier message
        was added in the same entry, as by an import.
        """
        if (to is None) == (before is None):
            raise InvalidValue("Give a checkpoint or an entry, or `before` with a message.")
        if before is not None:
            to = self.conversation.entry_before(before)
        return self.pages.rollback(cast("str | int | Entry", to))

    def fork(self, new_name: str, at: str | int | Entry | None = None, *, check: bool = False) -> "Context":
        """Copy this context in its current state, or in the state of a checkpoint or an entry, and open the copy.

        The bodies of pages are shared in the storage. Later changes and deletion of one do not affect the other. The
        copy uses the connection of this context. With `check`, all records are read first: `Corrupt` names a damaged
        one, and nothing is created.
        """
        self.pages.fork(new_name, at, check=check)
        pages = ContextSystem(actor=self.pages.actor, _engine=self.pages._engine.open_context(new_name))
        return self._copy(pages, self._views.config)

    def as_of(self, to: str | int | Entry) -> "Context":
        """Return this context as a rollback to a checkpoint or an entry would leave it. Nothing is written.

        Changes to the returned context stay in memory.
        """
        config = replace(self._views.config, cache_seconds=None)  # the age of that state must not cause a fold
        past = self._copy(self.pages.as_of(to), config)
        past.budget = self.budget
        return past

    def _copy(self, pages: ContextSystem, config: CompressionConfig) -> "Context":
        copy = Context(pages, compression=config, preamble=self._views.preamble)
        if "windows" in self.__dict__:
            self.windows._share(copy.windows)
        return copy

    # State and storage

    def refresh(self) -> bool:
        """Read what other writers committed. Return whether anything was new.

        Raise `NoSuchContext` if the context was deleted.
        """
        return self.pages.refresh()

    def check(self) -> list[Problem]:
        """Return every problem of this context; an empty list if there is none."""
        return self.pages.check()

    def close(self) -> None:
        """Release the storage if this context opened it. Committed changes are safe without closing.

        If a summariser is still working, the storage is closed after its summaries are stored. This call does not wait
        for them.
        """
        if "windows" in self.__dict__:
            self.windows._stop_threads()
        if self._owned_storage is not None:
            close_storage(self._owned_storage)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
