"""What else a context does: refuse, try something out, keep notes, branch, and survive."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from quire import Context, QuireError
from quire.cli.replaying.stage import Stage
from quire.cli.width import cut


def try_out(context: Context, stage: Stage) -> None:
    """A refusal, a temporary block, a note that is archived and found, a fork."""
    paint, pages = stage.paint, context.pages
    _refused(stage, lambda: pages.hide("sys-1"))
    with context.temporary():
        context.user("Only for this step: answer in French.")
        inside = len(context.messages())
    stage.line(f"temporary(): {inside} messages in the block, {len(context.messages())} after it")
    note = pages.create_detail_page("退款名单", "17 笔退款", "17 笔重复扣款，退款见 PAY-4480。", "mem-0")
    pages.archive(note, cold=True)
    found = context.find("重复扣款 PAY-4480")[0]
    stage.line(f"a note in the cold archive is still found: {paint.cyan(found.index)} {found.name}")
    branch = context.fork("what-if")
    branch.user("And if the gateway kept keys for 72 h?")
    stage.line(f"fork('what-if'): {len(branch.messages())} messages there, {len(context.messages())} here")


def look_again(context: Context, stage: Stage) -> None:
    """What stands after reopening."""
    count, problems = sum(1 for _ in context.pages.list_pages()), context.check()
    stage.line(f"{count} pages, {context.seq} journal entries, check(): {len(problems)} problems")


def try_next(path: Path, name: str, budget: int, stage: Stage) -> None:
    """What a reader can do with the file that was made."""
    python = os.path.relpath(sys.executable)
    stage.line(f"{python} -m quire tree {path} --context {name}")
    stage.line(f"{python} -m quire view {path} --context {name} --budget {budget}")
    stage.line(f"{python} -m quire serve {path}")


def _refused(stage: Stage, action: Callable[[], None]) -> None:
    try:
        action()
    except QuireError as error:
        stage.line(f"{stage.paint.red(error.code)}: {cut(str(error), stage.columns - len(error.code) - 2)}")
