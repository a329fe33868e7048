"""Redaction: a function removes secrets from everything that comes in, before it is checked, stored or quoted.

The function gets one text and returns it without what must not be stored. Ids, types, media and signed blocks stay as
they are: a provider compares them.

`redact_secrets` is such a function: it removes API keys, private keys, tokens and passwords in URLs. It finds what has
a known form. A password in a sentence has none.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from quire.errors import PYTHON, InvalidValue, QuireError, short_repr
from quire.model.messages import Message, Part, ToolCall
from quire.providers.originals import keep_original, restore_original
from quire.providers.plain_json import dumps

Redact = Callable[[str], str]
T = TypeVar("T")
_FIXED = frozenset({"id", "call_id", "tool_call_id", "tool_use_id", "item_id", "file_id", "type", "role", "kind"})
_FIXED |= {"format", "detail", "media_type", "mime_type", "signature", "encrypted_content", "thought_signature"}
"""The fields of messages that redaction never changes. In the arguments of a call, it applies to every field."""
_JSON_FIELDS = frozenset({"arguments", "part", "item"})
_FREE_FIELDS = frozenset({"input", "meta"})
_SIGNS = ("signature", "encrypted_content", "thought_signature")


class Redaction:
    """Applies a function to texts. A function that is not idempotent on a text is refused."""

    def __init__(self, function: Redact) -> None:
        if not callable(function):
            raise InvalidValue(f"is {short_repr(function)}; a function of one text is needed.", argument="redact")
        self._function = function

    def text(self, value: T) -> T:
        """Return a text without its secrets; any other value as it is."""
        if not isinstance(value, str) or not value:
            return value
        plain = str.__str__(value)
        clean = self._call(plain)
        if clean != plain and self._call(clean) != clean:
            raise InvalidValue("changes its own result; it must be idempotent.", argument="redact")
        return clean  # type: ignore[return-value]

    def json_text(self, text: str, *, compact: bool = False) -> str:
        """Return JSON text without the secrets in its texts; text that is not JSON as plain text.

        With `compact`, the JSON is always written again, so that the result does not depend on its spaces.
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self.text(text)
        clean = self.value(value, free=True)
        return text if clean == value and not compact else dumps(clean)

    def value(self, value: Any, *, free: bool = False) -> Any:
        """Return a JSON value without secrets. With `free`, no field is exempt: the value is not part of a message."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(inner, free=free) for inner in value]
        if not isinstance(value, Mapping):
            return value
        if free:
            return {self.text(name): self._named(name, inner) for name, inner in value.items()}
        if _is_signed(value):
            return value
        return {name: self._field(name, inner, value) for name, inner in value.items()}

    def message(self, message: Message) -> Message:
        """Return a message without secrets, also in the original that it keeps (`Message.raw`)."""
        content = message.content
        changes: dict[str, Any] = {
            "content": self.text(content) if isinstance(content, str) else self.value(content),
            "name": self.text(message.name),
            "tool_calls": tuple(map(self._call_of, message.tool_calls)),
            "meta": {name: self._meta(value) for name, value in message.meta.items()},
        }
        changes = {name: value for name, value in changes.items() if value != getattr(message, name)}
        if message.raw is None:
            return replace(message, **changes) if changes else message
        original = restore_original(message)
        clean = self.value(original)
        if clean == original and not changes:
            return message
        return keep_original(replace(message, **changes, raw=None), clean, None)

    @contextmanager
    def errors(self, given: object = None) -> Iterator[None]:
        """Remove secrets from the errors of a block. If `given` contains a secret, the error does not quote it."""
        try:
            yield
        except QuireError as error:
            if given is not None and self._has_secret(given):
                raise InvalidValue("The value is not accepted. It is not quoted: it has a text to redact.") from None
            for name, value in list(vars(error).items()):
                if isinstance(value, str):
                    setattr(error, name, self.text(value))
            error.args = (error.describe(PYTHON),)
            raise

    def _has_secret(self, value: object) -> bool:
        try:
            text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            return True
        return self.text(text) != text or self.json_text(text) != text

    def _call(self, text: str) -> str:
        try:
            clean = self._function(text)
        except Exception as error:  # its text may quote the secret
            raise InvalidValue(f"raised {type(error).__name__}.", argument="redact") from None
        if not isinstance(clean, str):
            raise InvalidValue(f"returned a value of type {type(clean).__name__}; text is needed.", argument="redact")
        return str.__str__(clean)

    def _named(self, name: str, value: Any) -> Any:
        """Return the value of a field without secrets. The function also sees it after its name, as `name=value`."""
        clean = self.value(value, free=True)
        if not isinstance(clean, str) or clean != value:
            return clean
        both = self.text(f"{name}={value}")
        return both.removeprefix(f"{name}=") if both.startswith(f"{name}=") else clean

    def _field(self, name: str, value: Any, around: Mapping[str, Any]) -> Any:
        if name in _FREE_FIELDS:
            return self.value(value, free=True)
        if not isinstance(value, str):
            return self.value(value)
        is_media = name == "data" and around.get("type") != "text"
        if name in _FIXED or is_media or value.startswith("data:"):
            return value
        return self.json_text(value) if name in _JSON_FIELDS else self.text(value)

    def _call_of(self, call: ToolCall) -> ToolCall:
        clean = self.text(call.arguments) if call.custom else self.json_text(call.arguments)
        return call if clean == call.arguments else replace(call, arguments=clean)

    def _meta(self, value: Any) -> Any:
        return self.json_text(value) if isinstance(value, str) else self.value(value, free=True)


def _is_signed(part: Mapping[str, Any] | Part) -> bool:
    """Return whether a part or an item is signed or encrypted, so that its provider refuses it after any change."""
    kind = part.get("type")
    if kind == "redacted_thinking" or any(part.get(sign) for sign in _SIGNS):
        return True
    return kind == "thinking" and ("data" in part or any(f'"{sign}"' in str(part.get("item")) for sign in _SIGNS))


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
"""The start of a match that stays in the text: `Bearer `, the user in a URL, or the sign before a value."""


def redact_secrets(text: str) -> str:
    """Return the text with a label such as `[redacted API key]` in place of each secret.

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
