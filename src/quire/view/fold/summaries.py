"""Summaries of folded messages: a name, a summary in one line, and an account of the facts in it.

The default summary is extractive: the user's constraints, the question and the final answer, in the speakers' own words
and shortened, then facts as far as there is room. A fact that is not in it can be found: the text of a page below
contains it word for word.

A caller's summariser (`quire.view.fold.summary_worker`) can replace an extracted summary. Its text is checked in the
same way: it is clipped to its share, facts are added as far as there is room, and none is lost. A page that changed
since keeps its summary.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import Gone, PageRecord, page_line
from quire.core.summary_board import SummaryRecord, page_digest
from quire.core.titles import clip_clause, exchange_title, make_title
from quire.model.messages import Message, quote_messages
from quire.model.pages import Visibility
from quire.model.text import MAX_DESCRIPTION, clip_at_word, collapse_whitespace, indent_lines
from quire.view.fold.facts import FactCheck, check_facts, extract_constraints, extract_facts, is_distinctive, occurs_in
from quire.view.parts import FactAccount

Count = Callable[[str], int]
_SENTENCE = 160
_SHARE = 0.1
_FEW, _USUAL, _MANY = 24, 70, 160
"""The most tokens of a summary in a small budget (so that some lines fit), in a usual one, and in a large one."""
_FACTS_SHARE = 0.6
_MAX_FACTS = 3
"""The number of facts in a line: a few things to search for. Other facts can be found."""
_MAX_LISTED = 64
_SEPARATOR = " | "
"""Separates the prose of a line from its facts."""
_MIN_TITLE = 12
_KNOWN = 24
_LISTED_NAME = 40
"""The characters of a name in the line of a chapter that lists several."""
_REPEATED = 2
"""Subtracted from the rank of a fact for every further line that has it."""
_CONSTRAINTS_SHARE = 0.7
_TRIES = 6
"""The number of facts that do not fit and are skipped for shorter ones."""
_MAX_CHARACTERS = 200_000


def max_summary_tokens(lines: int) -> int:
    """Return the most tokens of a summary if all lines together may take `lines` tokens."""
    return max(_FEW, min(_USUAL, lines // 20), min(_MANY, lines // _MANY))


def summary_allowance(tokens: int, most: int) -> int:
    """Return the most tokens of a summary of a text of `tokens` tokens: a tenth of them, but at most `most`."""
    return min(most, int(tokens * _SHARE))


def summarise_turns(
    name: str, messages: Sequence[Message], check: FactCheck, limit: int, count: Count
) -> tuple[str, FactAccount]:
    """Return one line for a few turns in at most `limit` tokens, and the account of their facts.

    The line continues the name: what the user insists on, the final answer, and a few facts to search for.
    """
    answer = next((m.text for m in reversed(messages) if m.role == "assistant" and m.text.strip()), "")
    constraints = _pick_facts(check.constraints(), int(limit * _CONSTRAINTS_SHARE), count, known=name)
    prose = [*constraints, _first_sentence(answer)]
    return keep_facts(name, _compose(name, prose, check.ranked_facts(), limit, count), check)


def summarise_chapters(lines: Sequence[tuple[str, str]], limit: int, count: Count) -> str:
    """Return one line for several folded ones, which are given by name and summary."""
    name = lines[0][0]
    names = " · ".join(dict.fromkeys(clip_clause(other, _LISTED_NAME) for other, _ in lines if other != name))
    heads = (summary.partition(_SEPARATOR)[0] for _, summary in lines)
    constraints = dict.fromkeys(fact.rstrip(";") for head in heads for fact in extract_constraints(head))
    ranks: dict[str, int] = {}
    for line in lines:
        for fact, kind in extract_facts(" ".join(line)):
            ranks[fact] = ranks.get(fact, kind + _REPEATED) - _REPEATED
    taken = _pick_facts(constraints, int(limit * _CONSTRAINTS_SHARE), count, known=name)
    ordered = sorted((fact for fact in ranks if is_distinctive(fact)), key=ranks.__getitem__)
    return _compose(name, [*taken, names], ordered, limit, count)


def adopt_summary(name: str, summary: str, check: FactCheck, limit: int, count: Count) -> str:
    """Return a summariser's summary within `limit` tokens, with facts as far as there is room and none lost."""
    text = shorten_to(summary, limit, count)
    if not text:
        return ""
    taken = _pick_facts(check.ranked_facts(), limit - count(text + _SEPARATOR), count, f"{name} {text}", _MAX_FACTS)
    return keep_facts(name, _append_facts(text, taken, limit, count), check)[0]


