"""What else a context does: refuse, try something out, keep notes, branch, and survive."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import which

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
    left = len(context.messages())
    stage.line(f"temporary(): {inside} messages in the block, {left} after it: the prompt and the {left - 1}")
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
    command = _command()
    stage.line(f"{command} tree {path} -c {name}")
    stage.line(f"{command} view {path} -c {name} -b {budget / 1_000:g}k")
    stage.line(f"{command} serve {path}")


def _command() -> str:
    """What to type for `quire` here: the word itself where it is on the path, or the script of this interpreter."""
    if which("quire"):
        return "quire"
    script = which("quire", path=str(Path(sys.executable).parent))
    return _shortest(script) if script else f"{_shortest(sys.executable)} -m quire"


def _shortest(path: str) -> str:
    """A path from here, or from the root if that is shorter."""
    return min(os.path.relpath(path), path, key=len)


def _refused(stage: Stage, action: Callable[[], None]) -> None:
    try:
        action()
    except QuireError as error:
        stage.line(f"{stage.paint.red(error.code)}: {cut(str(error), stage.columns - len(error.code) - 2)}")
