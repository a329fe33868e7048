"""headroom: `compress` rewrites the bodies of a list in memory; its learned compressor needs a download."""

import logging
from typing import Any

from headroom import compress

from bench.peers.peer import Peer, Setting
from bench.traces import Values

logging.getLogger("headroom").setLevel(logging.ERROR)


class Compressed(Peer):
    """Compress everything again for every call; the budget is passed as the model's limit."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._messages = [setting.system]

    def append(self, message: Values) -> None:
        self._messages.append(message)

    def render(self) -> Any:
        return compress(self._messages, model="gpt-4o", model_limit=self.setting.budget).messages

    def chat(self, rendered: Any) -> list[Values]:
        return [dict(message) for message in rendered]
