"""Words for numbers."""


def counted(number: int, thing: str) -> str:
    """A number of things, as one says it: `1 page`, `2,000 pages`, `2 entries`."""
    if number == 1:
        return f"1 {thing}"
    return f"{number:,} {thing[:-1]}ies" if thing.endswith("y") else f"{number:,} {thing}s"
