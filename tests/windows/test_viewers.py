"""The viewers of files and of tables among the examples: pages, search, no way out of the folder, no writes."""

import json
from pathlib import Path
from typing import Any

import apsw
import pytest
from parts.file_viewer import Files
from parts.table_viewer import Tables

from quire import InvalidValue


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "src" / "深").mkdir(parents=True)
    (folder / "src" / "main.py").write_text("".join(f"line {n}\n" for n in range(1, 151)))
    (folder / "src" / "深" / "笔记.txt").write_text("第一行\n预算是八千\n", encoding="utf-8")
    (folder / "data.bin").write_bytes(b"\x00\x01\x02")
    (tmp_path / "secret.txt").write_text("the secret")
    return folder


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    connection = apsw.Connection(str(tmp_path / "shop.db"))
    connection.execute('CREATE TABLE orders (id INTEGER, customer TEXT, "weird ""name" TEXT)')
    for n in range(1, 46):
        connection.execute("INSERT INTO orders VALUES (?, ?, ?)", (n, f"客户{n % 3}", "a\nb"))
    connection.execute('CREATE TABLE "odd; DROP TABLE orders" (x)')
    connection.execute(
        "CREATE VIEW slow AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    )
    connection.close()
    return Tables(tmp_path / "shop.db")


def reopened(viewer: Any, *arguments: Any) -> Any:
    again = type(viewer)(*arguments)
    again.restore(json.loads(json.dumps(viewer.save())))
    return again


def test_folders_and_files_are_shown_page_by_page_and_the_place_comes_back(root: Path) -> None:
    files = Files(root)
    files.open()
    assert files.content().splitlines()[1:] == ["src/", "data.bin (3 bytes)"]
    files.show("data.bin")
    assert "\x00" not in files.content()
    files.show("src/main.py")
    assert files.content().splitlines()[1] == "1 line 1"
    for page, shown in ((3, 3), (99, 3), (-5, 1), (2, 2)):
        files.page(page)
        assert f"page {shown} of 3" in files.content()
    assert reopened(files, root).content() == files.content()


WAYS_OUT = (
    "../secret.txt",
    "src/../../secret.txt",
    "..",
    "/etc/passwd",
    "\\etc",
    "src\\..\\..\\secret.txt",
    "C:/secret",
)
NO_FILES = ("a\0b", "missing", "src/main.py/x", "x" * 100_000)
LINKS = ("out/secret.txt", "leak.txt", "out", "inside", "inside/main.py")


def test_neither_a_path_nor_a_link_leads_out_of_the_folder(root: Path, tmp_path: Path) -> None:
    (root / "out").symlink_to(tmp_path)
    (root / "leak.txt").symlink_to(tmp_path / "secret.txt")
    (root / "inside").symlink_to(root / "src")
    files = Files(root)
    for path in (*WAYS_OUT, *NO_FILES, *LINKS):
        with pytest.raises(InvalidValue):
            files.show(path)
    assert files.content().splitlines()[1:] == ["src/", "data.bin (3 bytes)"]
    files.search("secret")
    assert len(files.content().splitlines()) == 1
    files.show("src/main.py")
    (root / "src" / "main.py").unlink()
    (root / "src" / "main.py").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(InvalidValue):
        files.content()


def test_rows_are_shown_page_by_page_ordered_and_filtered(tables: Tables, tmp_path: Path) -> None:
    assert 'orders (id, customer, weird "name)' in tables.content()
    tables.open("orders")
    assert tables.content().splitlines()[1:3] == ['id | customer | weird "name', "1 | 客户1 | a b"]
    tables.page(100)
    assert tables.content().splitlines()[-1].startswith("45 | ")
    tables.sort("id", descending=True)
    assert tables.content().splitlines()[2].startswith("45 |")
    tables.filter("id", "<=", "9")
    assert "9 rows" in tables.content()
    tables.filter("customer", "contains", "户2")
    assert "15 rows" in tables.content()
    assert reopened(tables, tmp_path / "shop.db").content() == tables.content()


@pytest.mark.parametrize("value", ["' OR 1=1 --", '"; DROP TABLE orders; --', "\0", "%", "x" * 100_000])
def test_a_value_is_never_sql(tables: Tables, value: str) -> None:
    tables.show("orders")
    tables.filter("customer", "=", value)
    assert " 0 rows" in tables.content()
    for act, wrong in ((tables.sort, "id; DROP TABLE orders"), (tables.show, "users")):
        with pytest.raises(InvalidValue):
            act(wrong)
    tables.show("odd; DROP TABLE orders")
    tables.show("orders")
    assert "45 rows" in tables.content()


def test_a_look_that_costs_too_much_ends_and_no_database_is_made(tables: Tables, tmp_path: Path) -> None:
    tables.show("slow")
    (tmp_path / "text.db").write_text("no database" * 1_000)
    for each in (tables, Tables(tmp_path / "missing.db"), Tables(tmp_path / "text.db")):
        with pytest.raises(InvalidValue):
            each.content()
    assert not (tmp_path / "missing.db").exists()
