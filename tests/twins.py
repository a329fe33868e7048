"""The members of `quire.aio` that only make a call: `python -m tests.twins` writes them after a change of a class."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import quire
from quire import aio

PARTS = tuple(kind for kind in quire.Context.__mro__[1:] if kind.__name__ in vars(aio))
TWINS = (quire.ContextSystem, quire.Conversation, quire.AgentContext, quire.Tools, quire.Windows, quire.Context)
SYNC: tuple[type, ...] = (*PARTS, *TWINS, quire.Library)
FILE = Path(str(aio.__file__))
MEMBER = r"    \w+ = (?:awaits|awaits_wrapped|returns)\(Sync.*\)\n"


def members(sync: type, by_hand: str) -> Iterator[str]:
    """Yield the lines of the members of a class, without those that are inherited or written by hand."""
    parts = [part for part in PARTS if issubclass(sync, part) and sync is not part]
    inherited = {name: method for part in parts for name, method in inspect.getmembers(part) if is_shared(part, name)}
    for name, method in inspect.getmembers(sync, inspect.isfunction):
        if sync in PARTS and not is_shared(sync, name):
            continue
        is_known = (name == "close" and "(Closable" in by_hand) or re.search(rf" {name}(\(| = )", by_hand)
        if not name.startswith("_") and not is_known and inherited.get(name) is not method:
            yield f"    {name} = {kind_of(sync, name, str(inspect.signature(method).return_annotation))}\n"


def is_shared(part: type, name: str) -> bool:
    """Return whether no class overrides a member of a part: checkers would give the override the type of the part."""
    return all(getattr(kind, name) is getattr(part, name) for kind in TWINS if issubclass(kind, part))


def kind_of(sync: type, name: str, result: str) -> str:
    """Return the call that makes the async member of a method whose result has this type."""
    method = f"Sync{sync.__name__}.{name}"
    wrapped = next((twin.__name__ for twin in TWINS if result in {twin.__name__, str(twin)}), None)
    if wrapped is not None and sync is quire.Library:
        return f"returns({method}, partial(Opening, {wrapped}))"
    if wrapped is not None:
        return f"awaits_wrapped({method}, lambda: {wrapped})"
    if "AbstractContextManager" in result or "Iterator[None]" in result:
        return f"returns({method}, block)"
    return f"returns({method}, Stream)" if re.search(r"Iterator\[|\.Messages", result) else f"awaits({method})"


def written() -> str:
    """Return the source of `quire.aio` with the members of the present classes."""
    parts = re.split(r"^(?=@names_options\nclass |class |def )", FILE.read_text("utf-8"), flags=re.MULTILINE)
    for place, part in enumerate(parts):
        sync = next((kind for kind in SYNC if re.match(rf"(@names_options\n)?class {kind.__name__}\(", part)), None)
        if sync is not None:
            first = re.search(MEMBER, part)
            by_hand = re.sub(MEMBER, "", part)
            start = len(by_hand) if first is None else first.start()
            parts[place] = by_hand[:start] + "".join(members(sync, by_hand)) + by_hand[start:]
    return "".join(parts)


if __name__ == "__main__":
    FILE.write_text(written(), "utf-8")
