"""The contexts a handle knows: where each was seen last, and the one way to move a head.

A head moves by a conditional write, and a write without an answer is looked for by its id: it happened once or never.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Set
from contextlib import suppress
from hashlib import sha256
from os import urandom
from threading import Lock
from typing import Final, NamedTuple

from msgspec.structs import replace

from quire.errors import Busy, OutcomeUnknown, QuireError, StorageFailure
from quire.storage.base import Commit, conflict
from quire.storage.s3.chunks import Chunks, Recent, Written
from quire.storage.s3.client import Missing, Objects, Refused, Unanswered, check_key, key_of
from quire.storage.s3.head import ID_BYTES, REMEMBERED, HeadObject, decode_head, encode_head
from quire.storage.s3.snapshot import Standing, standing_of, standing_over

_KEPT: Final = 512
_PAUSES: Final = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


class Draft(NamedTuple):
    """A head to be written, with what it says already read, and the chunks that must be there before it."""

    head: HeadObject
    recent: Recent
    chunks: tuple[Written, ...] = ()


class Book:
    """One context as this handle knows it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.key = check_key(f"heads/{key_of(name)}", name)
        self.shelf = f"data/{sha256(name.encode()).hexdigest()[:32]}/"
        self.writing = Lock()
        """Held by a writer: two of one handle would only meet in conflict."""
        self.standing: Standing | None = None
        self.merging: Set[str] = frozenset()
        """Chunks that a merge of this handle is about to replace: no commit takes them along."""
        self._moves = 0
        self._lock = Lock()

    def folder(self, incarnation: str) -> str:
        """Where the chunks of one making of the context are."""
        return f"{self.shelf}{incarnation}/"

    def moves(self) -> int:
        return self._moves

    def take(self, standing: Standing | None, moves: int | None = None) -> bool:
        """Stand there from now on; what another thread found meanwhile stays if it is newer.

        False if it cannot be told which is newer: look again.
        """
        with self._lock:
            old = self.standing
            if moves is None or moves == self._moves:
                self._move(standing)
            elif old is None or standing is None or old.head.incarnation != standing.head.incarnation:
                return False
            elif standing.head.turn > old.head.turn:
                self._move(standing)
            return True

    def _move(self, standing: Standing | None) -> None:
        self.standing = standing
        self._moves += 1


class Books:
    """The contexts below one prefix."""

    def __init__(self, objects: Objects, chunks: Chunks) -> None:
        self.objects = objects
        self.chunks = chunks
        self._books: OrderedDict[str, Book] = OrderedDict()
        self._lock = Lock()

    def book(self, name: str) -> Book:
        """The context of this name, there or not."""
        with self._lock:
            book = self._books.get(name)
            if book is None:
                book = self._books[name] = Book(name)
            self._books.move_to_end(name)
            while len(self._books) > _KEPT:
                self._books.popitem(last=False)
            return book

    def look(self, book: Book) -> Standing | None:
        """Where the context stands now; None if it does not exist. One request."""
        while True:
            moves, known = book.moves(), book.standing
            if book.take(self._read(book, known), moves):
                return book.standing

    def _read(self, book: Book, known: Standing | None) -> Standing | None:
        try:
            found = self.objects.get(book.key, known.tag if known else None)
        except Missing:
            return None
        if found is None:
            return known
        head = decode_head(found.data, book.key, book.name)
        return standing_of(head, found.tag, book.key, book.folder(head.incarnation), self.chunks)

    def known(self, book: Book) -> Standing | None:
        """Where the context was seen last; if it was not yet, where it stands."""
        return book.standing if book.moves() else self.look(book)

    def move(self, book: Book, standing: Standing | None, draft: Callable[[Standing | None, bytes], Draft]) -> Standing:
        """Write a new head over the one at `standing` and stand there; `book.writing` is held.

        `draft` makes it of a standing and an id; it is asked again if another head of the same version came between,
        and raises `Conflict` if it does not follow. Raises `OutcomeUnknown` if no answer could be had.
        """
        revision = urandom(ID_BYTES)
        made = self._store(book, draft(standing, revision))
        unanswered: Unanswered | None = None
        for pause in _PAUSES:
            if pause:
                time.sleep(pause)
            try:
                return self._arrived(book, made, self._write(book, standing, made))
            except Refused:  # by what another wrote, or by this very write, if an earlier try got no answer
                pass
            except Unanswered as error:
                unanswered = error
            fresh = self._ask(book, unanswered)
            if fresh is not None and fresh.head.knows(revision):
                return fresh
            if (fresh.tag if fresh else None) == (standing.tag if standing else None):
                continue  # it did not arrive, or not yet: the same again is done once at most
            if fresh is not None and unanswered is not None and _passed(fresh, made):
                raise OutcomeUnknown(f"{self.objects.place}: too many commits followed to find this one.")
            if fresh is None or fresh.head.incarnation != made.head.incarnation:
                self._discard(book, made, everything=standing is None)
            standing, revision, unanswered = fresh, urandom(ID_BYTES), None
            made = self._store(book, draft(standing, revision))
        if unanswered is not None:
            raise OutcomeUnknown(f"{self.objects.failure(unanswered, book.key)} It may have been committed.")
        raise Busy(f"{self.objects.place}: others write {book.name!r} all the time: retry.")

    def _store(self, book: Book, draft: Draft) -> Draft:
        """Store the chunks of a draft, which is the next turn from now on."""
        folder = book.folder(draft.head.incarnation)
        for chunk in draft.chunks:
            self.objects.put(folder + chunk.ref.id, chunk.data)
            self.chunks.take(folder, chunk.ref, chunk.data)
        return draft._replace(head=replace(draft.head, turn=draft.head.turn + 1))

    def _discard(self, book: Book, draft: Draft, *, everything: bool) -> None:
        """Remove the chunks of a draft whose context was dropped, or made by another writer: no head will name them."""
        folder = book.folder(draft.head.incarnation)
        ids = draft.head.ids() if everything else {chunk.ref.id for chunk in draft.chunks}
        with suppress(QuireError):
            self.objects.delete([folder + each for each in sorted(ids)])

    def _write(self, book: Book, standing: Standing | None, draft: Draft) -> str:
        data = encode_head(draft.head)
        if standing is None:
            return self.objects.create(book.key, data)
        return self.objects.replace(book.key, data, standing.tag)

    def _arrived(self, book: Book, draft: Draft, tag: str) -> Standing:
        folder = book.folder(draft.head.incarnation)
        standing = standing_over(draft.head, tag, draft.recent, folder, self.chunks)
        book.take(standing)
        return standing

    def _ask(self, book: Book, unanswered: Unanswered | None) -> Standing | None:
        """Look what became of a write."""
        try:
            return self.look(book)
        except (Busy, StorageFailure) as error:
            if unanswered is None:
                raise
            raise OutcomeUnknown(f"{error} Whether {book.name!r} was committed is not known.") from None


def _passed(fresh: Standing, draft: Draft) -> bool:
    """Whether so many commits came after that the ids in the head do not reach back."""
    return len(fresh.head.revisions) >= ID_BYTES * REMEMBERED and fresh.head.version - draft.head.version >= REMEMBERED


def must_follow(context: str, standing: Standing | None, commit: Commit) -> None:
    """Raise `Conflict` unless the commit follows on this standing."""
    head = standing.head.head if standing else None
    if not commit.follows(head):
        raise conflict(context, head, commit.expect)


class StillBooks(Books):
    """Contexts that are looked at once."""

    def look(self, book: Book) -> Standing | None:
        if not book.moves():
            super().look(book)
        return book.standing
