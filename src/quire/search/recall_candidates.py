"""What can be brought back for a question: the exchanges of the conversation and the pages beside it.

A short conversation is taken whole. Of a long one, the exchanges that the index finds for the words of the question,
with those next to them, so that the cost does not grow with the conversation.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from quire.core.records import PageRecord, page_key, segment_number
from quire.core.state import State
from quire.model.messages import ROLES, Message
from quire.model.pages import Form
from quire.search.indexing import asked, page_at, pages_from
from quire.search.page_text import body_of, is_found
from quire.search.query import Clause, Query, Scope, narrowed, phrase_of
from quire.search.rank import rank
from quire.search.recall_ranking import Likeness, Memory, Words
from quire.search.self_search_filter import echoes_of, is_echo, segments_in
from quire.search.tokenizer import STOP, plain, runs
from quire.search.vectors import Embedder, speaker, vectors_if
from quire.storage.search_protocol import Index

MOST_WHOLE = 4_000
"""A conversation of up to so many messages is taken whole."""
_FOUND = 300
_BESIDE = 2
_OTHERS = 40
_KEPT = 20_000
_words: "WeakKeyDictionary[State, Words]" = WeakKeyDictionary()
_texts: "WeakKeyDictionary[State, OrderedDict[int, tuple[object, Memory]]]" = WeakKeyDictionary()


def words_of(state: State) -> Words:
    """The words that were counted for this state before."""
    return _words.setdefault(state, Words())


def memories(state: State, question: str, scope: Scope) -> list[Memory]:
    """What can be brought back for a question, as far as this viewer may see it."""
    conversation = state.conversation()
    found: list[Memory] = []
    if conversation is not None and conversation in scope.segments:
        found += _exchanges(state, question, scope, conversation)
    others = Scope(scope.segments - {conversation} if conversation is not None else scope.segments)
    for page in _ranked(state, question, scope, others, _OTHERS):
        if not page.header.folder and not page.header.pinned and page.header.form is Form.TEXT and page.header.body:
            text = body_of(state.storage, state.context, page.header)
            found.append(Memory(page.key, -1, page.header.created, page.header.name, text))
    return found


def likeness_of(state: State, question: str, embedder: Embedder | None) -> list[Likeness]:
    """How like the question exchanges are, alone and with those beside them; nothing without an embedder."""
    found = vectors_if(question, state.storage, state.context, embedder)
    if found is None:
        return []
    vectors, vector = found

    def alone(given: Sequence[Memory]) -> list[float]:
        return [float(value) for value in vectors.rows([memory.key for memory in given]) @ vector]

    def around(given: Sequence[Memory]) -> list[float]:
        rows = vectors.rows([memory.key for memory in given])
        return [float(value) for value in _joined(rows, given) @ vector]

    return [alone, around]


def _exchanges(state: State, question: str, scope: Scope, conversation: int) -> Iterator[Memory]:
    """The exchanges of a short conversation, or those that matter of a long one; numbered by their messages."""
    if state.next_message <= MOST_WHOLE:
        first, last = page_key(conversation, 0), page_key(conversation + 1, 0) - 1
        pages: Iterable[PageRecord] = pages_from(state.storage, state.context, first, last)
    else:
        pages = _around(state, _ranked(state, question, scope, narrowed(scope, [conversation]), _FOUND))
    spoken = sorted((page for page in pages if page.header.numbers), key=lambda page: page.header.numbers)
    segments = segments_in(state, scope)
    place = -1
    last_number = -2
    for page in spoken:
        place += 1 if page.header.numbers[0] == last_number + 1 else 2  # a gap: these two do not stand side by side
        last_number = page.header.numbers[-1]
        yield _memory(state, page, place, segments)


def _memory(state: State, page: PageRecord, place: int, segments: frozenset[str]) -> Memory:
    known = _texts.setdefault(state, OrderedDict())
    found = known.get(page.key)
    if found is None or found[0] != (page.header.numbers, segments):
        said = [state.message(number).message for number in page.header.numbers]
        echo = is_echo(said, segments)
        first, *others = [message for message in said if message.text] or said[:1]
        text = "\n".join([first.text, *(f"{_told_as(other)}: {other.text}" for other in others)])  # results of calls
        memory = Memory(page.key, place, page.header.created, _told_as(first), "" if echo else text, echo)
        found = known[page.key] = ((page.header.numbers, segments), memory)
        while len(known) > _KEPT:
            known.popitem(last=False)
    memory = found[1]
    return memory if memory.place == place else replace(memory, place=place)


def _ranked(state: State, question: str, scope: Scope, within: Scope, limit: int) -> Iterator[PageRecord]:
    """The pages that the index finds for the words of a question."""
    found = dict.fromkeys(runs(plain(question[:10_000])))
    telling = [word for word in found if word not in STOP][:64] or list(found)[:64]
    query = Query(tuple(Clause(phrase_of(word), (word,)) for word in telling))
    known, wanted = scope.spans(), within.spans()

    def look(index: Index) -> list[PageRecord]:
        echoes = echoes_of(state, scope)
        while True:
            ranked = rank(index, query, known, wanted, limit, behind=echoes.keys)[:limit]
            found = (page_at(state.storage, state.context, entry.key) for entry in ranked)
            pages = [page for page in found if page is not None and is_found(page)]
            if not echoes.learn(state, pages):
                return pages

    yield from asked(state.storage, state.context, look)


def _around(state: State, pages: Iterable[PageRecord]) -> Iterator[PageRecord]:
    """Exchanges, and those next to them by their messages; each once."""
    seen: set[int] = set()
    for page in pages:
        if not page.header.numbers:
            continue
        before, after = page.header.numbers[0], page.header.numbers[-1]
        earlier = range(max(before - _BESIDE, 0), before)
        later = range(after + 1, min(after + 1 + _BESIDE, state.next_message))
        for other in (page, *_standing(state, (*earlier, *later))):
            if other.key not in seen:
                seen.add(other.key)
                yield other


def _standing(state: State, numbers: Iterable[int]) -> Iterator[PageRecord]:
    """The pages in the conversation on which these messages stand."""
    for number in numbers:
        record = next(iter(state.message_records(number, number)), None)
        page = state.page_of(number) if record else None
        stands = page is not None and is_found(page) and number in page.header.numbers
        if page is not None and stands and segment_number(page.key) == state.conversation():
            yield page


def _joined(rows: Any, given: Sequence[Memory]) -> Any:
    """For each the vector of itself and those beside it together, the longer text counting more; of length 1."""
    import numpy

    rows = rows * numpy.array([len(memory.text) for memory in given], dtype=numpy.float32)[:, None]
    joined = rows.copy()
    for number in range(1, len(given)):
        if given[number].place == given[number - 1].place + 1 and given[number].place > 0:
            joined[number] += rows[number - 1]
            joined[number - 1] += rows[number]
    lengths = numpy.linalg.norm(joined, axis=1, keepdims=True)
    return joined / numpy.where(lengths == 0, 1, lengths)


def _told_as(message: Message) -> str:
    """Who says a message, where it is brought back: by its role, if its name could be taken for another's words."""
    name = plain(speaker(message))
    is_borrowed = ":" in name or "".join(filter(str.isalnum, name)) in ROLES
    return message.role.capitalize() if is_borrowed else speaker(message)
