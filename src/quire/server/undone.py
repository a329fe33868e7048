"""Which journal entries were undone: read once, from the newest back, as far as somebody looked."""

from quire.context import Context


class Undone:
    """What the undos of one context undid. It is read on from where the last look ended."""

    def __init__(self) -> None:
        self._low = self._high = 0
        self._undoes: dict[int, int] = {}

    def know(self, context: Context, first: int) -> None:
        """Read the undos from an entry on, up to the newest."""
        head = context.seq
        if head < self._high:  # it was made anew
            self._low = self._high = 0
            self._undoes = {}
        low = min(first, self._low) if self._high else first
        spans = [(self._high, head), (low - 1, self._low - 1)] if self._high else [(low - 1, head)]
        for after, last in spans:
            if last > after:
                for entry in context.history(max(0, after), before=last + 1, operation="undo"):
                    self._undoes[entry.seq] = entry.undoes or 0
        self._low, self._high = low, head

    def among(self) -> set[int]:
        """The entries that are undone now: an undo that was undone itself does not count."""
        found: set[int] = set()
        for seq in sorted(self._undoes, reverse=True):
            if seq not in found:
                found.add(self._undoes[seq])
        return found
