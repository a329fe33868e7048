"""What an examination of a bucket finds below the level of contexts."""

from collections.abc import Callable, Iterable, Iterator

from quire.storage.s3.makings import Making
from quire.storage.s3.upkeep import Upkeep
from quire.storage.symptoms import Symptom


def examine(upkeep: Upkeep, contexts: Callable[[], Iterable[str]], *, repair: bool) -> list[Symptom]:
    """What belongs to no context: contexts that lost their head object, which stay, and what nobody can miss."""
    return [*_headless(upkeep.headless(contexts())), *(_leftover(key, repair) for key in upkeep.leftovers(contexts()))]


def _headless(found: Iterable[tuple[Making, str, bool]]) -> Iterator[Symptom]:
    for making, name, is_settled in found:
        whose = f"an earlier context {name!r}" if name else "a context"
        count = len(making.objects)
        text = f"{count:,} objects hold records of {whose}, but no head object names them and nobody dropped it."
        if not is_settled:
            text += " If a fork or a large first commit is being made right now, it is that: look again in an hour."
        yield Symptom(
            code="head_lost",
            severity="error" if is_settled else "warning",
            where=making.folder,
            text=text,
            remedy="Restore the object below heads/ from a version of it or a backup. Nothing removes these objects.",
        )


def _leftover(key: str, repair: bool) -> Symptom:
    return Symptom(
        code="leftover",
        severity="note",
        where=key,
        text="No context needs it: a drop that was cut off left it, or it was replaced.",
        remedy="collect() removes it.",
        repaired=repair,
    )
