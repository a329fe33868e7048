"""The contract of names: any printable name is a context of its own, and no name gets out of the store."""

from quire.errors import InvalidValue
from quire.storage.base import PAGE, Commit, Put, Record, Storage
from quire.testing.case import HEAD, StorageCase, keys_of, pages, refused, write

_SHORT = """
    a A aa aA Aa AA a-b a_b a+b a.b a%b a%2fb a/b a\\b a:b % %25 . .. ... .a a. ../x ../../x /etc/passwd ~ ~/x
    - -- --help -rf * ? | con CON Con nul aux.txt com1 lpt9 log lock stamp.json pages .dropped-00 'x' `x` $HOME $(id)
    {} <a> & # 0 -1 1e9 None null é e\u0301 ß SS ss İ i ı \u212a K ﬁ fi 中文 中文的名字 日本 עברית 🙂 🙂🙂
"""
ACCEPTED = (
    *_SHORT.split(),
    *("a b", '"', "'; DROP TABLE page; --", "x" * 200, "X" * 200, "x" * 199, "x" * 199 + "y", "A" + "x" * 199),
    *(character * 200 for character in "中🙂é."),
)
REFUSED = (
    *("", " ", " a", "a ", "\ta", "a\n", "\u00a0", "\u3000a", "x" * 201, "中" * 201, "a" * 10_000_000),
    *("\x00", "a\x00b", "a\nb", "a\rb", "a\tb", "\x1b[31m", "a\x7fb", "\x85", "a\u2028b", "a\u202eb", "a\u200bb"),
    *("\ud800", "a\udfffb", "\udc80", "\ufeffa"),
)


class NameRules(StorageCase):
    """Names of contexts, friendly and hostile."""

    def test_every_accepted_name_is_a_context_of_its_own(self) -> None:
        storage = self.open()
        for number, name in enumerate(ACCEPTED):
            write(storage, name, Put(PAGE, 1, name.encode(), 1, b"o"), Put(PAGE, 2 + number, b""))
        self._keeps_all(storage)
        if self.persistent:
            storage.close()
            self._keeps_all(self.open())

    def _keeps_all(self, storage: Storage) -> None:
        assert list(storage.contexts()) == sorted(ACCEPTED)
        for number, name in enumerate(ACCEPTED):
            assert storage.get(name, PAGE, 1) == Record(1, name.encode(), 1, b"o"), name
            assert keys_of(storage.scan(name, PAGE)) == [1, 2 + number], name

    def test_dropping_one_name_leaves_its_look_alikes(self) -> None:
        storage = self.open()
        alike = ("a", "A", "é", "e\u0301", "..", "../x", "con", "CON", "x" * 200, "X" * 200)
        for name in alike:
            write(storage, name, *pages([1]))
        left = set(alike)
        for name in alike:
            storage.drop(name)
            left.discard(name)
            assert list(storage.contexts()) == sorted(left)

    def test_a_refused_name_makes_no_context(self) -> None:
        storage = self.open()
        write(storage, "a", *pages([1]))
        for name in REFUSED:
            with refused(InvalidValue):
                storage.commit(name, Commit(0, 1, HEAD, pages([2])))
        assert list(storage.contexts()) == ["a"]
        assert keys_of(storage.scan("a", PAGE)) == [1]

    def test_a_refused_name_can_be_asked_for(self) -> None:
        storage = self.open()
        write(storage, "a", *pages([1]))
        for name in REFUSED:
            for ask in (self._head, self._get, self._scan, self._members, self._drop):
                try:
                    found = ask(storage, name)
                except InvalidValue:
                    continue
                assert not found, (ask.__name__, name[:20])
        assert list(storage.contexts()) == ["a"]

    def _head(self, storage: Storage, name: str) -> object:
        return storage.head(name)

    def _get(self, storage: Storage, name: str) -> object:
        return storage.get(name, PAGE, 1)

    def _scan(self, storage: Storage, name: str) -> object:
        return list(storage.scan(name, PAGE))

    def _members(self, storage: Storage, name: str) -> object:
        return list(storage.members(name, PAGE, 1))

    def _drop(self, storage: Storage, name: str) -> None:
        storage.drop(name)
