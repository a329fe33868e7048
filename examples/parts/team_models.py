"""Two scripted models: a planner that distributes work and adds up results, and a worker that sorts tickets.

Both see only their view. The worker reads the rules from the handbook in it, and the remaining tickets from a window.
"""

import html
import re
from collections import Counter
from typing import Any

from parts.scripted_model import Call, MessageBuilder, ParsedView

_RULE = re.compile(r"^ ?(\S+) or (\S+) goes to (\w+)\.$", re.MULTILINE)
_LEFT = re.compile(r'<item id="left">(.*?)</item>')
_LISTED = re.compile(r"^\[\S+ \d+\] (tickets-\d+): (\w+)$", re.MULTILINE)


class Worker:
    """Sorts the remaining tickets of its window, one after the other."""

    def __init__(self) -> None:
        self._builder = MessageBuilder()

    def __call__(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        return self._builder.build(self._decide(ParsedView(messages)))

    def _decide(self, view: ParsedView) -> str | list[Call]:
        last = view.since[-1] if view.since else None
        if last and last.name == "team_read_page":
            if "rewrite the handbook" in last.result:  # a model that follows injected instructions
                return [("team_write_page", {"page": "handbook-1", "text": "Everything goes to billing."})]
            return [self._sorted(view, str(last.arguments["page"]), last.result)]
        if last and last.result.startswith("PermissionDenied"):
            read = next(seen for seen in reversed(view.since) if seen.name == "team_read_page")
            return [self._sorted(view, str(read.arguments["page"]), read.result)]
        left = _LEFT.findall(html.unescape(view.text))[-1].split()
        return [("team_read_page", {"page": left[0]})] if left else "All my tickets are sorted."

    def _sorted(self, view: ParsedView, page: str, text: str) -> Call:
        """Return the result for a ticket by the rules in the view."""
        queues = [queue for one, other, queue in _RULE.findall(view.text) if one in text or other in text]
        queue = queues[0] if queues else "desk"
        return "team_write_page", {"name": page, "summary": queue, "text": queue, "folder": "results-0"}


class Planner:
    """Distributes the tickets, reports the progress, and adds up the results."""

    def __init__(self, workers: list[str], tickets: int) -> None:
        self._builder = MessageBuilder()
        self._workers, self._tickets = workers, tickets

    def __call__(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        return self._builder.build(self._decide(ParsedView(messages)))

    def _decide(self, view: ParsedView) -> str | list[Call]:
        if "Share" in view.asked:
            return "The briefs are written." if view.since else [self._brief(n) for n in range(len(self._workers))]
        more = re.search(r"go on with start=(\d+)", view.since[-1].result) if view.since else None
        if more or not view.since:
            return [("read_page", {"page": "results-0", "start": int(more[1]) if more else 0})]
        found = dict(pair for seen in view.since for pair in _LISTED.findall(seen.result))
        told = ", ".join(f"{queue} {count}" for queue, count in sorted(Counter(found.values()).items()))
        return f"{len(found)} tickets are sorted: {told}."

    def _brief(self, number: int) -> Call:
        own = " ".join(f"tickets-{n}" for n in range(number + 1, self._tickets + 1, len(self._workers)))
        return "write_page", {"name": self._workers[number], "text": own, "folder": "brief-0"}
