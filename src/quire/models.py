"""Names of models: a request names an alias (`gpt-5`), the answer the very version (`gpt-5-2025-08-07`)."""

import re

_VERSION = re.compile(r"[-@](?:(\d{4}-\d{2}-\d{2}|\d{8}|\d{4})|latest)(?:-v\d+(?::\d+)?)?$")


def alias(model: str) -> str:
    """The name without vendor, date and case: what one model is called in requests and in answers."""
    return _VERSION.sub("", model.rpartition("/")[2].lower())


def same_model(one: str, other: str) -> bool:
    """Whether two names can be the same model: they are alike but for a date that only one of them has."""
    if one == other:
        return True
    dates = {found[1] for name in (one, other) if (found := _VERSION.search(name.lower())) and found[1]}
    return alias(one) == alias(other) and len(dates) < 2
