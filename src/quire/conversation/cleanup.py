"""Planning a cleanup: what was marked is destroyed, and the messages that are left are numbered anew."""

from quire.conversation.results import Cleanup
from quire.errors import InvalidOperation
from quire.numbering import Numbering, merge_gaps
from quire.pages import Mark
from quire.plan import Plan
from quire.records import GAPS
from quire.storage.base import MESSAGE


def cleanup(plan: Plan) -> Cleanup:
    """Destroy the messages that are out of the conversation for good. Nothing before it can be undone afterwards."""
    if plan.batches():
        raise InvalidOperation(f"Batch {len(plan.batches())} is open: end or commit it, then clean up.")
    numbering = plan.numbering()
    kept: set[int] = set()
    marked = []
    for page in plan.segment_pages():
        if page.header.mark is Mark.NONE:
            kept.update(page.header.numbers)
        else:
            marked.append(page)
    gone = [number for number in numbering.numbers() if number not in kept]
    if not gone:
        return Cleanup(renumbered={index: index for index in range(numbering.length)})
    for page in marked:
        plan.remove(page.key)
    old = plan.note(GAPS)
    gaps = merge_gaps(old.gaps if old else (), gone)
    plan.put_note(GAPS, gaps=gaps)
    plan.destroyed.update(gone)
    plan.horizon = plan.seq
    plan.settle()
    fresh = Numbering(gaps, plan.next_message)
    left = (number for number in numbering.numbers() if number in kept)
    pairs = ((numbering.index(number), fresh.index(number)) for number in left)
    return Cleanup(
        renumbered={was: now for was, now in pairs if was is not None and now is not None},
        messages=len(gone),
        pages=len(marked),
        bytes=sum(_size(plan, number) for number in gone),
    )


def _size(plan: Plan, number: int) -> int:
    record = plan.state.storage.get(plan.state.context, MESSAGE, number)
    return len(record.value) if record else 0
