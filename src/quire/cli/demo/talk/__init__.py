"""The bundled conversation: a coding agent on a payments ticket, with what is asked again near its end."""

from typing import NamedTuple

from quire import Message
from quire.cli.demo.talk.cause import CAUSE
from quire.cli.demo.talk.repair import REPAIR
from quire.cli.demo.talk.report import REPORT

TITLE = "A coding agent on a payments ticket"
SYSTEM = (
    "You are Fern, a coding agent in the repository ledgerline. Read before you write, run the tests after every"
    " change, and say in a few sentences what you did. Never invent a number."
)
MESSAGES: tuple[Message, ...] = (*CAUSE, *REPAIR, *REPORT)


class Question(NamedTuple):
    """Something that a message of the user's (one that holds the words `at`) asks for, said long before.

    `find` is what one would search for, `answer` what must stand in what is found.
    """

    at: str
    find: str
    answer: str


QUESTIONS = (
    Question("Add a column", "db/migrations/ schema", "frozen until 2026-04-02"),
    Question("the id of that run", "run started", "run_8c41f2"),
    Question("INV-20931 was sent again", "INV-20931 charge sent", "02:14:09.122"),
    Question("INV-20986", "INV-20986", "gw_91b7d8"),
    Question("Which port", "replica port", "6543"),
    Question("must the refunds be out", "退款必须", "周五 17:00"),
    Question("Now the summary", "总结 同事", "只看中文"),
)


def asked_in(message: Message) -> list[Question]:
    """The questions that a message asks."""
    return [question for question in QUESTIONS if message.role == "user" and question.at in message.text]
