"""The figures of the two READMEs, written between their marks from the kept results."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.peers.registry import FLOOR, NOTHING, OURS
from bench.peers.results import Cell, Measured
from bench.peers.tables import multiple

ROOT = Path(__file__).resolve().parent.parent
FILES = (ROOT / "README.md", ROOT / "README.zh-CN.md")
BEGIN, END = "<!-- figures: written by python -m bench -->\n", "<!-- end of the figures -->\n"
_HEADS = ("| | quire | others |\n", "| | quire | 其他 |\n")
_NEEDED = {"peers", "view", "recall", "book", "lives"}
_LIFE, _LENGTH = "long/8000", "10000"
_TRIMS = ("langchain trim_messages, exact", "langchain SummarizationMiddleware", NOTHING)
_WAITS = ("newest", "trim", "summarise", "compact", "unmanaged")
_MEMORIES = {"BM25": "bm25s over turns", "newest turns": "recency"}
_CHINESE = {
    r" \((\d+%) cached\)": r"（\1 来自缓存）",
    r"(\d+) of (\d+) peers have some: ([\d,]+) to ([\d,]+)": r"\2 个同类库中有 \1 个出现过：\3 到 \4 个",
    r"(\d+) of ([\d,]+)": r"\2 个中 \1 个",
    ", \\+ vectors": "，加向量",
    "newest turns": "最近的轮次",
    "no management": "不做管理",
    ", exact ": "（精确计数）",
    ", limit ": "（limit）",
    r"(?<=\S), ": "，",
}
"""The words of the results in Chinese, as patterns in the order of their use."""

Kept = Mapping[str, Mapping[str, Any]]


class Row(NamedTuple):
    """One line: the measured quantity in English and in Chinese, the result, and the results of others."""

    english: str
    chinese: str
    ours: str
    others: str = ""


def write(results: Kept) -> None:
    """Write the figures into both files."""
    for language, file in enumerate(FILES):
        file.write_text(with_figures(file.read_text(encoding="utf-8"), results, language), encoding="utf-8")


def with_figures(text: str, results: Kept, language: int) -> str:
    """A README with its figures; the text as it is if there is no place for them, or not all was measured."""
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end or not results.keys() >= _NEEDED:
        return text
    lines = [f"| {row[language]} | {row.ours} | {row.others} |\n" for row in rows(results)]
    if language:
        lines = [_in_chinese(line) for line in lines]
    return "".join((before, mark, _HEADS[language], "|---|---|---|\n", *lines, end, after))


def _in_chinese(line: str) -> str:
    for pattern, chinese in _CHINESE.items():
        line = re.sub(pattern, chinese, line)
    return line


def rows(results: Kept) -> Iterator[Row]:
    """Return the lines from the measurements."""
    measured = Measured(results["peers"])
    yield _bill(measured)
    yield _first_token(results["lives"]["recordings"]["airline"])
    yield _refused(measured)
    yield Row(
        "one durable turn in a conversation of 10,000 messages, × raw floor",
        "10,000 条消息的对话中一个持久化轮次，相对于裸 SQLite 的倍数",
        *_beside(measured, "turn", f"{_LENGTH}/8000", "ratio"),
    )
    yield Row(
        "resuming 10,000 messages in a new process, × raw floor",
        "新进程恢复 10,000 条消息，相对于裸 SQLite 的倍数",
        *_beside(measured, "resume", _LENGTH, "milliseconds"),
    )
    lost = _figure(results, "view", "facts of folded text")
    yield Row(
        "facts lost by folding: not in a summary and not found by search",
        "折叠丢失的事实：既不在摘要中，也搜索不到",
        f"{lost['value']:.0f} {lost['note'].partition(' in ')[0]}",
    )
    yield Row(
        "questions about months of dialogue with all evidence in a view of 1,000 tokens",
        "关于数月对话的问题：1,000 token 的视图中证据齐全的比例",
        ", + vectors ".join(filter(None, (_shown(results, who) for who in ("quire", "quire + wordllama")))),
        ", ".join(f"{name} {_shown(results, who)}" for name, who in _MEMORIES.items()),
    )
    opening = _figure(results, "book", "open 1,000,000 pages")
    yield Row(
        "opening 1,000,000 pages and reading one", "打开 1,000,000 页并读取其中一页", f"{opening['value']:.1f} ms"
    )


def _bill(measured: Measured) -> Row:
    ours = _cell(measured, "life", OURS, _LIFE)
    found = ((name, measured.get("life", name, _LIFE)) for name in _TRIMS)
    others = [f"{name} {multiple(cell['billed'] / ours['billed'])}" for name, cell in found if cell]
    share = f"{ours['cached']:.0%} cached"
    return Row(
        "billed tokens of long conversations at 8k", "8k 预算下长对话的计费 token", f"1× ({share})", ", ".join(others)
    )


def _first_token(lives: Sequence[Mapping[str, Any]]) -> Row:
    """Return the times to the first token of all calls at 8k, with the prefill times of a model of 8B."""
    found = {row["strategy"]: row for row in lives if row["budget"] == 8_000}
    seconds = {name: f"{row['prefill_ms']['8B']['total'] / 1_000:,.0f} s" for name, row in found.items()}
    calls = found[OURS]["calls"]
    return Row(
        f"time to the first token, sum of {calls:,} calls at 8k (model with 8 billion parameters, measured on an H200)",
        f"8k 预算下 {calls:,} 次调用的首 token 延迟总和（80 亿参数的模型，在 H200 上实测）",
        seconds[OURS],
        ", ".join(f"{name} {seconds[name]}" for name in _WAITS),
    )


def _refused(measured: Measured) -> Row:
    """Return, over all cases, the requests that a provider refuses and those above the budget."""
    cases = measured.cases("life")
    wrong: dict[str, int] = {}
    for entry in measured.entries("life"):
        cells = [cell for case in cases if (cell := measured.get("life", entry.name, case))]
        if cells and entry.name not in (FLOOR, NOTHING):
            wrong[entry.name] = sum(max(cell["refused"], cell["over"]) for cell in cells)
    calls = sum(_cell(measured, "life", OURS, case)["calls"] for case in cases)
    ours = wrong.pop(OURS)
    some = sorted(count for count in wrong.values() if count)
    summary = (
        f"{len(some)} of {len(wrong)} peers have some: {some[0]:,} to {some[-1]:,}"
        if some
        else f"{len(wrong)} peers: 0"
    )
    return Row(
        "requests that a provider refuses or that exceed the budget, 4k to 32k",
        "被服务商拒绝或超出预算的请求，4k 到 32k",
        f"{ours} of {calls:,}",
        summary,
    )


def _beside(measured: Measured, work: str, case: str, field: str) -> tuple[str, str]:
    """quire's ratio to the raw floor, and the nearest and the farthest of those that keep their messages on disk."""
    found = [
        (cell[field], entry.name)
        for entry in measured.entries(work)
        if entry.durable and (cell := measured.get(work, entry.name, case))
    ]
    unit = 1.0 if field == "ratio" else _cell(measured, work, FLOOR, case)[field]
    peers = sorted(pair for pair in found if not pair[1].startswith((OURS, FLOOR)))
    ours = _cell(measured, work, OURS, case)[field]
    return multiple(ours / unit), ", ".join(f"{name} {multiple(value / unit)}" for value, name in (peers[0], peers[-1]))


def _cell(measured: Measured, work: str, peer: str, case: str) -> Cell:
    cell = measured.get(work, peer, case)
    if cell is None:
        raise SystemExit(f"{work} of {peer}, {case}, was not measured: the READMEs need it.")
    return cell


def _figure(results: Kept, topic: str, begins: str) -> Mapping[str, Any]:
    return next(row for row in results[topic]["figures"] if row["name"].startswith(begins))


def _shown(results: Kept, who: str) -> str:
    """Return the share of questions with all evidence in the view; "" if it was not measured."""
    name = f"evidence not all shown, 1,000 tokens: {who}"
    return next((f"{100 - row['value']:.0f} %" for row in results["recall"]["figures"] if row["name"] == name), "")