def keep_facts(name: str, summary: str, check: FactCheck) -> tuple[str, FactAccount]:
    """Return a summary with the facts that would be lost without it, and the account of all facts."""
    text = collapse_whitespace(summary)
    missing = check.missing(f"{name}: {text}")
    if missing:
        text = collapse_whitespace(f"{' '.join(missing)} {text}")
    text = clip_at_word(text, MAX_DESCRIPTION)
    return text, check.account(f"{name}: {text}")


def shorten_to(text: str, limit: int, count: Count) -> str:
    """Return the text in one line of at most `limit` tokens, cut at the end of a word, never inside an identifier."""
    text = collapse_whitespace(clip_at_word(text, 64 * limit))
    used = count(text)
    while text and used > limit:
        most = min(len(text) - 1, int(len(text) * limit / used) + 2)
        words = text[:most].rpartition(" ")[0]
        text = words.rstrip() if len(words) > most // 2 else clip_at_word(text, most)
        used = count(text)
    return text


def chapter_name(messages: Sequence[Message]) -> str:
    """Return the name of a chapter with these messages: the first question that says more than a few words."""
    first = ""
    for message in messages:
        if message.role == "user":
            title = exchange_title(message)
            if len(title) >= _MIN_TITLE or not title.isascii():
                return title
            first = first or title
    return first or (exchange_title(messages[0]) if messages else "Folded")


def _compose(name: str, prose: Sequence[str], ordered: Sequence[str], limit: int, count: Count) -> str:
    """Return pieces of prose, then a few facts, within `limit` tokens. A piece without room is cut or left out."""
    reserved = _pick_facts(ordered, int(limit * _FACTS_SHARE), count, f"{name} {' '.join(prose)}", _MAX_FACTS)
    room = limit - count(_SEPARATOR + ", ".join(reserved)) if reserved else limit
    text = ""
    for piece in prose:
        if not piece or piece[:_KNOWN] in name or piece[:_KNOWN] in text:
            continue
        longer = f"{text}; {piece}" if text else piece
        if count(longer) > room:
            text = _cut(longer, room, count) or text
            break
        text = longer
    room = limit - count(text) if text else limit  # `_append_facts` counts the separators
    return _append_facts(text, _pick_facts(ordered, room, count, f"{name} {text}", _MAX_FACTS), limit, count)


def _cut(text: str, limit: int, count: Count) -> str:
    """Return the text cut at the end of a clause or a word within `limit` tokens; nothing if too little remains."""
    start = shorten_to(text, limit - 1, count)
    start = clip_clause(text, len(start) + 1) if start else ""
    return start if len(start) >= _KNOWN and count(start) <= limit else ""


def _append_facts(text: str, taken: list[str], limit: int, count: Count) -> str:
    while True:
        whole = _SEPARATOR.join(filter(None, (text, ", ".join(taken))))
        if not taken or count(whole) <= limit:
            return whole
        taken = taken[:-1]  # joined text can have a few more tokens than its pieces


def _pick_facts(ordered: Iterable[str], room: int, count: Count, known: str, most: int = _MAX_LISTED) -> list[str]:
    """Return the first facts, at most `most`, that fit the room and do not occur in `known`."""
    taken: list[str] = []
    tries = _TRIES
    for fact in ordered:
        if room <= 0 or not tries or len(taken) == most:
            break
        if len(fact) > 6 * room or (size := count(f", {fact}")) > room:
            tries -= 1
        elif not occurs_in(fact, known) and not any(occurs_in(fact, other) for other in taken):
            taken.append(fact)
            room -= size
    return taken


