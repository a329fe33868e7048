"""Text of others inside a view: it may say anything, but it cannot look like a line of ours.

Two things are kept for us. The context's key stands nowhere but in the preamble and in the heads of our blocks and
windows: where a message, a name or a body has it (someone repeated what the model was told), it is shown broken up. And
inside our blocks only our own lines begin with a bracket: a line of a body that does gets a space before it.
"""

import re
from functools import cached_property

from msgspec.structs import replace

from quire.messages import Message, Part

_MIDDLE = "·"
_BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_UNSEEN = "\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"
_LIKE_OURS = re.compile(rf"(^|[{_BREAKS}])(?=[{_UNSEEN}]*[\[(])")


class Quoting:
    """How the text of others is shown in a context with this key."""

    def __init__(self, key: str) -> None:
        self._word = key
        end = key[key.rfind("-") :] if "-" in key else ""
        self._part = end if end.lower() == end.upper() else ""  # found at once, or the key is not there either

    @cached_property
    def _key(self) -> re.Pattern[str]:
        return re.compile(re.escape(self._word), re.IGNORECASE)

    def words(self, text: str) -> str:
        """The text without the key: it is broken up, so that what quotes it does not carry it."""
        if self._part not in text or not self._key.search(text):
            return text
        broken = self._key.sub(lambda found: found[0][:1] + _MIDDLE + found[0][1:], text)
        return self._key.sub(_MIDDLE, broken) if self._key.search(broken) else broken

    def lines(self, text: str) -> str:
        """The text as it stands in a block of ours: no line of it begins as ours do, and the key is not in it."""
        return _LIKE_OURS.sub(r"\1 ", self.words(text))

    def message(self, message: Message) -> Message:
        """A message without the key; what the model said itself stays as it was said, for nothing of ours is its."""
        if message.role == "assistant" or message.content is None:
            return message
        if isinstance(message.content, str):
            text = self.words(message.content)
            return message if text is message.content else replace(message, content=text, raw=None)
        parts = [self._in_part(part) for part in message.content]
        same = all(new is old for new, old in zip(parts, message.content, strict=True))
        return message if same else replace(message, content=parts, raw=None)

    def _in_part(self, part: Part) -> Part:
        text = part.get("text") if part.get("type") == "text" else None
        if not isinstance(text, str):
            return part
        words = self.words(text)
        return part if words is text else {**part, "text": words}
