"""A scripted model that fixes bugs: it decides by the view and has no memory between two calls.

It changes one operator at a time in the function that a failing test calls, and reverts changes that did not help. Its
next ideas are in the todo window, the current code is in the file window, and older findings are in the context.
"""

import html
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from parts.scripted_model import Call, MessageBuilder, ParsedView

CHANGES = (
    (" // ", " % "),
    (" % ", " // "),
    (" - ", " + "),
    (" * ", " + "),
    (" + ", " * "),
    ("max(", "min("),
    (" > ", " >= "),
)
_WINDOW = re.compile(r'<Window id="(\w+)".*?(?:<Content>(.*?)</Content>|expand_details\("(.*?)"\))', re.DOTALL)
_ITEM = re.compile(r'<item id="(\d+)">(.*?)</item>', re.DOTALL)
_ENTRY = re.compile(r"(\S+):(\d+) in (\w+): '(.+)' becomes '(.+)'")


class Idea(NamedTuple):
    """An entry of the todo list: change one operator in one line of a function."""

    number: int
    path: str
    line: int
    function: str
    old: str
    new: str


class Repairer:
    """Takes messages in the form of OpenAI's chat completions and returns one."""

    def __init__(self) -> None:
        self._builder = MessageBuilder()

    def __call__(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        return self._builder.build(Bench(messages).decide())


class Bench(ParsedView):
    """The view with its windows: the file under repair and the remaining ideas."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        super().__init__(messages)
        self.since = [seen for seen in self.since if seen.name != "expand_details"]
        self.seen = [seen for seen in self.seen if seen.name != "expand_details"]
        newest = {name: (html.unescape(text), page) for name, text, page in _WINDOW.findall(self.text)}
        self.windows = {name: text for name, (text, _) in newest.items()}
        self.pages = [page for _, page in newest.values() if page]
        """The pages of the windows that are only a line."""
        self.ideas = [idea for idea in map(_idea, _ITEM.findall(self.window("todo"))) if idea]

    def window(self, app: str) -> str:
        """Return the content of an app's window."""
        return next((text for name, text in self.windows.items() if name.startswith(app)), "")

    def decide(self) -> str | list[Call]:
        """Return the next step: calls or the answer."""
        if "CHANGES.md" in self.asked:
            return self._report()
        if "tests" not in self.asked:
            return "I will keep that in mind."
        if self.pages:
            return [("expand_details", {"page": page}) for page in self.pages]
        run = next((seen for seen in reversed(self.since) if seen.name == "run_tests"), None)
        if run is None and not self.ideas:
            return [("run_tests", {})]
        if run is not None and " passed" in run.result.splitlines()[0]:
            return self._cleared() or "All tests pass."
        latest = self.seen[-1]
        if latest.name == "run_tests":
            return self._after_run(latest.result)
        if latest.name == "edit_file":
            return [("run_tests", {})]
        if latest.name == "search":
            return [_window(self._id("files"), "show", path=latest.result.split(":")[0])]
        if latest.arguments.get("action") == "show":
            return [_window(self._id("todo"), "add", text=text) for text in self._new_ideas()]
        return [self._edit()] if self.ideas else "I have no more ideas."

    def _after_run(self, result: str) -> list[Call]:
        """Go to the function that the first failing test calls. Keep a change that fixed it, else revert it."""
        if not self.ideas:
            return [("search", {"text": f"def {_suspect(result)}("})]
        if re.search(rf"\b{self.ideas[0].function}\(", result):
            return [self._edit(back=True), _window(self._id("todo"), "delete", index=self.ideas[0].number)]
        return [*self._cleared(), ("search", {"text": f"def {_suspect(result)}("})]

    def _cleared(self) -> list[Call]:
        """Return the calls that empty the todo list."""
        return [_window(self._id("todo"), "delete", index=idea.number) for idea in self.ideas]

    def _edit(self, *, back: bool = False) -> Call:
        """Change the line of the first idea, or change it back, according to the file window."""
        idea = self.ideas[0]
        line, (old, new) = self._code(idea.line), (idea.new, idea.old) if back else (idea.old, idea.new)
        return "edit_file", {"path": idea.path, "old": line, "new": line.replace(old, new, 1)}

    def _new_ideas(self) -> Iterator[str]:
        """Return possible changes in the function that the last search found, last lines first."""
        found = next(seen.result for seen in reversed(self.seen) if seen.name == "search")
        path, number, line = found.splitlines()[0].split(":")[:3]
        function = line.split("(")[0].split()[-1]
        for at in range(int(number) + 8, int(number), -1):
            code = self._code(at)
            inside = not any(self._code(above).startswith("def ") for above in range(int(number) + 1, at + 1))
            for old, new in CHANGES if inside and '"""' not in code else ():
                if old in code:
                    yield f"{path}:{at} in {function}: '{old}' becomes '{new}'"

    def _code(self, number: int) -> str:
        """Return a line of the file from its window."""
        found = re.search(rf"^ ?{number} (.*)$", self.window("files"), re.MULTILINE)
        return str(found[1]) if found else ""

    def _id(self, app: str) -> str:
        return next(str(name) for name in self.windows if name.startswith(app))

    def _report(self) -> str | list[Call]:
        """Write the first failure under the ticket's name. Search for them if the view no longer shows them."""
        latest = self.since[-1] if self.since else None
        if latest and latest.name == "edit_file":
            return "CHANGES.md tells which tests failed at first."
        first = next((seen.result for seen in self.seen if "run 1: " in seen.result and "FAIL: " in seen.result), "")
        ticket = re.search(r"[A-Z]+-\d{4}", self.text)
        if not ticket:
            return [("find", {"query": "ticket"})]
        if not first and latest and latest.name == "find":
            return [("read_page", {"page": latest.result[1:].split("]")[0]})]
        if not first:
            return [("find", {"query": '"run 1"'})]
        failed = "".join(f"- {name}\n" for name in re.findall(r"FAIL: (\w+)", first))
        return [("edit_file", {"path": "CHANGES.md", "old": "", "new": f"{ticket[0]}: mended\n{failed}"})]


def _idea(item: tuple[str, str]) -> Idea | None:
    found = _ENTRY.search(item[1])
    return Idea(int(item[0]), found[1], int(found[2]), *found.groups()[2:]) if found else None


def _window(window: str, action: str, **arguments: Any) -> Call:
    return "window", {"do": "action", "id": window, "action": action, "arguments": arguments}


def _suspect(result: str) -> str:
    """Return the function that the first failing test calls."""
    return next(str(name) for name in re.findall(r"(\w+)\(", result) if name != "assertEqual")
