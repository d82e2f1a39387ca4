"""What known programs are cut into, and what blocks make of them in both runtimes."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from block_distribution import Change, blocks_of, histories
from paths import VIEWS
from plain_distribution import PlainDistribution
from uncompiled import run_uncompiled

from orderbook.core.changes import Dictionary
from orderbook.core.errors import ConfigurationError
from orderbook.engine.distribution.distribute import COMPUTE, describe, dispatch_table, distribute, planned
from orderbook.engine.distribution.stages import Distribution, Phase, grid_side
from orderbook.engine.runtime.interpreter import Interpreter
from orderbook.views.compilation import compile_views
from orderbook.views.m3 import Program
from orderbook.views.types import Kind

BOOK = """
CREATE STREAM bids (symbol TEXT NOT NULL, venue TEXT NOT NULL, broker_id INTEGER NOT NULL,
                    volume INTEGER NOT NULL CHECK (volume BETWEEN 0 AND 1000000),
                    price INTEGER NOT NULL CHECK (price BETWEEN 0 AND 1000000)) WITH (max_rows = 1000000);
CREATE TABLE sectors (symbol TEXT NOT NULL, sector TEXT NOT NULL);
"""
BROKERS = """
CREATE VIEW brokers AS SELECT broker_id, SUM(volume) AS v, COUNT(*) AS n FROM bids GROUP BY broker_id;
"""
VWAPS = """
CREATE VIEW vwaps AS SELECT b.symbol, SUM(b.price * b.volume) AS value, SUM(b.volume) AS volume FROM bids b
WHERE 0.25 * (SELECT SUM(t.volume) FROM bids t WHERE t.symbol = b.symbol)
    > (SELECT COALESCE(SUM(x.volume), 0) FROM bids x WHERE x.symbol = b.symbol AND x.price > b.price)
GROUP BY b.symbol;
"""
GLOBAL = VWAPS + "CREATE VIEW total AS SELECT SUM(value) AS value, SUM(volume) AS volume FROM vwaps;"
CHAIN = (
    VWAPS
    + """
CREATE VIEW by_sector AS SELECT s.sector, SUM(v.volume) AS volume FROM vwaps v, sectors s
WHERE s.symbol = v.symbol GROUP BY s.sector;
CREATE VIEW largest AS SELECT MAX(volume) AS volume, COUNT(*) AS sectors FROM by_sector;
"""
)
NESTED = """
CREATE VIEW above AS SELECT symbol, SUM(volume) AS volume FROM bids GROUP BY symbol
HAVING SUM(volume) > (SELECT SUM(volume) / COUNT(DISTINCT symbol) FROM bids);
"""
GRID = "CREATE VIEW cells AS SELECT symbol, venue, SUM(volume) AS v FROM bids GROUP BY symbol, venue;"
WIDE = """
CREATE STREAM w (symbol TEXT NOT NULL, v BIGINT NOT NULL) WITH (max_rows = 1000);
CREATE VIEW squares AS SELECT SUM(s) AS s FROM
    (SELECT symbol, SUM(v) AS s FROM w GROUP BY symbol HAVING COUNT(DISTINCT v) > 1) g;