def _first_sentence(text: str) -> str:
    """Return the first sentence that says something, or its beginning."""
    sentence = make_title(collapse_whitespace(clip_at_word(text, 4 * _SENTENCE)), _SENTENCE)
    return sentence if len(sentence) >= _MIN_TITLE or not sentence.isascii() else ""


def restore_summaries(plan: Plan, lines: Iterable[PageRecord], most: int, count: Count) -> bool:
    """Plan summaries for lines that lost theirs because a page was taken out of them; return whether there are any."""
    bare = [page for page in lines if not page.header.description]
    bare = [page for page in bare if page.header.line_tokens and not page.header.pinned]
    for page in bare:
        _summarise(plan, page, max_summary_tokens(most), count)
    return bool(bare)


def _summarise(plan: Plan, page: PageRecord, most: int, count: Count) -> PageRecord:
    inner = list(plan.members(page.key)) if page.header.folder else [page]
    inner = [
        child if child.header.description or not child.header.folder else _summarise(plan, child, most, count)
        for child in inner
    ]
    if any(child.header.folder for child in inner):
        text = summarise_chapters([(child.header.name, child.header.description) for child in inner], most, count)
    else:
        check, messages = check_facts(plan, inner)
        text = summarise_turns(page.header.name, messages, check, summary_allowance(page.header.tokens, most), count)[0]
    return plan.change(page, description=text, summary_tokens=count(text))


def apply_model_summaries(plan: Plan, ready: Mapping[int, SummaryRecord], count: Count) -> None:
    """Plan to use summaries of the summariser where the page has not changed since."""
    for key, record in sorted(ready.items()):
        page = plan.page(key)
        if not is_folded(page) or page_version(plan, page) != record.version:
            continue
        pages = [page] if page.header.numbers or page.header.body else list(plan.members(page.key))
        check = FactCheck() if any(inner.header.folder for inner in pages) else check_facts(plan, pages)[0]
        text = adopt_summary(page.header.name, plan.redact(record.summary), check, record.tokens, count)
        if text:
            page = plan.change(page, description=text, summary_tokens=count(text))
            plan.change(page, line_tokens=count(page_line(plan.index(page.key), page.header)))


def is_folded(page: PageRecord | Gone | None) -> TypeGuard[PageRecord]:
    if not isinstance(page, PageRecord):
        return False
    return page.header.visibility is Visibility.HIDDEN and page.header.line_tokens > 0


def page_version(reader: Reader, page: PageRecord) -> bytes:
    """Return the digest of the state of a page that must be the same for a summary to be valid."""
    header = page.header
    inner = [(child.key, tuple(child.header.numbers), child.header.body) for child in _members(reader, page)]
    state = header.name, header.description, tuple(header.numbers), header.body, header.tokens, header.created, inner
    return page_digest(state)


def source_text(reader: Reader, page: PageRecord) -> str:
    """Return the text that a page folds: the messages with their speakers, or the lines of its chapters."""
    text = "\n".join(_page_texts(reader, _members(reader, page) or [page]))
    if len(text) <= _MAX_CHARACTERS:
        return text
    half = _MAX_CHARACTERS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def _page_texts(reader: Reader, pages: Sequence[PageRecord]) -> Iterator[str]:
    for page in pages:
        header = page.header
        if header.folder:
            yield f" {header.name}: {header.description}"  # indented: only speakers begin at the margin
        elif header.numbers:
            yield quote_messages(reader.message(number).message for number in header.numbers)
        elif header.body:
            yield indent_lines(reader.body(header.body))


def _members(reader: Reader, page: PageRecord) -> list[PageRecord]:
    return list(reader.members(page.key)) if page.header.folder else []
