"""Compiling: SQL from texts and files, what a program holds, and the lazy public names."""

import subprocess
import sys
from pathlib import Path

import pytest
from backends import quotes

import orderbook
from orderbook.core.changes import Dictionary
from orderbook.core.errors import SourceError, SqlError
from orderbook.views.m3_parse import parse

VIEW = "CREATE VIEW best AS\nSELECT symbol, COUNT(*) AS n FROM bids\nGROUP BY symbol;\n"


def test_sql_comes_as_text_path_list_or_mapping(tmp_path: Path) -> None:
    first, second = tmp_path / "best.sql", tmp_path / "unnamed.sql"
    first.write_text(VIEW)
    second.write_text("SELECT COUNT(*) AS n FROM asks")
    assert [v.name for v in orderbook.compile(VIEW).views] == ["best"]
    assert [v.name for v in orderbook.compile(str(first)).views] == ["best"]
    assert [v.name for v in orderbook.compile(second).views] == ["unnamed"]
    assert [v.name for v in orderbook.compile([first, str(second)]).views] == ["best", "unnamed"]
    both = {"a.sql": VIEW, "b.sql": "CREATE VIEW b AS SELECT COUNT(*) AS n FROM best"}
    assert [v.name for v in orderbook.compile(both).views] == ["best", "b"]


def test_errors_name_the_file(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sql"
    broken.write_text("CREATE VIEW v AS\nSELECT volum FROM bids")
    with pytest.raises(SqlError, match=r"broken.sql:2:8: unknown column volum"):
        orderbook.compile(broken)
    with pytest.raises(SourceError, match=r"missing.sql: cannot read: No such file or directory; check"):
        orderbook.compile("missing.sql")
    broken.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SourceError, match="not a text in UTF-8"):
        orderbook.compile(broken)


def test_a_program_holds_every_stage() -> None:
    program = quotes()
    names = [r.name for r in program.relations]
    assert names[:3] == ["bids", "asks", "trades"] and names[-2:] == ["quotes", "marks"]
    assert program.relations == program.program.relations == program.catalog.relations
    assert [v.name for v in program.catalog.views] == [v.name for v in program.views]
    assert "ON + quotes(symbol, venue, volume, price) {" in program.m3
    assert parse(program.m3)[0] == program.program
    with pytest.raises(AttributeError):
        program.views = ()  # type: ignore[misc]


def test_parameters_are_exact() -> None:
    sql = "CREATE VIEW v AS SELECT COUNT(*) AS n FROM bids WHERE price > :k"
    assert "price > 22395000000" in orderbook.compile(sql, params={"k": 223.95}).m3
    with pytest.raises(SqlError, match="parameter :k has no value"):
        orderbook.compile(sql)


def test_programs_may_share_a_dictionary() -> None:
    dictionary = Dictionary(["A"])
    one, two = (orderbook.compile(VIEW, dictionary=dictionary) for _ in range(2))
    assert one.dictionary is two.dictionary is dictionary
    assert orderbook.compile(VIEW).dictionary is not dictionary


def test_text_constants_are_of_the_programs_dictionary() -> None:
    program = orderbook.compile("CREATE VIEW v AS SELECT COUNT(*) AS n FROM bids WHERE symbol = 'B'")
    engine = orderbook.Engine(program, "interpreter")
    row = {"ts": 1, "venue": "X", "broker_id": 0, "volume": 1, "price": 1}
    for number, symbol in enumerate("ABB"):
        engine.insert("bids", {**row, "symbol": symbol, "id": number})
    assert engine["v"][()].n == 2


def test_public_names_are_there_and_lazy() -> None:
    assert set(orderbook.__all__) <= set(dir(orderbook))
    assert all(getattr(orderbook, name) is not None for name in orderbook.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Enginge'"):
        _ = orderbook.Enginge
    heavy = ("numpy", "polars", "sqlglot", "numba")
    code = f"import sys, orderbook; print([m for m in {heavy} if m in sys.modules])"
    root = Path(orderbook.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_program_runs_without_the_parser_of_sql() -> None:
    code = """
import sys
import orderbook.clients.client_engine, orderbook.engine.runtime.compile_process
import orderbook.market.book_relations, orderbook.strategies.gated_engine
print([m for m in ("sqlglot", "orderbook.views.compilation") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
