"""Measure search over many short texts, English and Chinese, against a scan that finds all matches."""

import re
import statistics
import time
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from bench.peers.peer import Searcher
from bench.traces import conversation

QUERIES = ("cancel reservation refund", "baggage", "certificate", "no such word here", "编号4321", "退款")
_CHINESE = (
    "用户想取消航班并退款",
    "改签要补差价",
    "会员等级决定行李额度",
    "昨天的会议改到下周三上午",
    "数据库恢复到了上一个检查点",
    "请把报告发给财务部门",
    "温度传感器的读数偏高",
    "仓库里还剩二十箱零件",
)
_REPEATS = 5


def measure(kind: type[Searcher], folder: Path, *, texts: int) -> dict[str, Any]:
    """Return the seconds to store and index, and for each query the median time, the hits and the matches of a scan."""
    corpus = made(texts)
    searcher = kind(folder)
    start = time.perf_counter()
    searcher.take(corpus)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "queries": {query: _asked(searcher, query, corpus) for query in QUERIES}}


def _asked(searcher: Searcher, query: str, corpus: list[str]) -> dict[str, Any]:
    times = []
    found: list[str] = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        found = searcher.find(query)
        times.append(time.perf_counter() - start)
    right = sum(has_all(text, query) for text in found)
    there = sum(has_all(text, query) for text in corpus)
    others = len(found) - right
    return {"milliseconds": statistics.median(times) * 1e3, "right": right, "others": others, "wanted": min(10, there)}


def has_all(text: str, query: str) -> bool:
    """Return True if a text has every word of a query: letters and digits as whole words, Chinese anywhere."""
    return all(re.search(_pattern(word), text, re.IGNORECASE) for word in query.split())


@cache
def _pattern(word: str) -> str:
    before = r"(?<![0-9A-Za-z])" if word[0].isascii() else ""
    after = r"(?![0-9A-Za-z])" if word[-1].isascii() else ""
    return before + re.escape(word) + after


def made(texts: int) -> list[str]:
    """Return numbered sentences of recorded conversations, and as many in Chinese."""
    chance = Random(5)
    spoken = [message["content"][:400] for message in conversation(3_000) if message["content"]]
    english = (f"{spoken[number % len(spoken)]} #{number}" for number in range(texts // 2))
    chinese = (
        f"{chance.choice(_CHINESE)}，编号{number}，{chance.choice(_CHINESE)}。" for number in range(texts - texts // 2)
    )
    found = [*english, *chinese]
    chance.shuffle(found)
    return found
