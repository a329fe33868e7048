"""After any earlier changes: a purge leaves no byte of its pages, and the rest is complete."""

from pathlib import Path
from random import Random

import pytest

import quire
from quire import Context, InvalidOperation
from tests.marks import long
from tests.seeds import SEED
from tests.system.random_changes import change, edit, speak
from tests.system.test_purge import SECRET, Shelf, told


def written(shelf: Shelf, random: Random) -> tuple[list[Context], set[str]]:
    """Return a context and its forks after many changes, and the pages with the secret."""
    books = [Context(shelf.open().pages, budget=random.choice((600, 20_000)))]
    secret: set[str] = set()
    known = ["mem-0", *(books[0].pages.create_detail_page(f"{n}", "", "text", "mem-0") for n in range(4))]
    for step in range(random.randrange(30, 80)):
        book = random.choice(books)
        match random.randrange(12):
            case 0:
                secret.add(book.pages.create_detail_page("a page", "", f"text {SECRET}", "mem-0"))
            case 1:
                number = book.user(f"please mind {SECRET}-17 today")
                secret.add(book.conversation.page_of(number) or "")
            case 2 if len(books) < 3:
                books.append(book.fork(f"fork {len(books)}"))
            case 3:
                book.render()
            case 4 | 5:
                change(book.pages, random, known)
            case 6 | 7:
                edit(book, random)
            case _:
                speak(book, random, step)
    return books, secret - {""}


def run(shelf: Shelf, random: Random) -> None:
    books, secret = written(shelf, random)
    for book in books:
        book.close_calls()
        for index in sorted(secret):
            try:
                book.pages.purge(index)
            except quire.NoSuchPage:  # it was created in another fork
                pass
            except InvalidOperation as error:
                raise AssertionError(f"{book.name} {index}: {error}") from error
            for other in books:
                other.refresh()
    assert not shelf.holds(SECRET)
    for book in books:
        assert book.check() == []
        assert SECRET not in told(book)
        assert book.find(SECRET) == []
        book.user("and on")
        book.render()
        assert book.check() == []


@pytest.mark.parametrize("backend", [*long("file"), "sqlite"])
def test_whatever_was_done_before(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    rounds = 150 if request.config.getoption("--long") else 1
    for step in range(rounds):
        place = tmp_path / str(step)
        place.mkdir()
        try:
            run(Shelf(backend, place), Random(SEED + step))
        except BaseException as error:
            error.add_note(f"QUIRE_SEED={SEED + step}")
            raise
