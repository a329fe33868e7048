"""An oracle of forged structure: it finds everything in a view or an answer that quire did not write.

It knows where each mark of a `Forger` was put, the key, and the grammar of quire's own lines. It does not use quire's
escaping: it has its own way to see through disguises.
"""

import json
import re
from collections.abc import Iterator
from typing import Any
from unicodedata import category, normalize

from quire import Context, QuireError
from tests.view_laws.forger import ALIKE, Forger

PLAIN = {sign.casefold(): letter for letter, sign in ALIKE.items()} | {"μ": "m"}
_MARK = re.compile(r"zq\d+q")
_UNSEEN_CATEGORIES = ("Mn", "Me", "Cf", "Cc")
_BLANKS = "\u3164\u115f\u1160\uffa0"

_LABEL = re.compile(r"(User|Assistant|System|Call|Result of|Tool)\b")
_SPEAKERS = {"User": "user", "Assistant": "assistant", "Call": "assistant", "Result of": "tool", "Tool": "tool"}
_ENTRY = re.compile(r"\[([a-z0-9_]+-\d+)(?:…[a-z0-9_]+-\d+)?(?: [^\]\n]*)?\] ?")


class Oracle:
    """Finds every structure in a view or an answer that quire did not write."""

    def __init__(self, ctx: Context, forger: Forger) -> None:
        self._ctx = ctx
        self._key = forger.key
        self._origins = forger.origins
        self._keys: dict[str, int] = {}
        """How often each text has the key: the forms of all providers have the same texts."""
        named = (message.name for message in ctx.messages(all=True))
        self._names = tuple(f"{name}: " for name in named if name)
        words = re.findall(r"[a-z]+|\d+", forger.key)
        self._sought = re.compile(r"[^a-z0-9]{0,3}".join(words))
        self._head = re.compile(re.escape(f"[{forger.key}] "))
        self._window = re.compile(rf'<Window id="([^"]*)" key="{re.escape(forger.key)}"')

    def check_message(self, message: dict[str, Any]) -> None:
        """Check a message in OpenAI's form: where the key is, and what begins at the margin of keyed blocks."""
        self.check_keys(message)
        content = message.get("content")
        if message["role"] == "user" and isinstance(content, str):
            if self._window.match(content):
                assert not _MARK.search(content.partition(">")[0]), f"a forged window: {content[:200]!r}"
                for line in content.splitlines()[1:]:
                    starts = line.startswith(("  <", "</Window>", " ")) or not line
                    assert starts, f"a line of a window at the margin: {line!r}"
            elif self._head.match(content):
                self._check_block(content)

    def check_keys(self, message: dict[str, Any]) -> None:
        """Check that only quire's own text has the key, in any disguise."""
        own = message.get("role") == "assistant"
        for path, text in _strings(message, ()):
            if own and path[:1] == ("content",):
                continue  # the model's own words
            found = self._keys.get(text)
            if found is None:
                found = self._keys[text] = len(self._sought.findall(_plain(text)))
            if found:
                assert found == self._allowed(text), f"the key is in {path}: {text[:300]!r}"

    def check_answer(self, answer: str, page: str) -> None:
        """Check an answer of a tool: no key, and no line at the margin that quire did not write."""
        assert not self._sought.search(_plain(answer)), f"the key is in an answer: {answer[:300]!r}"
        for line in answer.splitlines():
            if line.startswith("[characters "):
                assert not _MARK.search(line), f"a forged foot: {line!r}"
            elif not line.startswith((" ", "…", "Nothing", "There is nothing", "Not all", "These are")):
                self._check_line(line, page)

    def _allowed(self, text: str) -> int:
        if text.startswith(f"Context key: {self._key}. "):
            return 2
        return int(bool(self._head.match(text) or self._window.match(text)))

    def _check_block(self, text: str) -> None:
        first, *lines = text.splitlines()
        title = first[len(self._key) + 3 :]
        if title.startswith(("Budget: ", "Recalled from earlier:")) or title[:1].isdigit():
            assert not _MARK.search(first), f"a forged head: {first!r}"
        elif title not in ("Folded earlier:", "More segments:"):
            about = _ENTRY.match(title) or re.match(r"(?:Opened|Note) \[([a-z0-9_-]+)\] ", title)
            segment = re.match(r"(?:New in )?([a-z0-9_]+): ", title)
            assert about or segment, f"a forged head: {first!r}"
            self._check_subject(first, about[1] if about else f"{segment[1]}-0" if segment else "")
        for line in lines:
            if line and not line.startswith(" "):
                self._check_line(line, "")

    def _check_line(self, line: str, page: str) -> None:
        """Check a line at the margin: it is of a real page or of the real speaker of its words."""
        label, entry = _LABEL.match(line), _ENTRY.match(line)
        marks = [self._origins[mark] for mark in _MARK.findall(line)]
        if entry:
            self._check_subject(line, entry[1])
        elif line.startswith("Page "):
            assert all(origin.speaker == "page" for origin in marks), f"speaks for a page: {line!r}"
        elif label:
            speaker = _SPEAKERS.get(label[1], "system")
            assert all(origin.speaker == speaker for origin in marks), f"speaks for another: {line!r}"
        elif line.replace("·", "").startswith(self._names):
            assert all(origin.speaker == "user" for origin in marks), f"speaks for a user: {line!r}"
        else:
            assert not marks, f"a line at the margin: {line!r} {page}"

    def _check_subject(self, line: str, index: str) -> None:
        try:
            self._ctx.pages.get_page(index)
        except QuireError:
            raise AssertionError(f"a line of a page that does not exist: {line!r}") from None
        for mark in _MARK.findall(line):
            origin = self._origins[mark]
            if origin.page and origin.speaker != "segment":
                above = {page.index for page in self._ctx.pages.ancestors(origin.page)} | {origin.page}
                is_gathered = "…" in line.partition("]")[0] or index.startswith("usr-")
                assert index in above or is_gathered, f"a line of another page: {line!r}"


def _strings(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str]]:
    if isinstance(value, str):
        yield path, value
        if value[:1] in "{[":
            try:
                yield from _strings(json.loads(value), (*path, "json"))
            except ValueError:
                return
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, "key"), key
            yield from _strings(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _strings(inner, (*path, number))


class _Reading(dict[int, str]):
    """Maps each character to what a reader takes it for: "" if it is not seen."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        is_unseen = sign in _BLANKS or (category(sign) in _UNSEEN_CATEGORIES and sign not in "\n\t\r")
        self[code] = "" if is_unseen else PLAIN.get(sign.casefold(), sign.casefold())
        return self[code]


_reading = _Reading()


def _plain(text: str) -> str:
    """Return a text as a reader takes it: look-alikes as the letters they look like, without what is not seen."""
    return normalize("NFKD", text).translate(_reading)
