"""The index of a context, brought up to date: the storage's own, or one in this process where it keeps none.

Work that is held back (`temporary`) is searched as a thin layer over the index below it.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from quire.errors import Corrupt, StorageFailure
from quire.search.catching import catch_up, changed, is_sound, known_as
from quire.search.kept import Kept
from quire.search.layers import LayeredIndex
from quire.search.memory import MemoryIndex
from quire.storage.base import MAX_KEY, Head, Storage
from quire.storage.overlay import OverlayStorage
from quire.storage.searching import Index, IndexLost, IndexSealed, SearchIndex, Standing

_TRIES = 5
T = TypeVar("T")
_SELDOM = 64
_indexes: Kept[MemoryIndex] = Kept()
_missed: Kept[list[int]] = Kept()
"""How often nothing was found in a context."""


def index_of(storage: Storage, context: str) -> Index:
    """The index of a context as it is stored now."""
    return asked(storage, context, lambda index: index)


def asked(storage: Storage, context: str, question: Callable[[Index], T], tries: int = _TRIES) -> T:
    """What the index of a context as it is stored now answers to a question.

    It is asked again if the index was emptied meanwhile, or if another writer took away a record between two looks.
    One that says where it stands and cannot be asked (a table of it is missing) gives way to one in memory.
    """
    try:
        try:
            answer = question(_caught_up(storage, context))
            if not answer:
                _look_at(storage, context)
            return answer
        except IndexSealed:
            return question(_whole(storage, context))
    except (IndexLost, Corrupt):
        if tries == 1:
            raise
        return asked(storage, context, question, tries - 1)


def _caught_up(storage: Storage, context: str) -> Index:
    if isinstance(storage, OverlayStorage) and storage.context == context:
        return _layered(storage, context)
    index = _own(storage, context)
    if index is None:
        index = _in_memory(storage, context)
    try:
        catch_up(index, storage, context)
    except IndexSealed:
        return _beside(index, storage, context)
    return index


def _own(storage: Storage, context: str) -> SearchIndex | None:
    """The index that a storage keeps itself."""
    offered = getattr(storage, "search", None)
    return cast(SearchIndex, offered(context)) if callable(offered) else None


def _in_memory(storage: Storage, context: str) -> MemoryIndex:
    """The index kept here for a context."""
    return _indexes.get(storage, context, MemoryIndex)


def _look_at(storage: Storage, context: str) -> None:
    """See whether an index that found nothing finds anything; if not, empty it and raise `IndexLost`.

    It is looked at when a handle first finds nothing, and then every so many times: a search must not wait for it.
    """
    index = None if isinstance(storage, OverlayStorage) else _own(storage, context)
    if index is None:
        return
    missed = _missed.get(storage, context, lambda: [0])
    missed[0] += 1
    if missed[0] % _SELDOM != 1:
        return
    head, stands = storage.head(context), index.standing()
    if head is None or stands != Standing(head.version, known_as(head)) or is_sound(index, storage, context):
        return
    if index.standing() == stands and storage.head(context) == head:  # else others changed it meanwhile
        _empty(index)
        raise IndexLost("The search index did not hold the pages it should: it is made anew.")


def _empty(index: SearchIndex) -> None:
    try:
        getattr(index, "make_anew", index.clear)()
    except IndexSealed as error:
        raise StorageFailure(
            f"The search index is damaged: run doctor(repair=True) where it can be written. {error}"
        ) from error


def _beside(index: SearchIndex, storage: Storage, context: str) -> Index:
    """An index that cannot be written, as it stands, and in memory what was changed since; or all of it in memory."""
    head = storage.head(context)
    try:
        stands = index.standing()
    except IndexSealed:
        stands = None
    if head is not None and stands is not None and _can_follow(stands, head):
        touched = changed(storage, context, stands.version, head.version)
        if touched is not None:
            above = _indexes.get(storage, (context, stands), MemoryIndex)
            if above.standing() is None:
                above.update(None, stands, ())
            catch_up(above, storage, context)
            return LayeredIndex(index, above, touched)
    return _whole(storage, context)


def _whole(storage: Storage, context: str) -> Index:
    """All of a context in memory, what is held back of it too."""
    is_held = isinstance(storage, OverlayStorage)
    whole = _indexes.get(storage, (context, "whole"), MemoryIndex) if is_held else _in_memory(storage, context)
    catch_up(whole, storage, context)
    return whole


def _can_follow(stands: Standing, head: Head) -> bool:
    return stands.identity == known_as(head) and stands.reached == MAX_KEY and stands.version <= head.version


def _layered(storage: OverlayStorage, context: str) -> Index:
    below = _caught_up(storage.below, context)
    start, head = storage.start, storage.head(context)
    if head is None or head == start:
        return below
    above = _in_memory(storage, context)
    identity = known_as(head)
    since = start.version if start else 0
    if above.standing() is None:
        above.update(None, Standing(since, identity), ())
    touched = changed(storage, context, since, head.version)
    catch_up(above, storage, context)
    return LayeredIndex(below, above, touched or ())
