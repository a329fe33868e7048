"""A live window: what an agent works on, shown once and as it is now, whatever happened before."""

import re

from quire import Context, View
from quire.cli.replaying.stage import Stage
from quire.cli.width import cut
from quire.windows.apps import Todo

_KEY = re.compile('key="[^"]*"')  # it is another one every time
_ENTRIES = ("Ask the gateway how long it keeps keys", "写回归测试", "Tell support about the refunds")


def show_window(context: Context, stage: Stage) -> None:
    """Open a todo list, change it, and look at what the model sees and what that cost."""
    windows = context.windows
    windows.register(Todo)
    todo = windows.open("todo").id
    for text in _ENTRIES:
        windows.act(todo, "add", text=text)
    before = context.render()
    windows.act(todo, "done", index=2)
    view = context.render()
    shown = view.tail[0].messages[0].text
    for line in _KEY.sub('key="…"', shown).splitlines():
        stage.line(stage.paint.dim(cut(line, stage.columns)))
    stage.words(
        f"after {1 + len(_ENTRIES)} actions it is there once, at the end; before it"
        f" {view.shared_prefix:,} of {_steady(before):,} tokens stay cached"
    )
    windows.close(todo, "Keys last 24 h; regression test written.")
    gone = context.render(preview=True)
    stage.line(
        f"close({todo!r}) → {len(gone.tail)} windows in the view; its summary is found:"
        f" {stage.paint.cyan(context.find('regression test written')[0].index)}"
    )


def _steady(view: View) -> int:
    """The tokens before the tail."""
    return view.tokens - sum(part.tokens for part in view.tail)
