"""Apps for the tests."""

from typing import Any

from quire import App, Close, Refresh, action
from quire.windows.apps import Todo


class Aufgaben(Todo):
    """The todo list of the design document, in its words."""

    name = "todo"
    description = "待办事项管理应用"
    closing = "关闭"

    @action("添加条目")
    def add(self, text: str) -> str:
        return super().add(text)

    @action("删除条目")
    def delete(self, index: int) -> str:
        return super().delete(index)

    done = None  # type: ignore[assignment]


class Counter(App):
    """Counts; shows its number in a unique form."""

    name = "counter"
    description = "A counter"

    def __init__(self) -> None:
        self.number = 0
        self.padding = ""

    def open(self, start: int = 0, padding: int = 0) -> None:
        self.number = start
        self.padding = "word " * padding

    def content(self) -> str:
        return f"#{self.id}={self.number}# {self.padding}".strip()

    @action("Count on")
    def count(self, by: int = 1) -> str:
        self.number += by
        return f"{self.number} now"

    @action("Count on, and be refreshed")
    def renew(self) -> Refresh:
        self.number += 1
        return Refresh("renewed")

    @action("Have done")
    def finish(self, summary: str = "") -> Close:
        return Close(summary or f"counted to {self.number}", "finished")

    @action("Change and fail")
    def fail(self) -> None:
        self.number += 1_000
        raise RuntimeError("counted too far")

    def save(self) -> dict[str, Any]:
        return {"number": self.number, "padding": self.padding}

    def restore(self, saved: Any) -> None:
        self.number, self.padding = saved["number"], saved["padding"]
