"""Random queries as views over random streams: interpreter, DuckDB and generated code after every event.

A script, so that generated modules can run as plain Python (NUMBA_DISABLE_JIT=1) or compiled:

    python tests/support/random_queries_runner.py --seed 1 --count 100 [--together 4] [--part 0/2]
        [--skip-generated]

The last line is a JSON object: how many queries were maintained, refused (by reason), not taken by
DuckDB, the steps that plans had, and the failures, each shrunk.
"""

import argparse
import json
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass

import duckdb
from fuzz import Change, InterpreterRuntime, Runtime, Step, changes
from generated_runner import GeneratedRuntime
from numba.core import config
from oracle import Oracle, difference
from random_queries_choices import Choices, shrink
from random_queries_grammar import COLUMNS, STREAMS, VALUES, Grammar

from orderbook.core.errors import OrderbookError, SqlError
from orderbook.engine.plan import steps
from orderbook.engine.plan.planner import plan
from orderbook.views.compilation import compile_views
from orderbook.views.m3 import Program

EVENTS = 12
# Compiling a case takes seconds.
SHRINK_TRIES = 300 if config.DISABLE_JIT else 8
# Names of SQL that a query has, counted among the maintained ones.
CONSTRUCTS = {
    "joins": r"JOIN",
    "outer joins": r"(LEFT|RIGHT|FULL) JOIN",
    "correlated subqueries": r"\(SELECT",
    "EXISTS": r"EXISTS",
    "IN (SELECT)": r"IN \(SELECT",
    "ANY or ALL": r"(ANY|ALL) \(",
    "set operations": r"UNION|EXCEPT|INTERSECT",
    "WITH": r"^WITH",
    "windows": r"OVER",
    "LIMIT": r"LIMIT",
    "grouping sets": r"ROLLUP|CUBE|GROUPING SETS",
    "HAVING": r"HAVING",
    "CASE": r"CASE",
    "MIN or MAX": r"(MIN|MAX)\(",
    "COUNT(DISTINCT)": r"COUNT\(DISTINCT",
    "SELECT DISTINCT": r"SELECT DISTINCT",
    "deviations": r"STDDEV|VAR_",
    "pairs": r"COVAR|REGR",
    "other aggregates": r"MAD|ENTROPY|SEM\(|PRODUCT|ANY_VALUE",
    "patterns": r"REGEXP|SIMILAR",
    "BY NAME": r"BY NAME",
    "ROW_NUMBER": r"ROW_NUMBER",
    "quantiles": r"MEDIAN|QUANTILE|PERCENTILE|MODE",
    "relative ranks": r"NTILE|PERCENT_RANK|CUME_DIST",
    "QUALIFY": r"QUALIFY",
    "DISTINCT ON": r"DISTINCT ON",
    "HAVING alone": r"^(?!.*GROUP BY).*HAVING",
    "ASOF": r"ASOF",
    "USING or NATURAL": r"USING|NATURAL",
    "ARG_MAX": r"ARG_M",
    "products of decimals": r"SUM\(\S*\.d \* ",
}


@dataclass(slots=True)
class Report:
    """What a run saw; `failures` are texts that begin with the query and end with the stream."""

    maintained: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    not_in_duckdb: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    constructs: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def stream(choices: Choices, length: int) -> list[list[Change]]:
    """Events over all relations, one or two changes each, everything deleted at the end."""
    drawn: list[Step] = []
    while len(drawn) < length and choices.chance(95):
        relation = choices.pick(tuple(COLUMNS))
        kind = choices.pick(("insert", "insert", "insert", "copy", "update", "delete"))
        row = tuple(choices.pick(VALUES[relation][column]) for column in COLUMNS[relation])
        drawn.append((kind, relation, row, choices.below(8)))
    return list(changes(drawn, 0))


class Comparison:
    """Compares runtimes with DuckDB, whose tables serve for one case after another."""

    def __init__(self, generated: bool):
        self._oracle = Oracle(STREAMS)
        self._generated = generated
        self.compared = 0

    def takes(self, query: str) -> str | None:
        """What DuckDB has against a query, if anything."""
        try:
            self._oracle.replace_views({"v": query})
            self._oracle.rows("v")
        except duckdb.Error as error:
            return str(error).splitlines()[0]
        return None

    def wrong(self, program: Program, queries: Mapping[str, str], events: Sequence[list[Change]]) -> str:
        """The first difference between DuckDB and a runtime, or an empty text."""
        self._oracle.clear()
        self._oracle.replace_views(queries)
        runtimes: dict[str, Runtime] = {"interpreter": InterpreterRuntime(program)}
        if self._generated:
            runtimes["generated"] = GeneratedRuntime(program)
        at_first = {name: _sizes(program, runtime) for name, runtime in runtimes.items()}
        for event in [[], *events]:
            for relation, insert, row in event:
                (self._oracle.insert if insert else self._oracle.delete)(relation, row)
                for runtime in runtimes.values():
                    runtime.change(relation, insert, row)
            for view in queries:
                expected = self._oracle.rows(view)
                for name, runtime in runtimes.items():
                    self.compared += 1
                    found = difference(expected, runtime.rows(view))
                    if found:
                        return f"{name}, view {view}, after {event}: {found}"
        for name, runtime in runtimes.items():
            if _sizes(program, runtime) != at_first[name]:
                return f"{name}: maps are not empty at the end: {_sizes(program, runtime)}"
        return ""


