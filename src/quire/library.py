"""Library: many contexts on one backend."""

import os
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from quire.context import Context, Setup, open_in
from quire.errors import NoSuchContext, shown
from quire.pages import Segment
from quire.rendering import CompressionConfig
from quire.storage.base import Durability, Storage
from quire.storage.opening import storage_at
from quire.system import ContextSystem
from quire.tokens import TokenCounter
from quire.view.options import DEFAULT_BUDGET

if TYPE_CHECKING:
    from quire.search.vectors import Embedder


class Library:
    """The contexts of one store, given by URL, path or storage object. Contexts opened from it share its connection."""

    def __init__(
        self, where: str | os.PathLike[str] | Storage, *, durability: Durability = "normal", create: bool = True
    ) -> None:
        self.storage, self._owns_storage = storage_at(where, durability=durability, create=create)

    def open(
        self,
        name: str = "default",
        *,
        budget: int = DEFAULT_BUDGET,
        counter: TokenCounter | None = None,
        compression: CompressionConfig | None = None,
        segments: Sequence[Segment] | None = None,
        key: str | None = None,
        preamble: str | None = None,
        embedder: "Embedder | None" = None,
    ) -> Context:
        """Open a context, creating it if it is new. The options are those of `quire.open`."""
        setup = Setup(
            budget=budget,
            counter=counter,
            compression=compression,
            segments=segments,
            key=key,
            preamble=preamble,
            embedder=embedder,
        )
        return open_in(self.storage, name, setup)

    def fork(self, name: str, new_name: str, at: str | int | None = None) -> None:
        """Make another context of one, as it is or as it was at a checkpoint or a seq. Raises `NoSuchContext`."""
        self._known(name)
        ContextSystem(self.storage, name).fork(new_name, at)

    def list(self, after: str = "") -> Iterator[str]:
        """The names of all contexts greater than `after`, in order. Streams."""
        return self.storage.contexts(after)

    def exists(self, name: str) -> bool:
        """Whether there is a context of this name."""
        return self.storage.head(name) is not None

    def delete(self, name: str) -> None:
        """Remove a context with all its pages and history. Raises `NoSuchContext`."""
        self._known(name)
        self.storage.drop(name)

    def _known(self, name: str) -> None:
        if not self.exists(name):
            raise NoSuchContext(f"No context {shown(name)} in this library; list() names what is there.")

    def close(self) -> None:
        """Release the storage, if this library opened it."""
        if self._owns_storage:
            self.storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
