"""A model that signs each thinking block over its exact prefix, and a provider that refuses a block with another one.

It sees only requests in Anthropic's form. It knows nothing of digests or links.
"""

import json
from itertools import count
from typing import Any

Values = dict[str, Any]


class Signer:
    """Signs blocks and counts those that come back: legal ones, and those after another prefix or out of order.

    A block is legal if everything before it is what was sent when it was made, except that thinking may be missing at
    the beginning of the history.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._numbers = count()
        self.legal = 0
        self.illegal: list[str] = []

    def check(self, request: Values, tools: Any = None) -> list[str]:
        """Check the thinking of a request; return the signatures of the blocks in it."""
        prefix = [json.dumps([request.get("system"), tools], ensure_ascii=False)]
        before: list[str] = []
        for message in request["messages"]:
            content = message["content"]
            for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                if block["type"] != "thinking":
                    prefix.append(json.dumps([message["role"], block], ensure_ascii=False, sort_keys=True))
                    continue
                text, earlier = self._made[block["signature"]]
                in_order = not before or tuple(before) == earlier[len(earlier) - len(before) :]
                if text == "\n".join(prefix) and in_order:
                    self.legal += 1
                else:
                    self.illegal.append(block["signature"])
                before.append(block["signature"])
        self._last = ("\n".join(prefix), tuple(before))
        return before

    def reply(self, text: str = "", calls: int = 0) -> Values:
        """Return the reply to the last request that was checked: thinking, text and calls."""
        number = next(self._numbers)
        signature = f"signature-{number}"
        self._made[signature] = self._last
        blocks: list[Values] = [{"type": "thinking", "thinking": f"Thought {number}. " * 3, "signature": signature}]
        blocks += [{"type": "text", "text": text or f"Answer {number}."}] if text or not calls else []
        used = [
            {"type": "tool_use", "id": f"call-{number}-{n}", "name": "look", "input": {"n": n}} for n in range(calls)
        ]
        return {"role": "assistant", "content": [*blocks, *used]}
