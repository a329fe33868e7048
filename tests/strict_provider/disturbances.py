"""Changes of a context between two turns: what a developer, an agent or another provider's history can do to it.

Each one changes what is sent before earlier thinking, or adds messages that a provider refuses in their own form.
"""

from collections.abc import Callable, Mapping
from random import Random

import quire


def change_prompt(ctx: quire.Context, random: Random) -> None:
    ctx.system(f"You are a careful travel agent, version {random.randint(0, 9)}.")


def replace_message(ctx: quire.Context, random: Random) -> None:
    asked = [message.index for message in ctx.messages() if message.role == "user"][:-1]
    if asked:
        ctx.conversation.replace(random.choice(asked), {"role": "user", "content": "What was said here is replaced."})


def delete_message(ctx: quire.Context, random: Random) -> None:
    said = [message.index for message in ctx.messages() if message.role == "assistant"][:-1]
    if said:
        ctx.conversation.delete([random.choice(said)])


def compress_messages(ctx: quire.Context, random: Random) -> None:
    said = [message.index for message in ctx.messages() if message.role != "system"][:-6]
    if said:
        start = random.randrange(len(said))
        ctx.conversation.compress(said[start : start + 4])


def write_document(ctx: quire.Context, random: Random) -> None:
    ctx.pages.create_detail_page("policy", "The policy of the desk", "Refunds take ten days. " * 9, "mem-0")


def undo_fold(ctx: quire.Context, random: Random) -> None:
    folds = [entry.seq for entry in ctx.history(operation="fold")]
    if folds:
        ctx.undo(folds[-1])


def open_page(ctx: quire.Context, random: Random) -> None:
    ctx.tools.call("expand_details", {"page": f"usr-{random.randint(1, 9)}"})


def add_foreign_history(ctx: quire.Context, random: Random) -> None:
    """Add an exchange of another provider, with a name, an id and a speaker that the APIs refuse."""
    call_id = f"functions.look|{random.randint(0, 10**9)}:" + "x" * 60
    function = {"name": "mcp.server/look up", "arguments": "{}"}
    ctx.add({"role": "user", "name": "Ann <B>", "content": "Look it up. "})
    ctx.add({"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]})
    ctx.add({"role": "tool", "tool_call_id": call_id, "content": ""})
    ctx.add({"role": "assistant", "content": "It is there.  \n"})


def add_system_message(ctx: quire.Context, random: Random) -> None:
    """Add a late system message, in the form of OpenAI or of Anthropic."""
    block = {"type": "text", "text": "Be brief from now on.", "cache_control": {"type": "ephemeral"}}
    ctx.add({"role": "system", "content": random.choice(["Be brief from now on.", [block]])})


def reorder_messages(ctx: quire.Context, random: Random) -> None:
    """Move a page of the conversation to its start or to its end."""
    pages = [page.index for page in ctx.pages.children("usr-0")]
    if pages:
        ctx.pages.move_page(random.choice(pages), "usr-0", before=random.choice([None, pages[0]]))


DISTURBANCES: Mapping[str, Callable[[quire.Context, Random], None]] = {
    function.__name__: function
    for function in (
        change_prompt,
        replace_message,
        delete_message,
        compress_messages,
        write_document,
        undo_fold,
        open_page,
        add_foreign_history,
        add_system_message,
        reorder_messages,
    )
}


def disturb(ctx: quire.Context, random: Random) -> None:
    """Make one change at random; what quire refuses changes nothing."""
    try:
        random.choice(list(DISTURBANCES.values()))(ctx, random)
    except quire.QuireError:
        return
