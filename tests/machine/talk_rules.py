"""How the machine chooses and runs operations on messages: arrivals, edits, batches."""

from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st

from quire import Context
from tests.machine.messages import Change
from tests.machine.observed import call_form, provider_form
from tests.machine.page_rules import Draw, PageRules, numbers, often
from tests.machine.sidebyside import change
from tests.machine.state import Said

MAX_MESSAGES = 30
CALLS = ("c1", "c2", "c3")
LONG = " kestrel harbour" * 8
EDIT = ("insert", "delete", "delete", "replace", "replace", "half", "compress", "compress")
BATCH = ("start", "start", "end", "commit")

calls = st.lists(st.sampled_from(CALLS), min_size=1, max_size=3, unique=True).map(tuple)
summaries = st.sampled_from((None, None, "They talked."))


class TalkRules(PageRules):
    """Operations on messages."""

    # Choices

    def _words(self, word: str) -> str:
        """Return a text that no other message has."""
        return f"{word} {len(self.model.messages)} of {self.fork}{LONG}"

    def _editable(self) -> list[int]:
        """Return the unprotected messages in the conversation."""
        model = self.model
        waiting = model.open_exchange()
        pages = [page for page in model.attached("usr") if not page.pinned and page != waiting]
        return sorted(model.indices(number for page in pages for number in page.numbers))

    def _index(self, draw: Draw[Any]) -> int:
        """Return a message, mostly one that can be edited, sometimes one that does not exist."""
        usual, length = self._editable(), len(self.model.alive())
        number: int = draw(numbers)
        if number < 80 and usual:
            return usual[number % len(usual)]
        return number % length if length and number < 97 else length + number - 98

    def _indices(self, draw: Draw[Any]) -> list[int]:
        """Return some messages, mostly neighbours."""
        usual, count = self._editable(), draw(st.integers(1, 4))
        first = draw(numbers) % max(len(usual), 1)
        found = usual[first : first + count] if draw(numbers) < 90 else []
        return found + ([self._index(draw)] if not found or draw(numbers) < 15 else [])

    def _message(self, draw: Draw[Any]) -> Said:
        match draw(st.sampled_from(("user", "assistant", "calls", "system", "tool"))):
            case "calls":
                return Said("assistant", draw(st.sampled_from((None, "Looking."))), draw(calls))
            case "tool":
                return self._answer(draw)
            case role:
                return Said(role, self._words("Noted"))

    def _answer(self, draw: Draw[Any]) -> Said:
        waiting = self.model.pending_calls()
        known = draw(st.sampled_from((*CALLS, *waiting * 4, "nobody")))
        return Said("tool", draw(st.sampled_from(("sunny", "sunny", "rain"))), answers=known)

    # Messages

    def _add(self, said: Said, call: Callable[[Context], object]) -> None:
        if len(self.model.messages) < MAX_MESSAGES:
            self.step(said.role if not said.calls else "calls", lambda: self.model.add(said), call, said)

    def _user(self, draw: Draw[Any]) -> None:
        said = Said("user", self._words("Asked"))
        self._add(said, lambda context: context.user(said.content))

    def _assistant(self, draw: Draw[Any]) -> None:
        said = Said("assistant", self._words("Told"))
        self._add(said, lambda context: context.assistant(said.content))

    def _calls(self, draw: Draw[Any]) -> None:
        said = Said("assistant", self._words("Looked") if draw(st.booleans()) else None, draw(calls))
        self._add(said, lambda context: context.assistant(said.content, [call_form(call) for call in said.calls]))

    def _with_id(self, draw: Draw[Any]) -> None:
        """Add messages with an id, some of which are in the conversation already."""
        said = [self._message(draw) for _ in range(draw(st.sampled_from((1, 1, 2))))]
        given = draw(st.sampled_from(("a", "b", "a.2", "r1#1")))
        self._several_of(said, given)

    def _several(self, draw: Draw[Any]) -> None:
        """Add some messages together: if one of them is refused, none is added."""
        self._several_of([self._message(draw) for _ in range(draw(st.integers(1, 3)))], None)

    def _several_of(self, said: Sequence[Said], given: str | None) -> None:
        forms = [provider_form(each) for each in said]
        wanted: Callable[[], int] = lambda: self.model.add(*said, given=given)  # noqa: E731
        self.step("add", wanted, lambda c: c.add(forms, id=given), said, given)

    def _result(self, draw: Draw[Any]) -> None:
        if not draw(often) or self.model.pending_calls():
            said = self._answer(draw)
            self._add(said, lambda context: context.tool_result(str(said.answers), said.content))

    def _prompt(self, draw: Draw[Any]) -> None:
        text, name = draw(st.sampled_from(("Be brief.", "Be kind."))), draw(st.sampled_from((None, None, "rules")))
        self.step("system", lambda: self.model.system(text, name), lambda c: c.system(text, name), text, name)

    def _close(self, draw: Draw[Any]) -> None:
        self.step("close_calls", self.model.close_calls, lambda c: [call.id for call in c.close_calls()])

    # Edits

    def _edit(self, operation: str, *what: Any) -> None:
        """Run a modification of the same name and arguments on the model and on the conversation."""
        given = [_forms(each) for each in what]
        self.step(
            operation,
            lambda: getattr(self.model, operation)(*what),
            lambda c: change(getattr(c.conversation, operation)(*given)),
            *what,
        )

    def _insert(self, draw: Draw[Any]) -> None:
        said = [self._message(draw) for _ in range(draw(st.sampled_from((1, 1, 1, 2))))]
        self._edit("insert", said, self._index(draw) if draw(often) else None)

    def _delete(self, draw: Draw[Any]) -> None:
        self._edit("delete", self._indices(draw))

    def _replace(self, draw: Draw[Any]) -> None:
        indices = self._indices(draw)[: draw(st.integers(1, 2))]
        self._edit("replace", indices, [self._message(draw) for _ in range(draw(st.sampled_from((1, 1, 1, 2))))])

    def _half(self, draw: Draw[Any]) -> None:
        """Replace one message of a tool exchange by one for the same calls."""
        model = self.model
        halves = [n for n in model.in_place() if model.messages[n].calls or model.messages[n].answers]
        if halves:
            number = draw(st.sampled_from(halves))
            said = model.messages[number]._replace(content=self._words("Corrected"))
            self._edit("replace", list(model.indices([number])), [said])

    def _compress(self, draw: Draw[Any]) -> None:
        self._edit("compress", self._indices(draw), draw(summaries))

    def _modify(self, draw: Draw[Any]) -> None:
        """Apply several modifications as data; often one of them is refused, and then none is applied."""
        steps = [self._modification(draw) for _ in range(draw(st.integers(1, 3)))]
        model = self.model

        def wanted() -> list[Change]:
            with model.all_or_nothing():
                return [model.do(act) for _, act in steps]

        forms = [form for form, _ in steps]
        self.act("modify", wanted, lambda c: [change(done) for done in c.conversation.modify(forms)], forms)

    def _modification(self, draw: Draw[Any]) -> tuple[dict[str, Any], Callable[[], Change]]:
        model, indices, said = self.model, self._indices(draw), [self._message(draw)]
        first, text, target = indices[:1], draw(summaries), draw(st.integers(0, 2))
        what = draw(st.sampled_from(("insert", "delete", "replace", "compress", "batch_start", "batch_end", "commit")))
        match what:
            case "insert":
                form: dict[str, Any] = {"indices": first, "data": provider_form(said[0])}
                act: Callable[[], Change] = lambda: model.insert(said, first[0])  # noqa: E731
            case "delete":
                form, act = {"indices": indices}, lambda: model.delete(indices)
            case "replace":
                form, act = {"indices": first, "data": [provider_form(said[0])]}, lambda: model.replace(first, said)
            case "compress":
                form, act = {"indices": indices, "data": text}, lambda: model.compress(indices, text)
            case "batch_start":
                form, act = {"indices": first}, lambda: model.batch_start(first[0])
            case "batch_end":
                form, act = {"batch": target}, lambda: model.batch_end(target)
            case _:
                return {"operation": "batch_commit"}, model.batch_commit
        return {"operation": what} | form, act

    # Batches

    def _start(self, draw: Draw[Any]) -> None:
        self._edit("batch_start", self._index(draw) if draw(st.booleans()) else None)

    def _end(self, draw: Draw[Any]) -> None:
        self._edit("batch_end", draw(st.integers(-1, len(self.model.state.batches))))

    def _commit(self, draw: Draw[Any]) -> None:
        self._edit("batch_commit")


def _forms(value: Any) -> Any:
    """Return an argument as quire gets it: messages in a provider's form."""
    messages = isinstance(value, list) and all(isinstance(each, Said) for each in value)
    return [provider_form(each) for each in value] if messages else value