"""
DOUBLES = """
CREATE STREAM d (symbol TEXT NOT NULL, x DOUBLE NOT NULL);
CREATE VIEW each AS SELECT symbol, SUM(x) AS s, COUNT(*) AS n FROM d GROUP BY symbol;
CREATE VIEW most AS SELECT MAX(s) AS s FROM each WHERE n > 1;
"""


def program_of(sql: str) -> Program:
    return compile_views(sql, {"k": 0.25}).program


def shape(distribution: Distribution) -> list[tuple[str, ...]]:
    return [tuple(axis.name for axis in stage.axes) for stage in distribution.stages]


def random_events(program: Program, dictionary: Dictionary, count: int, seed: int = 3) -> list[list[Change]]:
    """Inserts, deletes and updates of random rows of few values."""
    random, live = Random(seed), {}  # type: ignore[var-annotated]
    read = sorted({t.relation for t in program.triggers})
    events: list[list[Change]] = []
    for _ in range(count):
        name = random.choice(read)
        rows = live.setdefault(name, [])
        event: list[Change] = []
        if rows and random.random() < 0.5:
            event.append((name, False, rows.pop(random.randrange(len(rows)))))
        if not event or random.random() < 0.4:
            rows.append(
                tuple(_word(random, c.name, c.type, dictionary) for c in program.relation(name).columns)
            )
            event.append((name, True, rows[-1]))
        events.append(event)
    return events


def _word(random: Random, name: str, kind, dictionary: Dictionary):  # type: ignore[no-untyped-def]
    if kind.kind is Kind.TEXT:
        return dictionary.encode(f"{name}{random.randrange(4)}")
    if kind.kind is Kind.DOUBLE:
        return random.choice((0.5, -0.5, 1.25, 3.0))
    if kind.high - kind.low > 2**62:
        return random.choice((kind.high - 5, kind.low + 5, kind.high // 3, 7))
    return random.choice((kind.low if kind.low >= 0 else 1, 2, 3, 5, 8, 400, 500))


def check_rows(program: Program, distribution: Distribution, partitions: int, count: int = 60) -> int:
    """Compares all views after every change with the undivided program; how many rows travelled."""
    dictionary = Dictionary()
    whole, split = Interpreter(program, dictionary), PlainDistribution(distribution, dictionary, partitions)
    for event in random_events(program, dictionary, count):
        for relation, insert, row in event:
            whole.change(relation, insert, row)
            split.change(relation, insert, row)
            for result in program.results:
                expected = {k: (n, columns) for k, n, columns in whole.rows(result.name)}
                assert split.rows(result.name) == expected, result.name
    return split.messages


def test_sobi_by_symbol_is_one_stage_without_messages() -> None:
    program = compile_views([VIEWS / "sobi.sql"], {"k": 0.25}).program
    found = distribute(program, partitions=7)
    assert shape(found) == [("symbol",)]
    assert found.stages[0].views == ("bid_vwap", "ask_vwap", "sobi")
    assert not found.notes
    # Every row is sent once, so that triggers run as in one process.
    assert {i.phase for i in found.stages[0].inputs} == {Phase.BEFORE}
    assert len(found.stages[0].inputs) == 2
    assert check_rows(program, found, 3) == 0


def test_broker_totals_are_partitioned_by_broker() -> None:
    program = program_of(BOOK + BROKERS)
    found = distribute(program, partitions=7)
    assert shape(found) == [("broker_id",)]
    assert found.stages[0].inputs[0].columns == (2, 3)
    assert check_rows(program, found, 3) == 0


def test_a_total_of_vwaps_takes_partial_sums_from_the_symbols() -> None:
    program = program_of(BOOK + GLOBAL)
    found = distribute(program, partitions=7, key="symbol")
    assert shape(found) == [("symbol",), ()]
    assert found.stages[0].views == ("vwaps",) and found.stages[1].views == ("total",)
    assert found.stages[0].outputs and all(o.partial for o in found.stages[0].outputs)
    assert {i.phase for i in found.stages[1].inputs} == {Phase.CHANGES}
    check_rows(program, found, 3)


def test_a_chain_takes_two_shuffles() -> None:
    program = program_of(BOOK + CHAIN)
    found = distribute(program, partitions=4, key="symbol,sector", compute="destination")
    assert len(found.stages) >= 3
    check_rows(program, found, 3)


def test_groups_compared_with_a_global_mean_are_evaluated_in_every_partition() -> None:
    program = program_of(BOOK + NESTED)
    for compute in ("auto", "destination", "source"):
        found = distribute(program, partitions=4, key="symbol", compute=compute)
        assert ("symbol",) in shape(found)[1:]
        check_rows(program, found, 3)


@pytest.mark.parametrize("key", [None, "broker_id", "price"])
@pytest.mark.parametrize("file", sorted((VIEWS / "finance").glob("[!s]*.sql")), ids=lambda f: f.stem)
def test_the_finance_views_are_right_in_partitions(file: Path, key: str | None) -> None:
    program = compile_views([VIEWS / "finance" / "schema.sql", file]).program
    check_rows(program, distribute(program, partitions=3, key=key), 3, 40)


def test_a_grid_gives_every_cell_its_rows() -> None:
    program = program_of(BOOK + GRID)
    found = distribute(program, partitions=4, key="symbol,venue")
    assert shape(found) == [("symbol", "venue")]
    assert check_rows(program, found, 2) == 0
    (entry,) = dispatch_table(found)
    assert entry.given == ("symbol", "venue") and entry.writes


def test_a_grid_is_the_largest_that_has_no_more_partitions_than_asked_for() -> None:
    for partitions in range(1, 300):
        assert [grid_side(partitions, axes) for axes in (0, 1)] == [1, partitions]
        for axes in (2, 3):
            side = grid_side(partitions, axes)
            assert side**axes <= partitions < (side + 1) ** axes


def test_sums_of_more_than_64_bits_travel_in_words() -> None:
    program = program_of(WIDE)
    found = distribute(program, partitions=3, key="symbol")
    assert [len(i.columns) for i in found.stages[1].inputs if i.phase is Phase.CHANGES] != []
    assert max(len(i.columns) for i in found.stages[1].inputs) >= 2
    check_rows(program, found, 3)


def test_sums_of_doubles_are_never_partial() -> None:
    """Only the order of the rows in one partition gives the bits that one process has."""
    program = program_of(DOUBLES + "CREATE VIEW total AS SELECT SUM(s) AS s FROM each WHERE n > 1;")
    for compute in COMPUTE:
        found = distribute(program, partitions=3, key="symbol", compute=compute)
        sent = [(s.program.result(o.view), o) for s in found.stages for o in s.outputs]
        assert not [o for r, o in sent if o.partial and any(not c.type.exact for c in r.columns)]
        check_rows(program, found, 3)


def test_partial_sums_are_gone_with_their_rows() -> None:
    """A pair of rows is counted by one value of the axis, whichever comes or goes; else there are none."""
    pairs = (
        "CREATE VIEW pairs AS SELECT SUM(a.volume * b.volume) AS v "
        "FROM bids a, bids b WHERE a.price < b.price"
    )
    for more, partial in ((" AND a.symbol = b.symbol;", True), (";", False)):
        found = distribute(program_of(BOOK + pairs + more), partitions=3, key="symbol", compute="source")
        assert any(o.partial for s in found.stages for o in s.outputs) == partial


def test_one_partition_is_one_stage() -> None:
    found = distribute(program_of(BOOK + CHAIN), partitions=1)
    assert shape(found) == [()]
    assert found.notes == ("one partition only: because no more were asked for",)


@pytest.mark.parametrize(
    ("key", "message"), [("colour", "no stream has that column"), ("symbol,symbol", "twice")]
)
def test_a_key_that_is_none_is_refused(key: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        distribute(program_of(BOOK + BROKERS), partitions=2, key=key)


def test_the_text_says_what_lives_where_and_what_travels() -> None:
    text = describe(planned(program_of(BOOK + GLOBAL), partitions=7, key="symbol"))
    assert "stage 1, partitioned by symbol:" in text
    assert "partial sums -> stage 2" in text
    assert "changes of total_sum of" in text
    text = describe(planned(program_of(BOOK + GLOBAL), partitions=1))
    assert "one partition only: because no more were asked for" in text


def check_blocks(sql: str, key: str, backend: str, computes: Sequence[str] = ("auto",)) -> None:
    program, dictionary = program_of(sql), Dictionary()
    blocks = blocks_of(program, random_events(program, dictionary, 50))
    expected = histories(distribute(program, partitions=1), dictionary, blocks, 1, "interpreter")
    for compute in computes:
        found = distribute(program, partitions=3, key=key, compute=compute)
        assert len(found.stages) > 1
        assert histories(found, dictionary, blocks, 3, backend) == expected


CASES = {
    "global": (BOOK + GLOBAL, "symbol"),
    "chain": (BOOK + CHAIN, "symbol,sector"),
    "nested": (BOOK + NESTED, "symbol"),
    "wide": (WIDE, "symbol"),
    "doubles": (DOUBLES, "symbol"),
}
every_case = pytest.mark.parametrize(("sql", "key"), CASES.values(), ids=CASES)


@every_case
def test_histories_of_blocks_equal_those_of_one_partition(sql: str, key: str) -> None:
    check_blocks(sql, key, "interpreter", ("auto", "destination", "source"))


@pytest.mark.exhaustive
@every_case
def test_histories_of_compiled_stages_equal_those_of_one_partition(sql: str, key: str) -> None:
    check_blocks(sql, key, "numba", ("auto", "destination", "source"))


def test_a_compiled_stage_equals_the_interpreter() -> None:
    check_blocks(WIDE, "symbol", "numba")


def run_stages(count: int, seed: int) -> None:
    """Runs stages of views of the catalogue through generated modules as plain Python."""
    assert run_uncompiled("distribution_runner.py", str(count), str(seed)) == f"{count} passed\n"


def test_generated_code_of_stages_equals_one_partition() -> None:
    run_stages(6, 1)


@pytest.mark.exhaustive
def test_generated_code_of_many_stages_equals_one_partition(sample_seed: int, sample_count: int) -> None:
    run_stages(sample_count, sample_seed)
