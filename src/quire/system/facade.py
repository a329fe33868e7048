"""ContextSystem: every operation on pages and segments, without permission checks."""

from typing import TYPE_CHECKING

from quire.clock import Clock, system_clock
from quire.engine import Engine
from quire.errors import InvalidValue, shown
from quire.storage.base import Storage, check_context_name, check_storage
from quire.storage.memory import MemoryStorage
from quire.storage.overlay import OverlayStorage
from quire.system.editing import Editing
from quire.system.erasing import Erasing
from quire.system.journal import Entry
from quire.system.keeping import Keeping
from quire.system.reading import Reading
from quire.system.rules import whole_number
from quire.system.timeline import Timeline
from quire.tokens import TokenCounter, VocabularyCounter

if TYPE_CHECKING:
    from quire.search.vectors import Embedder

DEFAULT_MAX_PAGES = 10_000
DEFAULT_MAX_BYTES = 64 << 20


class ContextSystem(Editing, Reading, Timeline, Keeping, Erasing):
    """One context's pages and segments. Safe to share between threads.

    `storage` is any backend (in memory by default), `context` the name of the context in it, created by the first
    change. `actor` is who the journal names. At most `max_pages` pages and `max_bytes` of bodies stay in memory.
    With an `embedder`, `find` also knows pages that say it in other words.
    """

    def __init__(
        self,
        storage: Storage | None = None,
        context: str = "default",
        *,
        actor: str = "developer",
        counter: TokenCounter | None = None,
        clock: Clock = system_clock,
        max_pages: int = DEFAULT_MAX_PAGES,
        max_bytes: int = DEFAULT_MAX_BYTES,
        embedder: "Embedder | None" = None,
    ) -> None:
        engine = Engine(
            MemoryStorage() if storage is None else check_storage(storage),
            check_context_name(context),
            clock=clock,
            counter=counter or VocabularyCounter(),
            max_pages=whole_number(max_pages, "max_pages"),
            max_bytes=whole_number(max_bytes, "max_bytes"),
        )
        if embedder is not None and not callable(embedder):
            raise InvalidValue(f"embedder is {shown(embedder)}; a callable from texts to vectors is needed.")
        engine.embedder = embedder
        super().__init__(engine, actor)

    @property
    def counter(self) -> TokenCounter:
        """What counts tokens here."""
        return self._engine.counter

    def opened(self, context: str) -> "ContextSystem":
        """Another context of the same storage, with this one's counter, clock and limits."""
        engine, state = self._engine, self._engine.state
        return ContextSystem(
            state.storage,
            context,
            actor=self.actor,
            counter=engine.counter,
            clock=engine.clock,
            max_pages=state.max_pages,
            max_bytes=state.max_bytes,
            embedder=engine.embedder,
        )

    def as_of(self, to: str | int | Entry) -> "ContextSystem":
        """This context as a rollback to a checkpoint or an entry would leave it, to look at.

        It is kept in memory over the same storage: whatever is done to it reaches nobody. Raises `InvalidValue`.
        """
        engine, state = self._engine, self._engine.current()
        past = ContextSystem(
            OverlayStorage(state.storage, self.context),
            self.context,
            actor=self.actor,
            counter=engine.counter,
            clock=engine.clock,
            max_pages=state.max_pages,
            max_bytes=state.max_bytes,
            embedder=engine.embedder,
        )
        past.rollback(to)
        return past

    def __repr__(self) -> str:
        return f"<ContextSystem {self.context!r} at seq {self._engine.state.version}, acting as {self.actor!r}>"
