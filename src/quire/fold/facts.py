"""What must not get lost when text is folded: identifiers, numbers, dates, paths, addresses, names of errors."""

import re
from collections.abc import Iterable, Iterator

_FACT = re.compile(
    r"https?://[^\s<>\"')\]]+"  # addresses
    r"|(?:[\w.~-]+)?(?:/[\w.~-]+){2,}"  # paths
    r"|[\w.-]+@[\w-]+\.[\w.]+"  # mail addresses
    r"|\b[A-Za-z_]\w*(?:Error|Exception)\b"  # names of errors
    r"|\b\d{4}-\d{2}-\d{2}(?:T[\d:.]+Z?)?"  # dates
    r"|\b(?=\w*\d)(?=\w*[A-Za-z])[A-Za-z0-9_]{3,}\b"  # identifiers such as HAT136 or user_81
    r"|\b[a-z]+(?:_[a-z0-9]+)+\b"  # names in code
    r"|\$?\b\d[\d,.:]*\d\b"  # numbers of two digits and more
)
_LONGEST = 200_000


def facts(texts: Iterable[str]) -> Iterator[str]:
    """Every fact of some texts, once, in order."""
    seen: set[str] = set()
    for text in texts:
        for match in _FACT.finditer(text[:_LONGEST]):
            fact = match.group().rstrip(".,:;")
            if fact and fact not in seen:
                seen.add(fact)
                yield fact
