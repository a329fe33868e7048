"""What can be done with what was folded: find it, ask why it is not shown, open it, undo the fold."""

from quire import Context, DetailPage, Hit
from quire.cli.demo.talk import Question
from quire.cli.replaying.stage import Stage
from quire.cli.width import cut, width

_ROOMY = 10
"""So many budgets have room for everything in this conversation."""


def look_back(context: Context, question: Question, stage: Stage) -> None:
    """Find an early fact, and open the folded page that holds it."""
    paint = stage.paint
    hit = next(hit for hit in context.find(question.find) if _is_folded(context, hit))
    answer = next(line for line in context.pages.detail(hit.index).splitlines() if question.answer in line)
    found = f"find({question.find!r}) → "
    room = stage.columns - width(found) - len(hit.index) - 2
    stage.line(f"{found}{paint.cyan(hit.index)}: {paint.dim(cut(answer, room))}")
    why = context.why(hit.index)
    stage.line(f"why({hit.index!r}) → {why.rule}; {why.tokens:,} tokens: {paint.green(why.call)}")
    before = context.render(preview=True)
    context.pages.expand(hit.index)
    opened = context.render(max_tokens=_ROOMY * context.budget)
    shown = next(page for page in opened.pages if page.index == hit.index)
    stage.line(f"expand({hit.index!r}) → {shown.granularity}: {before.tokens:,} → {opened.tokens:,} tokens, given room")
    context.undo(context.seq)
    closed = context.render(preview=True).openai() == before.openai()
    stage.line(f"undo({context.seq - 1}) → closed again, {_bytes(same=closed)}")


def undo_fold(context: Context, stage: Stage) -> None:
    """Undo the last fold, look, and redo it."""
    before = context.render(preview=True)
    fold = list(context.history(operation="fold"))[-1]
    undone = context.undo(fold)
    whole = context.render(max_tokens=_ROOMY * context.budget)
    stage.line(
        f"undo({fold.seq}), the last fold → its {len(fold.pages)} pages as they were:"
        f" {before.tokens:,} → {whole.tokens:,} tokens"
    )
    context.undo(undone)
    same = context.render(preview=True).openai() == before.openai()
    stage.line(f"undo({undone}), redo → {_bytes(same=same)}")


def _is_folded(context: Context, hit: Hit) -> bool:
    leaf = isinstance(context.pages.get_page(hit.index), DetailPage)
    return leaf and context.why(hit.index).shown == "no"


def _bytes(*, same: bool) -> str:
    return "the same view, byte for byte" if same else "another view"
