"""Messages: reading, adding, taking in a history."""

from msgspec import to_builtins

from quire.server import asked, told
from quire.server.desk import Asked, Desk
from quire.server.handlers.pages import message_line


def list_messages(desk: Desk, request: Asked) -> told.Messages:
    """The messages in the order they stand, or all by index."""
    query: asked.MessagesQuery = request.query
    with desk.shelf.use(request.path["c"]) as opened:
        context = opened.context
        if query.all:
            start = 0 if query.after is None else query.after + 1
            found = context.messages(all=True)[start : start + query.limit + 1]
        else:
            found = context.conversation.messages_after(query.after, query.limit + 1)
        lines = [message_line(message) for message in found[: query.limit]]
        more = len(found) > query.limit
        return told.Messages(messages=lines, next=lines[-1].index if more else None, seq=context.seq)


def add(desk: Desk, request: Asked) -> told.Added:
    """Add a message, or several together, in any provider's shape."""
    with desk.shelf.use(request.path["c"]) as opened:
        index = opened.context.add(request.body)
        return told.Added(index=index, seq=opened.context.seq)


def take_in(desk: Desk, request: Asked) -> told.Imported:
    """Take in a whole history, also a broken one."""
    body = request.body
    with desk.shelf.use(request.path["c"]) as opened:
        report = opened.context.import_messages(body.messages if isinstance(body, asked.History) else body)
        return told.Imported(
            seq=opened.context.seq,
            messages=report.messages,
            pages=report.pages,
            first=report.first,
            last=report.last,
            marked=list(report.marked),
            findings=to_builtins(report.findings),
        )
