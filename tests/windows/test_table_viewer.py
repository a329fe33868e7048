"""The table viewer: pages, order, filters, and no writes."""

import json
from pathlib import Path

import apsw
import pytest
from parts.table_viewer import Tables

from quire import InvalidValue


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    connection = apsw.Connection(str(path))
    connection.execute('CREATE TABLE orders (id INTEGER, customer TEXT, "weird ""name" TEXT, data BLOB)')
    for n in range(1, 46):
        connection.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", (n, f"客户{n % 3}", "a\nb", b"\0" * n))
    connection.execute('CREATE TABLE "odd; DROP TABLE orders" (x)')
    connection.close()
    return path


def test_tables_are_listed_with_their_columns(database: Path) -> None:
    assert Tables(database).content() == (
        '2 tables\nodd; DROP TABLE orders (x)\norders (id, customer, weird "name, data)'
    )


def test_rows_are_shown_page_by_page(database: Path) -> None:
    tables = Tables(database)
    tables.open("orders")
    lines = tables.content().splitlines()
    assert lines[:3] == [
        "orders: page 1 of 3, 45 rows",
        'id | customer | weird "name | data',
        "1 | 客户1 | a b | (1 bytes)",
    ]
    tables.page(3)
    assert tables.content().splitlines()[-1].startswith("45 | ")
    tables.page(100)
    assert "page 3 of 3" in tables.content()


def test_rows_are_ordered_and_filtered(database: Path) -> None:
    tables = Tables(database)
    tables.show("orders")
    tables.sort("id", descending=True)
    assert tables.content().splitlines()[2].startswith("45 |")
    tables.filter("id", "<=", "9")
    assert "9 rows" in tables.content()
    tables.filter("customer", "contains", "户2")
    assert "15 rows" in tables.content()
    tables.filter('weird "name', "contains", "%")
    assert "0 rows" in tables.content()
    tables.filter()
    assert "45 rows" in tables.content()


@pytest.mark.parametrize("value", ["' OR 1=1 --", '"; DROP TABLE orders; --', "\0", "x" * 100_000])
def test_a_value_is_never_sql(database: Path, value: str) -> None:
    tables = Tables(database)
    tables.show("orders")
    tables.filter("customer", "=", value)
    assert "0 rows" in tables.content()
    tables.show("odd; DROP TABLE orders")
    tables.show("orders")
    assert "45 rows" in tables.content()


def test_what_is_not_there_is_named_with_what_is(database: Path) -> None:
    tables = Tables(database)
    with pytest.raises(InvalidValue, match="Tables: odd; DROP TABLE orders, orders"):
        tables.show("users")
    with pytest.raises(InvalidValue, match="Show"):
        tables.sort("id")
    tables.show("orders")
    with pytest.raises(InvalidValue, match="Columns: id, customer"):
        tables.sort("id; DROP TABLE orders")
    with pytest.raises(InvalidValue, match="Columns: "):
        tables.filter("nothing", "=", "1")


def test_a_database_that_is_none_is_an_error_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="cannot be opened"):
        Tables(tmp_path / "missing.db").content()
    assert not (tmp_path / "missing.db").exists()
    (tmp_path / "text.db").write_text("no database" * 1_000)
    with pytest.raises(InvalidValue, match="cannot be read"):
        Tables(tmp_path / "text.db").content()


def test_a_look_that_costs_too_much_ends(tmp_path: Path) -> None:
    path = tmp_path / "slow.db"
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE VIEW slow AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    )
    connection.close()
    tables = Tables(path)
    tables.show("slow")
    with pytest.raises(InvalidValue, match="too long"):
        tables.content()


def test_the_place_comes_back(database: Path) -> None:
    tables = Tables(database)
    tables.show("orders")
    tables.sort("id", descending=True)
    tables.filter("customer", "=", "客户1")
    again = Tables(database)
    again.restore(json.loads(json.dumps(tables.save())))
    assert again.content() == tables.content()
