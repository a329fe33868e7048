"""The operations on memory, storage and files: what is kept where."""

import os

from quire.errors import InvalidOperation, StorageFailure
from quire.pages import PageIndex
from quire.state import State
from quire.storage.base import Storage, check_path, check_storage
from quire.storage.migrate import Progress, Report, copy_contexts
from quire.storage.overlay import OverlayStorage
from quire.system.face import Face
from quire.system.marshalling import marshal
from quire.system.rules import whole_number, yes_or_no
from quire.system.unmarshalling import unmarshal


class Keeping(Face):
    """Memory, storage and JSON."""

    # Memory and storage

    def evict_page(self, index: PageIndex) -> None:
        """Forget a page's cached copy; nothing stored changes."""

        def evict(state: State) -> None:
            key = state.key_of(index)
            if key is not None:
                state.evict(key)

        self._read(evict)

    def evict_lru(self, max_pages: int) -> int:
        """Forget the least recently used cached pages beyond `max_pages`; how many went. Pinned pages stay."""
        return self._read(lambda state: state.evict_lru(whole_number(max_pages, "max_pages")))

    @property
    def cached_pages(self) -> int:
        """How many pages are in memory."""
        return self._read(lambda state: len(state.cached()))

    @property
    def storage(self) -> Storage:
        """The storage in use."""
        return self._engine.state.storage

    def set_storage(self, target: Storage, *, migrate: bool = False, progress: Report | None = None) -> None:
        """Go on with this context in another storage. With `migrate`, copy it there first.

        Without, the target must already hold this very state of it.
        """
        check_storage(target)
        yes_or_no(migrate, "migrate")
        with self._engine.lock:
            state = self._engine.current()
            if migrate and (outdated := state.outdated()):
                raise outdated
            if migrate:
                self.migrate(target, progress=progress)
            self._engine.switch(target)

    def migrate(self, target: Storage, *, progress: Report | None = None) -> Progress:
        """Copy this context to another storage, streaming and verified; called again, an interrupted copy goes on."""
        with self._engine.lock:
            state = self._engine.current()
            check_storage(target)
            if isinstance(state.storage, OverlayStorage):
                raise InvalidOperation("Work is held back here: leave temporary() first, then migrate.")
            if not state.version:  # nothing was ever written
                return Progress(context=state.context, phase="done", records=0, bytes=0)
            return copy_contexts(state.storage, target, state.context, progress=progress)

    def refresh(self) -> bool:
        """Take over what other writers committed; whether there was anything. `NoSuchContext` if it was deleted."""
        return self._engine.refresh()

    # JSON

    def marshal(self) -> bytes:
        """The whole context as JSON in the form of the design documents."""
        return self._read(marshal)

    def unmarshal(self, data: bytes | str) -> None:
        """Replace the whole context by a JSON document, in one undoable commit. `InvalidValue` names a bad place."""
        self.run("unmarshal", unmarshal, data)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `marshal()` to a file."""
        target = check_path(path)
        data = self.marshal()
        try:
            fresh = target.with_name(target.name + ".new")
            with open(fresh, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(target)  # a reader sees the old file or the new one
        except (OSError, ValueError) as error:
            raise StorageFailure(f"Cannot write {str(path)!r}: {error}.") from error

    def load(self, path: str | os.PathLike[str]) -> None:
        """`unmarshal()` a file."""
        try:
            data = check_path(path).read_bytes()
        except OSError as error:
            raise StorageFailure(f"Cannot read {str(path)!r}: {error}.") from error
        self.unmarshal(data)
