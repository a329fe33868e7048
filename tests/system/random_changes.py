"""Random changes of a context, for tests that need any state."""

from random import Random

import quire
from quire import Context, InvalidOperation, ToolCall


def words_of(seq: int) -> str:
    """Return the text of the message that entry `seq` adds; it starts with its seq."""
    return f"{seq} " + "词 and a word " * Random(seq).choice((0, 1, 20, 400))


def change(pages: quire.ContextSystem, random: Random, known: list[str]) -> None:
    """Make a change that creates nothing: one commit, or none if it has no effect."""
    index, other = random.sample(known[1:], 2)
    match random.randrange(5):
        case 0:
            pages.hide(index)
        case 1:
            pages.expand(index)
        case 2:
            pages.update_page(index, description=str(random.random()))
        case 3:
            pages.move_page(index, "mem-0", before=other)
        case _:
            pages.update_page(index, meta={"n": random.random()})
            pages.undo(pages.seq)


def speak(book: Context, random: Random, seq: int) -> int:
    """Add a message of any kind; return its index."""
    waiting = book.pending_calls()
    if waiting and random.random() < 0.7:
        return book.tool_result(waiting[0].id, words_of(seq))
    match random.randrange(3):
        case 0:
            return book.user(words_of(seq))
        case 1:
            return book.assistant(words_of(seq))
        case _:
            return book.assistant(words_of(seq), [ToolCall(f"call {seq}", "look")])


def edit(book: Context, random: Random) -> None:
    """Edit the conversation: one commit or two, or none if the edit is refused."""
    count = len(book.messages(all=True))
    if not count:
        return
    index = random.randrange(count)
    try:
        match random.randrange(4):
            case 0:
                book.conversation.delete(index)
            case 1:
                book.conversation.compress([index, max(index - 1, 0)])
            case 2:
                book.conversation.batch_start()
                book.conversation.batch_end(0)
            case _:
                if book.conversation.delete(index).covered:
                    book.undo(book.seq)
    except InvalidOperation:  # it waits for a result, or is not in the conversation any more
        pass