def _sizes(program: Program, runtime: Runtime) -> dict[str, int]:
    sizes = runtime.map_sizes()
    return {m.name: sizes[m.name] for m in program.maps}


def _failed(report: Report, failure: str) -> None:
    print(failure, file=sys.stderr, flush=True)
    report.failures.append(failure)


def run(seed: int, numbers: Sequence[int], together: int, generated: bool) -> Report:
    """Compares the queries of these numbers, `together` in a program."""
    report, comparison = Report(), Comparison(generated)
    cases: dict[int, Choices] = {}
    for number in numbers:
        choices = Choices(f"{seed} {number}")
        query = Grammar(choices).query()
        if _maintainable(query, choices, comparison, report, f"seed {seed}, query {number}"):
            cases[number] = choices
        if len(cases) == together or (cases and number == numbers[-1]):
            _compare(cases, comparison, report, f"seed {seed}")
            cases = {}
    report.compared = comparison.compared
    return report


def _maintainable(query: str, choices: Choices, comparison: Comparison, report: Report, where: str) -> bool:
    try:
        compile_views(_sql({"v": query}))
    except OrderbookError as error:
        report.refused[_reason(error)] += 1
        return False
    except Exception:
        _failed(report, f"{where}: {shrunk(choices.made, (), comparison)}")
        return False
    invalid = comparison.takes(query)
    if invalid:
        report.not_in_duckdb[re.sub(r"\d+", "N", invalid)] += 1
        return False
    report.maintained += 1
    report.constructs.update(name for name, words in CONSTRUCTS.items() if re.search(words, query))
    return True


def _compare(cases: Mapping[int, Choices], comparison: Comparison, report: Report, where: str) -> None:
    drawn = Choices(f"{where} {min(cases)} stream")
    events = stream(drawn, EVENTS)
    queries = {f"v{number}": Grammar(Choices(given=c.made)).query() for number, c in cases.items()}
    try:
        program = compile_views(_sql(queries)).program
        report.steps.update(steps_of(plan(program)))
        wrong = comparison.wrong(program, queries, events)
    except Exception:
        wrong = traceback.format_exc(limit=-4)
    if wrong:
        alone = [c for c in cases.values() if _fails(c.made, drawn.made, comparison)]
        if not alone:
            listed = "\n".join(f"{name}: {query}" for name, query in queries.items())
            _failed(report, f"{where}, only together:\n{listed}\n{wrong}\n{events}")
        for choices in alone:
            _failed(report, f"{where}: {shrunk(choices.made, drawn.made, comparison)}")


def shrunk(query: Sequence[int], events: Sequence[int], comparison: Comparison) -> str:
    """The simplest query found that still fails, then its stream, with what is wrong."""
    simple = shrink(query, lambda c: bool(_fails(c, events, comparison)), SHRINK_TRIES)
    short = shrink(events, lambda c: bool(_fails(simple, c, comparison)), SHRINK_TRIES)
    told = _fails(simple, short, comparison)
    return f"{Grammar(Choices(given=simple)).query()}\n{told}\n{_shown(short)}"


def _fails(query: Sequence[int], events: Sequence[int], comparison: Comparison) -> str:
    """What is wrong with the case made from these choices; nothing where it is no valid case."""
    text = Grammar(Choices(given=query)).query()
    try:
        program = compile_views(_sql({"v": text})).program
    except OrderbookError:
        return ""
    except Exception:
        return traceback.format_exc(limit=-4)
    if comparison.takes(text):
        return ""
    try:
        return comparison.wrong(program, {"v": text}, stream(Choices(given=events), EVENTS))
    except Exception:
        return traceback.format_exc(limit=-4)


def _shown(events: Sequence[int]) -> str:
    lines = [
        ", ".join(f"{'+' if insert else '-'}{relation}{row}" for relation, insert, row in event)
        for event in stream(Choices(given=events), EVENTS)
    ]
    return "\n".join(lines)


def _sql(queries: Mapping[str, str]) -> str:
    return STREAMS + "".join(f"CREATE VIEW {name} AS {query};\n" for name, query in queries.items())


def _reason(error: OrderbookError) -> str:
    message = error.message if isinstance(error, SqlError) else f"{type(error).__name__}: {error}"
    return re.sub(r"\d+|'[^']*'", "N", message.split(";")[0])


def steps_of(node: object) -> Iterator[str]:
    """Names of the step classes anywhere in a plan."""
    if is_dataclass(node) and type(node).__module__ == steps.__name__:
        yield type(node).__name__
        for part in fields(node):
            yield from steps_of(getattr(node, part.name))
    elif isinstance(node, tuple):
        for item in node:
            yield from steps_of(item)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--skip-generated", action="store_true")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    numbers = range(part, options.count, parts)
    report = run(options.seed, numbers, options.together, not options.skip_generated)
    print(json.dumps({f.name: getattr(report, f.name) for f in fields(report)}))
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main())
