"""What a sqllogictest file does, as streams: inserted and deleted rows, with queries between them.

SQLite runs the file's statements; how the tables' rows differ after each becomes single changes.
"""

import random
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqllogictest_dialect import Schema
from sqllogictest_format import Query, Record, Row, Statement


class Change(NamedTuple):
    """One row inserted into or deleted from a table."""

    table: str
    insert: bool
    row: Row


Action = Change | Query


@dataclass(slots=True)
class Segment:
    """A part of a file during which no table is created or dropped, on tables that are empty at first."""

    schema: Schema
    actions: list[Action] = field(default_factory=list)

    @property
    def queries(self) -> list[Query]:
        return [a for a in self.actions if isinstance(a, Query)]


class Tables:
    """Tables without constraints or indexes in a SQLite database of their own."""

    def __init__(self, schema: Schema):
        self._schema = schema
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        for table, columns in schema.items():
            body = ", ".join(f"{name} {kind}" for name, kind in columns.items())
            self._connection.execute(f"CREATE TABLE {table} ({body})")

    def apply(self, change: Change) -> None:
        if change.insert:
            places = ", ".join("?" * len(change.row))
            self._connection.execute(f"INSERT INTO {change.table} VALUES ({places})", change.row)
            return
        equal = " AND ".join(f"{column} IS ?" for column in self._schema[change.table])
        one = f"SELECT min(rowid) FROM {change.table} WHERE {equal}"
        self._connection.execute(f"DELETE FROM {change.table} WHERE rowid = ({one})", change.row)

    def rows(self, sql: str) -> list[Row]:
        return self._connection.execute(sql).fetchall()


def segments(records: Iterable[Record]) -> Iterator[Segment]:
    """Runs the statements of a file and cuts it where a table is created or dropped after a query."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    segment = Segment({})
    contents = _contents(database, {})
    for record in records:
        if isinstance(record, Query):
            segment.actions.append(record)
            continue
        _run(database, record)
        if record.sql.split()[0].upper() in ("CREATE", "DROP", "ALTER"):
            schema = _schema(database)
            contents = _contents(database, schema)
            if segment.queries:
                yield segment
            elif schema == segment.schema:
                continue
            segment = Segment(schema, list(_difference({}, contents)))
            continue
        before, contents = contents, _contents(database, segment.schema)
        segment.actions += _difference(before, contents)
    if segment.queries:
        yield segment


def disturbed(actions: Sequence[Action], generator: random.Random) -> Iterator[Action]:
    """The actions; before queries, some rows that are there go away and come back."""
    live: list[tuple[str, Row]] = []
    away: list[tuple[str, Row]] = []
    for action in actions:
        if isinstance(action, Query):
            yield from (Change(table, True, row) for table, row in away)
            live, away = live + away, []
            yield action
            continue
        entry = (action.table, action.row)
        if action.insert:
            live.append(entry)
        elif entry in live:
            live.remove(entry)
        else:
            away.remove(entry)
            yield Change(action.table, True, action.row)
        yield action
        if live and generator.random() < 0.3:
            away.append(live.pop(generator.randrange(len(live))))
            yield Change(away[-1][0], False, away[-1][1])
        if away and generator.random() < 0.5:
            live.append(away.pop(generator.randrange(len(away))))
            yield Change(live[-1][0], True, live[-1][1])


def _run(database: sqlite3.Connection, statement: Statement) -> None:
    try:
        database.execute(statement.sql)
    except sqlite3.Error as error:
        if statement.succeeds:
            raise ValueError(f"line {statement.line}: {error}") from error
    else:
        if not statement.succeeds:
            raise ValueError(f"line {statement.line}: succeeds")


def _schema(database: sqlite3.Connection) -> dict[str, dict[str, str]]:
    tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    return {
        table: {name: kind for _, name, kind, *_ in database.execute(f"PRAGMA table_info({table})")}
        for (table,) in tables
    }


def _contents(database: sqlite3.Connection, schema: Schema) -> dict[str, list[Row]]:
    return {t: database.execute(f"SELECT * FROM {t} ORDER BY rowid").fetchall() for t in schema}


def _difference(before: dict[str, list[Row]], after: dict[str, list[Row]]) -> Iterator[Change]:
    """Deletes of the rows that are gone, then inserts of those that are new."""
    for table, rows in after.items():
        old, new = Counter(before.get(table, ())), Counter(rows)
        yield from (Change(table, False, row) for row in (old - new).elements())
        yield from (Change(table, True, row) for row in (new - old).elements())
