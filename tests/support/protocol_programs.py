"""SQL programs as stages, for simulated clusters; what they must give is what the undivided program gives."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from protocol_simulation import Histories, gathered

import orderbook
from orderbook.core.changes import Dictionary
from orderbook.engine.distribution.blocks import Block
from orderbook.engine.distribution.distribute import distribute
from orderbook.engine.distribution.stage_runner import StageRunner
from orderbook.engine.distribution.stages import Distribution, Input, Phase, Stage
from orderbook.engine.protocol.messages import OperatorFactory
from orderbook.engine.protocol.switch import RowChange
from orderbook.engine.protocol.topology import Running, StageOperator, block_of
from orderbook.engine.protocol.versioned_rows import block
from orderbook.views.m3 import Program

TRADES = (
    "CREATE STREAM trades (symbol TEXT NOT NULL, broker TEXT NOT NULL, volume INTEGER NOT NULL);\n"
    "CREATE STREAM quotes (symbol TEXT NOT NULL, price INTEGER NOT NULL);\n"
)
SYMBOLS = "CREATE VIEW symbols AS SELECT symbol, SUM(volume) AS total FROM trades GROUP BY symbol;\n"
# By name: views, the key they are distributed by, where statements are computed.
SQL = {
    "by symbol, then global": (
        SYMBOLS
        + "CREATE VIEW largest AS SELECT MAX(total) AS most, SUM(total * total) AS squares FROM symbols;",
        "symbol",
        "auto",
    ),
    "two shuffles": (
        "CREATE VIEW pairs AS SELECT symbol, broker, SUM(volume) AS total FROM trades "
        "GROUP BY symbol, broker;\n"
        "CREATE VIEW brokers AS SELECT broker, SUM(total * total) AS squares FROM pairs GROUP BY broker;\n"
        "CREATE VIEW largest AS SELECT MAX(squares) AS most FROM brokers;",
        "symbol,broker",
        "source",
    ),
    "nested across symbols": (
        SYMBOLS + "CREATE VIEW above AS SELECT COUNT(*) AS n, SUM(s.total) AS total FROM symbols s "
        "WHERE 2 * s.total > (SELECT MAX(b.total) FROM symbols b);",
        "symbol",
        "destination",
    ),
    "partial sums of a join": (
        "CREATE VIEW worth AS SELECT t.broker, SUM(t.volume * q.price) AS worth FROM trades t "
        "JOIN quotes q ON t.symbol = q.symbol GROUP BY t.broker;",
        "symbol,broker",
        "source",
    ),
}
ROWS = {"trades": (3, 3, 6), "quotes": (3, 5)}


@dataclass(frozen=True)
class SqlProgram:
    """A program of SQL; see the simulator's Program. backend: of its stages; the oracle interprets."""

    name: str
    whole: Program
    distribution: Distribution
    dictionary: Dictionary
    backend: str = "interpreter"
    any_order: bool = False

    def factory(self, stage: int) -> OperatorFactory:
        running = Running(self.dictionary, self.backend)
        return lambda saved: StageOperator(self.distribution.stages[stage], running, saved)

    def row(self, choose: random.Random) -> RowChange:
        relation = choose.choice([r for r in self.whole.relations if r.name in _read(self.whole)])
        values = [choose.randrange(n) for n in ROWS[relation.name]]
        words = ["ABC"[v] for v in values[:-1]]
        return RowChange(relation.name, False, (*map(self.dictionary.encode, words), values[-1] - 1))

    def serial(self, blocks: Sequence[Block], end: int) -> Histories:
        inputs = tuple(
            Input(r.name, r.name, Phase.BEFORE, tuple(range(len(r.columns))), ())
            for r in self.whole.relations
        )
        views = tuple(r.name for r in self.whole.results)
        runner = StageRunner(Stage(0, (), self.whole, inputs, (), views), self.dictionary, "interpreter")
        rows = [block(source, found) for source, found in gathered(blocks).items()]
        history = runner.apply(rows, end).history
        return gathered([block_of(h) for h in history.values()])


def _read(program: Program) -> set[str]:
    return {t.relation for t in program.triggers}


@cache
def sql_program(name: str, backend: str = "interpreter") -> SqlProgram:
    """The program of a name in SQL."""
    sql, key, compute = SQL[name]
    compiled = orderbook.compile(TRADES + sql)
    distribution = distribute(compiled.program, partitions=3, key=key, compute=compute)
    return SqlProgram(name, compiled.program, distribution, compiled.dictionary, backend)
