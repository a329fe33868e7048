"""`redact_secrets`: a function for `redact=` that removes API keys, private keys, tokens and passwords in URLs.

It finds what has a known form. A password in a sentence has none.
"""

import re
from typing import NamedTuple

_HAS_DIGIT = r"(?=[A-Za-z0-9_+/.~-]*[0-9])"
_HAS_LETTER = r"(?=[A-Za-z0-9_+/.~-]*[A-Za-z])"
_PEM = r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
_FIELD = r"(?:(?:api|secret|access)[_-]?key|(?:access|auth|private)[_-]?token|client[_-]?secret)"


class _Rule(NamedTuple):
    """A form of secrets. `sign` is in every secret of this form, so that most texts need no pattern."""

    kind: str
    sign: str
    pattern: re.Pattern[str]


def _rule(kind: str, sign: str, rest: str) -> _Rule:
    """Return a rule for secrets that begin with a sign at the beginning of a word."""
    literal = re.escape(sign)
    return _Rule(kind, sign, re.compile(rf"{literal}(?<![A-Za-z0-9_]{literal}){rest}"))


_RULES = (
    _Rule(
        "private key",
        "PRIVATE KEY",
        re.compile(
            _PEM + r"(?:[A-Za-z0-9+/=\s\\:,.()-]{0,20000}?-----END (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
            r"|(?:(?:\\[nr]|[\r\n \t])+[A-Za-z0-9+/=]{40,120})+)"  # the second form is cut off before its end
        ),
    ),
    _rule("token", "eyJ", r"[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}"),
    *(_rule("token", f"gh{kind}_", r"[A-Za-z0-9]{36,}") for kind in "pousr"),
    _rule("token", "github_pat_", r"[A-Za-z0-9_]{40,}"),
    _rule("token", "glpat-", r"[A-Za-z0-9_-]{20,}"),
    _rule("token", "xox", r"[abeoprs]-[0-9A-Za-z]{4,}-[A-Za-z0-9-]{10,}"),
    _rule("token", "xapp-", r"[0-9]-[A-Za-z0-9-]{20,}"),
    _rule("token", "npm_", r"[A-Za-z0-9]{36}(?![A-Za-z0-9_])"),
    _rule("token", "pypi-", r"[A-Za-z0-9_-]{50,}"),
    _rule("API key", "sk-", rf"{_HAS_DIGIT}{_HAS_LETTER}[A-Za-z0-9_-]{{20,}}"),
    *(_rule("API key", f"{kind}k_{mode}_", r"[A-Za-z0-9]{16,}") for kind in "srp" for mode in ("live", "test")),
    *(_rule("API key", sign, r"[A-Z0-9]{16}(?![A-Za-z0-9_])") for sign in ("AKIA", "ASIA")),
    _rule("API key", "AIza", r"[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    *(
        _rule("API key", sign, rf"{_HAS_DIGIT}[A-Za-z0-9_-]{{32,}}")
        for sign in ("hf_", "r8_", "gsk_", "xai-", "pplx-", "nvapi-", "dop_v1_")
    ),
    _rule("API key", "SG.", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    *(_rule("token", sign, rf"{_HAS_DIGIT}[A-Za-z0-9._~+/-]{{20,}}={{0,2}}") for sign in ("Bearer ", "bearer ")),
    _Rule("password", "://", re.compile(r"://[^\s/:@\"'<>\[\]]{0,64}:[^\s/@\"'<>\[\]]{1,128}(?=@[A-Za-z0-9\[])")),
)
_VALUE = re.compile(rf"[:=]\s{{0,3}}[\\\"']{{0,4}}{_HAS_DIGIT}{_HAS_LETTER}[A-Za-z0-9_+/.~-]{{20,}}={{0,2}}")
"""A long value after `:` or `=`. `_NAME` looks at the name of the field before it."""
_NAME = re.compile(rf"(?i){_FIELD}[\\\"']{{0,4}}\s{{0,3}}\Z")
_LONGEST_NAME = 32
_LEAD = re.compile(r"(?i:Bearer )|://[^:]*:|[:=]\s{0,3}[\\\"']{0,4}")
"""What stays of a match: the word before it, the user in a URL, or what separates a name and a value."""


def redact_secrets(text: str) -> str:
    """Return the text with `[redacted API key]` and the like in place of each secret.

    It finds private keys in PEM, keys and tokens with a known prefix (OpenAI, Anthropic, AWS, Google, GitHub, GitLab,
    Slack, Stripe, Hugging Face, npm, PyPI and others), JSON web tokens, `Bearer` tokens, long values of fields such as
    `api_key`, and the password in a URL. The same text gives the same result, and a result does not change again.
    """
    for kind, sign, pattern in _RULES:
        if sign in text:
            text = pattern.sub(lambda found, kind=kind: _mark(found.group(), kind), text)  # type: ignore[misc]
    return _VALUE.sub(_mark_value, text)


def _mark_value(found: re.Match[str]) -> str:
    is_named = _NAME.search(found.string[max(0, found.start() - _LONGEST_NAME) : found.start()])
    return _mark(found.group(), "API key") if is_named else found.group()


def _mark(secret: str, kind: str) -> str:
    lead = _LEAD.match(secret)
    return f"{lead.group() if lead else ''}[redacted {kind}]"
