"""A generator of long histories with known answers: facts that change, contradictions, plans, code sessions.

A user and an assistant talk for months, in English with some Chinese. The user says "I", and the assistant is "you" in
the questions. A history is determined by its number. Even numbers are for tuning; odd numbers are only reported.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

DAY = 86_400_000
START = 1_735_725_600_000
"""1 January 2025, 10:00 UTC."""
TUNED, HELD_OUT = (0, 2, 4), (1, 3, 5)
"""The numbers of the histories for tuning, and of those that are only reported."""
SESSIONS = 60
FACTS = {
    "the deposit account": ("bank", ("Alder Credit", "Northway", "Kestrel Savings", "Bluehill", "Marlow Trust")),
    "the landlord": ("name", ("Mrs. Okafor", "Mr. Lindqvist", "Ms. Baptiste", "Mr. Duarte", "Mrs. Novak")),
    "my running shoes": ("brand", ("Terravia", "Swiftform", "Nimbra", "Cadenza", "Pacelle")),
    "the staging database": ("host", ("db-otter", "db-lynx", "db-heron", "db-marten", "db-finch")),
    "the choir rehearsal": ("weekday", ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")),
    "the greenhouse heater": ("setting", ("12 degrees", "14 degrees", "16 degrees", "18 degrees", "20 degrees")),
}
CHINESE = {"健身房": ("星火", "力源", "青藤", "云动"), "家庭医生": ("陈医生", "林医生", "周医生", "吴医生")}
PARAPHRASES = (
    (
        ("I signed with {a}; from Monday on they handle {thing}.", "Forget {a}, we are over to {b} for {thing}."),
        ("Good news about {thing}: {b} did not last, and {c} took over.", "So {c} it is, until further notice."),
    ),
    (
        ("We had a long talk about {thing}. I chose {a}.", "I dropped {a} this week. {b} looked better for {thing}."),
        ("{thing}, third attempt: I went for {c} after {b} failed.", "No complaints about {c} so far."),
    ),
)
"""Two ways to tell of a value that changes twice, each with a later remark that repeats only the value."""
CHANGES = {
    "the piano lessons": (("Ilse Brandt", "Tomas Reyes", "Hana Mori", "Pell Academy"), "Who teaches me the piano?"),
    "our backups": (("Glacier Nine", "TapeWorks", "Coldbox", "a disk in the attic"), "Where do we keep the copies?"),
    "the office lunch": (("Bao House", "Green Ladle", "Falafel Joe", "Mill Canteen"), "Who delivers our food at noon?"),
    "the car": (
        ("Renner & Sons", "Bridge Garage", "AutoFix West", "Kolb Motors"),
        "Which workshop services my vehicle?",
    ),
}
"""For each thing: its values, and a question in other words."""
ADVICE = {
    "sleep": ("dim the lamps an hour early", "keep the phone in the kitchen", "drink no coffee after lunch"),
    "the slow report query": ("add a covering index", "split it by month", "cache the totals every night"),
    "the leaking tap": ("replace the ceramic cartridge", "tighten the packing nut", "change the rubber washer"),
    "the visa form": ("attach the payslips first", "write the old address too", "sign every page in blue"),
}
DECISIONS = {
    "move the newsletter to Fridays": "newsletter",
    "stop supporting the old importer": "importer",
    "paint the hallway dark green": "hallway",
    "share one calendar with the neighbours": "calendar",
}
MODULES = ("ledger", "parser", "scheduler", "uploader", "router", "exporter")
FAULTS = ("a deadlock in", "an off-by-one error in", "a memory leak in", "a wrong time zone in")
PLACES = ("Porto", "Tallinn", "Kanazawa", "Valdivia", "Bergen", "成都")
ERRANDS = {
    "Bergen": (
        ("the ferry tickets cost 90 euros", "Nils lends us his cabin"),
        "What do we know about the fjord holiday?",
    ),
    "the wedding": (("the band wants a deposit", "Mei will bake the cake"), "What was arranged for the big day?"),
    "the move": (("the van comes on the third", "两个书架送给小林"), "What is settled for the new flat?"),
}
"""For each plan: what was said about it over the weeks, and a question that does not name it."""
CHATTER = (
    "The weather was {a} today, and the market was full.",
    "I read another chapter of the {a} novel on the train.",
    "Dinner was {a}: rice, beans and something from the garden.",
    "The meeting took longer than planned; the {a} slides were the reason.",
    "今天有点{a}，不过散步很舒服。",
    "My brother called and told the {a} story again.",
    "The build was {a} this morning, then it was fine.",
    "I cleaned the desk and found a {a} notebook.",
)
REPLIES = ("That sounds {a}.", "Good to know. Anything else?", "I see. It was a {a} day then.", "好的，我记下了。")
ADJECTIVES = ("quiet", "odd", "long", "bright", "grey", "lovely", "slow", "noisy", "plain", "热", "冷", "strange")


@dataclass
class Said:
    """A message of a history."""

    when: int
    role: str
    text: str


@dataclass
class Asked:
    """A question, its kind, and the numbers of the messages that answer it.

    `stale` are the messages that were true before; the newest of all must come last in a view.
    """

    kind: str
    question: str
    evidence: list[int]
    stale: list[int] = field(default_factory=list)


@dataclass
class History:
    """A history: messages in order, and questions at its end."""

    messages: list[Said]
    questions: list[Asked]


def make_history(number: int) -> History:
    """Return the history with this number."""
    return _Maker(number).make()


class _Maker:
    def __init__(self, number: int) -> None:
        self._chance = random.Random(f"history {number}")
        self._lines: dict[int, list[tuple[str, str, str]]] = {}
        """For each session: the role, the text and a label of each line that matters."""
        self._asked: list[tuple[str, str, list[str], list[str]]] = []

    def make(self) -> History:
        for add in (self._facts, self._chinese, self._advice, self._decisions, self._code, self._plans):
            add()
        for add in (self._changes, self._errands, self._near_misses, self._rollbacks):
            add()
        messages: list[Said] = []
        numbers: dict[str, int] = {}
        for session in range(SESSIONS):
            when = START + session * 4 * DAY + self._chance.randrange(6) * 3_600_000
            for role, text, label in self._session(session):
                if label:
                    numbers[label] = len(messages)
                messages.append(Said(when + 60_000 * len(messages), role, text))
        asked = [
            Asked(kind, question, [numbers[label] for label in labels], [numbers[label] for label in stale])
            for kind, question, labels, stale in self._asked
        ]
        return History(messages, asked)

    def _session(self, session: int) -> Iterator[tuple[str, str, str]]:
        """Yield the lines of a session: those that matter between chatter."""
        for line in [*self._lines.get(session, ()), None, None]:
            for _ in range(self._chance.randrange(1, 3)):
                for role, texts in (("user", CHATTER), ("assistant", REPLIES)):
                    text = self._chance.choice(texts).format(a=self._chance.choice(ADJECTIVES))
                    yield role, f"{text} ({session}.{self._chance.randrange(10_000)})", ""
            if line is not None:
                yield line

    def _say(self, session: int, role: str, text: str) -> str:
        label = f"{session} {role} {text}"
        self._lines.setdefault(session, []).append((role, text, label))
        return label

    def _ask(self, kind: str, question: str, labels: list[str], stale: list[str] | None = None) -> None:
        self._asked.append((kind, question, labels, stale or []))

    def _times(self, count: int) -> list[int]:
        return sorted(self._chance.sample(range(SESSIONS - 3), count))

    def _facts(self) -> None:
        """Add facts that change twice, and a contradiction by the assistant."""
        for thing, (what, values) in FACTS.items():
            first, second, third = self._chance.sample(values, 3)
            times = self._times(3)
            other = "your" + thing.removeprefix("my") if thing.startswith("my ") else thing
            said = [
                self._say(times[0], "user", f"For the record, the {what} of {thing} is {first}."),
                self._say(times[1], "user", f"A change: {thing} is not with {first} any more; the {what} is {second}."),
                self._say(times[2], "user", f"Update on {thing}: from today the {what} is {third}."),
            ]
            self._ask("last value", f"What is the {what} of {thing} now?", said[2:], said[:2])
            self._ask("before", f"What was the {what} of {thing} before the last change?", said[1:2])
            wrong = self._say(times[2], "assistant", f"I have noted {fourth(values, third)} as the {what} of {other}.")
            self._ask("contradiction", f"Did we ever disagree about the {what} of {thing}?", [said[2], wrong])

    def _chinese(self) -> None:
        for thing, values in CHINESE.items():
            first, second = self._chance.sample(values, 2)
            times = self._times(2)
            old = self._say(times[0], "user", f"我的{thing}是{first}，请记住。")
            new = self._say(times[1], "user", f"我换了{thing}，现在是{second}。")
            self._ask("Chinese", f"我现在的{thing}是哪一个？", [new], [old])
            self._ask("Chinese", f"我以前的{thing}叫什么？", [old])

    def _advice(self) -> None:
        """Add advice of the assistant, and words of the user about the same topic."""
        for topic, tips in ADVICE.items():
            mine, yours = self._chance.sample(tips, 2)
            times = self._times(2)
            own = self._say(times[0], "user", f"About {topic}: maybe the best idea is to {mine}.")
            given = self._say(times[1], "assistant", f"About {topic}: maybe the best idea is to {yours}.")
            self._ask("you", f"What did you suggest about {topic}?", [given])
            self._ask("I", f"What was my own idea about {topic}?", [own])

    def _decisions(self) -> None:
        for what, word in DECISIONS.items():
            talked, decided = self._times(2)
            self._say(talked, "user", f"Should we {what}? The {word} could wait.")
            label = self._say(decided, "user", f"It is settled: we {what}.")
            self._ask("when decided", f"When did we decide to {what}?", [label])

    def _code(self) -> None:
        for module in self._chance.sample(MODULES, 3):
            fault, name = self._chance.choice(FAULTS), f"flush_{module}_{self._chance.randrange(100)}"
            found, fixed = self._times(2)
            cause = self._say(found, "assistant", f"src/{module}.py: {fault} `{name}()`; the lock is never freed.")
            fix = self._say(fixed, "assistant", f"I patched `{name}()` with a context manager; tests of {module} pass.")
            self._ask("code", f"What was wrong in {name}, and how was it repaired?", [cause, fix])

    def _plans(self) -> None:
        for place in self._chance.sample(PLACES, 3):
            times = self._times(3)
            month = self._chance.choice(("May", "August", "November"))
            said = [
                self._say(times[0], "user", f"I want to travel to {place} in {month}."),
                self._say(times[1], "user", f"The hotel for {place} is booked, the one beside the station."),
                self._say(times[2], "user", f"Somebody must feed the cat while I am in {place}."),
            ]
            self._ask("plan", f"What is still to arrange and what is booked for the {place} trip?", said)

    def _changes(self) -> None:
        """Add values that change twice in words that differ from the question, with remarks that repeat the values."""
        for thing, (values, question) in CHANGES.items():
            first, second, third = self._chance.sample(values, 3)
            told = [line for group in self._chance.choice(PARAPHRASES) for line in group]
            times = self._times(4)
            said = [
                self._say(when, "user", f"{text[0].upper()}{text[1:]}")
                for when, line in zip(times, told, strict=True)
                if (text := line.format(thing=thing, a=first, b=second, c=third))
            ]
            self._ask("other words", f"{question} What is it now?", said[2:3], said[:2])
            self._ask("before, by value", f"What did we have for {thing} before {third}?", said[1:2])
            when = self._say(times[2], "assistant", f"Noted on day {times[2]}: the switch to {third} is done.")
            self._ask("when changed", f"When did we switch {thing} to {third}?", [said[2], when])

    def _errands(self) -> None:
        """Add plans of several parts, and questions that do not name them."""
        for plan, (parts, question) in ERRANDS.items():
            times = self._times(len(parts) + 1)
            said = [self._say(times[0], "user", f"Let us plan {plan}. {question.split(' ', 4)[-1][:-1].capitalize()}!")]
            said += [
                self._say(when, "user", f"For {plan}: {part}.") for when, part in zip(times[1:], parts, strict=True)
            ]
            self._ask("plan in other words", question, said)

    def _near_misses(self) -> None:
        """Add two people with the same kind of fact; a question is about one of them, in English or in Chinese."""
        months = self._chance.sample(("March", "June", "October"), 2)
        for (one, other), month in zip((("my sister", "my cousin"), ("my boss", "my neighbour")), months, strict=True):
            towns = self._chance.sample(("Graz", "Leuven", "Osaka", "Cusco", "Turku"), 2)
            times = self._times(3)
            moved = self._say(times[0], "user", f"{one[3:].capitalize()} moves to {towns[0]} in {month}.")
            self._say(times[1], "user", f"{other[3:].capitalize()} moves to {towns[1]} in {month} as well.")
            late = self._say(times[2], "user", f"她的航班改到晚上了 ({one[3:]}, {towns[0]}).")
            self._ask("one of two", f"Where does {one} move, and what changed about the flight?", [moved, late])

    def _rollbacks(self) -> None:
        """Add a code session in which a fix is taken back: the last state counts."""
        for module in self._chance.sample(MODULES, 2):
            name = f"{module}Retry{self._chance.randrange(100)}"
            times = self._times(3)
            said = [
                self._say(times[0], "assistant", f"`{name}.limit` was 3; I raised it to 8 in src/{module}.py."),
                self._say(times[1], "user", f"The higher {name}.limit overloads the queue, please revert that."),
                self._say(times[2], "assistant", f"Reverted: `{name}.limit` is 3 again, with jitter."),
            ]
            self._ask("code, last state", f"What is {name}.limit set to now?", said[2:], said[:1])
            self._ask("code, why", f"Why did you take back the change to {name}?", said[1:])


def fourth(values: tuple[str, ...], not_this: str) -> str:
    """Return the first value that is another one."""
    return next(value for value in values if value != not_this)
