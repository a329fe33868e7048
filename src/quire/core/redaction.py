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
from typing import Any, TypeVar

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
        if isinstance(value, list | tuple):
            return [self.value(inner, free=free) for inner in value]
        if not isinstance(value, Mapping):
            return self.text(value)
        if free:
            return {self.text(name): self._named(name, inner) for name, inner in value.items()}
        return value if _is_signed(value) else {name: self._field(name, value) for name in value}

    def message(self, message: Message) -> Message:
        """Return a message without secrets, also in the original that it keeps (`Message.raw`)."""
        fields: dict[str, Any] = {
            "content": self.value(message.content),
            "name": self.text(message.name),
            "tool_calls": tuple(map(self._call_of, message.tool_calls)),
            "meta": {name: self._free(value) for name, value in message.meta.items()},
        }
        changes = {name: value for name, value in fields.items() if value != getattr(message, name)}
        original = None if message.raw is None else restore_original(message)
        clean = self.value(original)
        if message.raw is None or (clean == original and not changes):
            return replace(message, **changes) if changes else message
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

    def _field(self, name: str, around: Mapping[str, Any]) -> Any:
        """Return a field of a message or of a part of it without secrets."""
        value = around[name]
        if not isinstance(value, str) or name in _FREE_FIELDS:
            return self.value(value, free=name in _FREE_FIELDS)
        is_media = name == "data" and around.get("type") != "text"
        if name in _FIXED or is_media or value.startswith("data:"):
            return value
        return self._free(value) if name in _JSON_FIELDS else self.text(value)

    def _call_of(self, call: ToolCall) -> ToolCall:
        clean = self.text(call.arguments) if call.custom else self.json_text(call.arguments)
        return call if clean == call.arguments else replace(call, arguments=clean)

    def _free(self, value: Any) -> Any:
        """Return a value, or the value that a text encodes as JSON, without the secrets of all its fields."""
        return self.json_text(value) if isinstance(value, str) else self.value(value, free=True)


def _is_signed(part: Mapping[str, Any] | Part) -> bool:
    """Return whether a part or an item is signed or encrypted, so that its provider refuses it after any change."""
    kind = part.get("type")
    if kind == "redacted_thinking" or any(part.get(sign) for sign in _SIGNS):
        return True
    return kind == "thinking" and ("data" in part or any(f'"{sign}"' in str(part.get("item")) for sign in _SIGNS))


_HAS_DIGIT = r"(?=[A-Za-z0-9_+/.~-]*[0-9])"
_HAS_LETTER = r"(?=[A-Za-z0-9_+/.~-]*[A-Za-z])"
_PREFIXES = (
    ("token", "eyJ", r"[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}"),
    ("token", "ghp_|gho_|ghu_|ghs_|ghr_", r"[A-Za-z0-9]{36,}"),
    ("token", "github_pat_", r"[A-Za-z0-9_]{40,}"),
    ("token", "glpat-", r"[A-Za-z0-9_-]{20,}"),
    ("token", "xox", r"[abeoprs]-[0-9A-Za-z]{4,}-[A-Za-z0-9-]{10,}"),
    ("token", "xapp-", r"[0-9]-[A-Za-z0-9-]{20,}"),
    ("token", "npm_", r"[A-Za-z0-9]{36}(?![A-Za-z0-9_])"),
    ("token", "pypi-", r"[A-Za-z0-9_-]{50,}"),
    ("API key", "sk-", rf"{_HAS_DIGIT}{_HAS_LETTER}[A-Za-z0-9_-]{{20,}}"),
    ("API key", "sk_live_|sk_test_|rk_live_|rk_test_|pk_live_|pk_test_", r"[A-Za-z0-9]{16,}"),
    ("API key", "AKIA|ASIA", r"[A-Z0-9]{16}(?![A-Za-z0-9_])"),
    ("API key", "AIza", r"[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    ("API key", "hf_|r8_|gsk_|xai-|pplx-|nvapi-|dop_v1_", rf"{_HAS_DIGIT}[A-Za-z0-9_-]{{32,}}"),
    ("API key", "SG", r"\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
)
"""Secrets that begin with one of these signs at the beginning of a word: their kind, the signs, and what follows."""
_PEM = r"(?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
_PRIVATE_KEY = (
    rf"()-----BEGIN {_PEM}(?:[A-Za-z0-9+/=\s\\:,.()-]{{0,20000}}?-----END {_PEM}"
    r"|(?:(?:\\[nr]|[\r\n \t])+[A-Za-z0-9+/=]{40,120})+)"  # the second form is cut off before its end
)
_BEARER = rf"(?<![A-Za-z0-9_])([Bb]earer ){_HAS_DIGIT}[A-Za-z0-9._~+/-]{{20,}}={{0,2}}"
_PASSWORD = r"(://[^\s/:@\"'<>\[\]]{0,64}:)[^\s/@\"'<>\[\]]{1,128}(?=@[A-Za-z0-9\[])"
_RULES = [
    (signs.split("|"), re.compile(pattern), rf"\1[redacted {kind}]")
    for kind, signs, pattern in (
        ("private key", "PRIVATE KEY", _PRIVATE_KEY),
        *((kind, signs, rf"(?<![A-Za-z0-9_])()(?:{signs}){rest}") for kind, signs, rest in _PREFIXES),
        ("token", "earer ", _BEARER),
        ("password", "://", _PASSWORD),
    )
]
"""A sign is in every secret of its rule, so that most texts need no pattern. The first group stays in the text."""
_VALUE = re.compile(
    rf"([:=]\s{{0,3}}[\\\"']{{0,4}}){_HAS_DIGIT}{_HAS_LETTER}[A-Za-z0-9_+/.~-]{{20,}}={{0,2}}"  # a long value
)
_NAME = re.compile(
    r"(?i)(?:(?:api|secret|access)[_-]?key|(?:access|auth|private)[_-]?token|client[_-]?secret)[\\\"']{0,4}\s{0,3}\Z"
)
_LONGEST_NAME = 32


def redact_secrets(text: str) -> str:
    """Return the text with a label such as `[redacted API key]` in place of each secret.

    It finds private keys in PEM, keys and tokens with a known prefix (OpenAI, Anthropic, AWS, Google, GitHub, GitLab,
    Slack, Stripe, Hugging Face, npm, PyPI and others), JSON web tokens, `Bearer` tokens, long values of fields such as
    `api_key`, and the password in a URL. The same text gives the same result, and a result does not change again.
    """
    for signs, pattern, label in _RULES:
        if any(sign in text for sign in signs):
            text = pattern.sub(label, text)
    return _VALUE.sub(_mark_value, text)


def _mark_value(found: re.Match[str]) -> str:
    """Return a label for a value after the name of a secret, and any other value as it is."""
    is_named = _NAME.search(found.string, max(0, found.start() - _LONGEST_NAME), found.start())
    return f"{found[1]}[redacted API key]" if is_named else found[0]
