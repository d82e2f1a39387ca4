"""Small stage programs in plain Python, fast enough for many schedules; their results depend on any order."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
from protocol_simulation import Histories, serial

from orderbook.core.changes import Dictionary
from orderbook.engine.distribution.blocks import VERSION, Block
from orderbook.engine.distribution.stages import Axis, Distribution, Input, Output, Phase, Stage
from orderbook.engine.protocol.messages import OperatorFactory, Produced
from orderbook.engine.protocol.switch import RowChange
from orderbook.views.m3 import Program
from orderbook.views.types import INTEGER

# A row as it is applied: phase and deletes first, then the stream.
_Row = tuple[int, bool, str, list[int]]
_NO_PROGRAM = Program((), (), (), (), ())


class Maps:
    """The maps of a toy stage; entries that are 0 are absent. It knows which entries a version touched."""

    def __init__(self, maps: dict[str, dict[int, int]]):
        self.maps = maps
        self.touched: dict[tuple[str, int], int] = {}

    def get(self, name: str, key: int = 0) -> int:
        return self.maps.setdefault(name, {}).get(key, 0)

    def put(self, name: str, value: int, key: int = 0) -> None:
        entries = self.maps.setdefault(name, {})
        self.touched.setdefault((name, key), entries.get(key, 0))
        if value:
            entries[key] = value
        else:
            entries.pop(key, None)

    def add(self, name: str, value: int, key: int = 0) -> None:
        self.put(name, self.get(name, key) + value, key)

    def values(self, name: str) -> Iterable[int]:
        return self.maps.get(name, {}).values()


Trigger = Callable[[Maps, str, int, list[int]], None]


@dataclass(frozen=True)
class Toy:
    """A stage: what a row of a stream does (with its sign), what is done after every version."""

    stage: Stage
    trigger: Trigger
    after: Callable[[Maps], None] = lambda maps: None


class ToyOperator:
    """Runs a Toy; views are looked at at the end of every message."""

    def __init__(self, toy: Toy, maps: Any = None):
        self._toy = toy
        self._maps = Maps({name: dict(entries) for name, entries in (maps or {}).items()})
        self._phases = {i.stream: int(i.phase) for i in toy.stage.inputs}
        self._outputs = [(o.name, o.view) for o in toy.stage.outputs]

    def become(self, other: "ToyOperator") -> None:
        self._maps = Maps({name: dict(entries) for name, entries in other._maps.maps.items()})

    def size(self) -> int:
        return sum(map(len, self._maps.maps.values()))

    def save(self) -> Any:
        return {name: dict(entries) for name, entries in self._maps.maps.items()}

    def apply(self, blocks: Sequence[Block], until: int) -> Produced:
        """See Operator."""
        rows = []
        for block in blocks:
            phase = self._phases[block.source]
            for (stamp, switch, part, sequence, last), delete, values in zip(
                block.versions.tolist(), block.deletes.tolist(), block.values.tolist(), strict=True
            ):
                version = (stamp, switch, last, sequence, part)
                rows.append((version, (phase, not delete, block.source, values)))
        rows.sort()
        outputs: dict[str, list[tuple[Any, ...]]] = {name: [] for name, _ in self._outputs}
        views: dict[str, list[tuple[Any, ...]]] = {name: [] for name in self._toy.stage.views}
        for message, versions in groupby(rows, key=lambda row: row[0][:3]):
            looked: dict[tuple[str, int], int] = {}
            for version, own in groupby(versions, key=lambda row: row[0]):
                for touched, old in self._version([row for _, row in own]).items():
                    looked.setdefault(touched, old)
                    self._output(outputs, version, touched, old)
            stamp, switch, last = message
            for (name, key), old in sorted(looked.items()):
                new = self._maps.get(name, key)
                if name in views and new != old:
                    views[name].append(((stamp, switch, 0, last, last), False, (key, new)))
        return Produced(_blocks(outputs), _blocks(views))

    def _version(self, rows: list[_Row]) -> dict[tuple[str, int], int]:
        maps = self._maps
        maps.touched = {}
        for _, insert, stream, values in rows:
            self._toy.trigger(maps, stream, 1 if insert else -1, values)
        self._toy.after(maps)
        return maps.touched

    def _output(
        self,
        outputs: dict[str, list[tuple[Any, ...]]],
        version: tuple[int, ...],
        touched: tuple[str, int],
        old: int,
    ) -> None:
        name, key = touched
        new = self._maps.get(name, key)
        stamp, switch, last, sequence, part = version
        for output, view in self._outputs:
            if view == name and old != new:
                for delete, value in ((True, old), (False, new)):
                    if value:
                        outputs[output].append(((stamp, switch, part, sequence, last), delete, (key, value)))


def _blocks(rows: dict[str, list[tuple[Any, ...]]]) -> tuple[Block, ...]:
    return tuple(
        Block(
            name,
            np.array([version for version, _, _ in found], VERSION),
            np.array([delete for _, delete, _ in found], bool),
            np.array([values for _, _, values in found], np.int64),
        )
        for name, found in rows.items()
        if found
    )


@dataclass(frozen=True)
class ToyProgram:
    """Stages, and the relations: how many values each column can have."""

    name: str
    toys: tuple[Toy, ...]
    relations: dict[str, tuple[int, ...]]

    dictionary: Dictionary = field(default_factory=Dictionary)
    any_order: bool = True

    @property
    def distribution(self) -> Distribution:
        return Distribution(_NO_PROGRAM, tuple(toy.stage for toy in self.toys))

    def factory(self, stage: int) -> OperatorFactory:
        """Makes the operators of a stage."""
        return lambda saved: ToyOperator(self.toys[stage], saved)

    def row(self, choose: random.Random) -> RowChange:
        """A row to insert."""
        relation = choose.choice(list(self.relations))
        return RowChange(relation, False, tuple(1 + choose.randrange(n) for n in self.relations[relation]))

    def serial(self, blocks: Sequence[Block], end: int) -> Histories:
        """See `serial.serial`."""
        return serial(self.distribution, self.factory, blocks, end)


def _stage(
    number: int, axis: bool, inputs: Sequence[Input], outputs: Sequence[str], views: Sequence[str]
) -> Stage:
    axes = (Axis("key", INTEGER),) if axis else ()
    made = tuple(Output(name, name, False) for name in outputs)
    return Stage(number, axes, _NO_PROGRAM, tuple(inputs), made, tuple(views))


def _relation(name: str, columns: tuple[int, ...], route: int | None = None, axis: bool = True) -> Input:
    return Input(name, name, Phase.BEFORE, columns, (route,) if axis else ())


def _changes(name: str, route: int | None = None, axis: bool = True) -> Input:
    return Input(f"{name} changes", name, Phase.CHANGES, (0, 1), (route,) if axis else ())


def _sum(maps: Maps, stream: str, sign: int, row: list[int]) -> None:
    maps.add("total", sign * row[1], row[0])


def _squares(maps: Maps, stream: str, sign: int, row: list[int]) -> None:
    maps.add("squares", sign * row[1] ** 2)


# Totals by symbol, and the sum of their squares: one shuffle.
SQUARES = ToyProgram(
    "squares",
    (
        Toy(_stage(0, True, [_relation("trades", (0, 2), 0)], ["total"], ["total"]), _sum),
        Toy(_stage(1, False, [_changes("total", axis=False)], [], ["squares"]), _squares),
    ),
    {"trades": (4, 3, 5)},
)


def _level(maps: Maps, stream: str, sign: int, row: list[int]) -> None:
    maps.add("level", sign * row[1], row[0])


def _reading(maps: Maps, stream: str, sign: int, row: list[int]) -> None:
    if stream == "level changes":
        maps.add("levels", sign * row[1], row[0])
    else:
        maps.add("read", sign * row[2] * maps.get("levels", row[0]), row[1])


def _reading_again(maps: Maps, stream: str, sign: int, row: list[int]) -> None:
    if stream == "read changes":
        maps.add("reads", sign * row[1], row[0])
    else:
        maps.add("final", sign * (1 + maps.get("reads", row[0])))


# Events that read what earlier events of other relations wrote, twice in a chain, as in the papers' examples.
READS = ToyProgram(
    "reads",
    (
        Toy(_stage(0, True, [_relation("writes", (0, 1), 0)], ["level"], []), _level),
        Toy(
            _stage(1, True, [_changes("level"), _relation("looks", (0, 1, 2), 1)], ["read"], ["read"]),
            _reading,
        ),
        Toy(
            _stage(
                2, False, [_changes("read", axis=False), _relation("sums", (0,), axis=False)], [], ["final"]
            ),
            _reading_again,
        ),
    ),
    {"writes": (3, 4), "looks": (3, 2, 3), "sums": (2,)},
)


def _nested(maps: Maps, stream: str, sign: int, row: list[int]) -> None:
    maps.add({"total changes": "totals", "volume changes": "volumes"}[stream], sign * row[1], row[0])


def _compare(maps: Maps) -> None:
    most = max(maps.values("volumes"), default=0)
    maps.put("above", sum(2 * total > most for total in maps.values("totals")))


def _volume(maps: Maps, stream: str, sign: int, row: list[int]) -> None:
    maps.add("volume", sign * row[1], row[0])


# How many symbols have more than half of the largest broker's volume, evaluated again at every version.
NESTED = ToyProgram(
    "nested",
    (
        Toy(_stage(0, True, [_relation("trades", (0, 2), 0)], ["total"], []), _sum),
        Toy(_stage(1, True, [_relation("trades", (1, 2), 0)], ["volume"], ["volume"]), _volume),
        Toy(
            _stage(2, False, [_changes("total", axis=False), _changes("volume", axis=False)], [], ["above"]),
            _nested,
            _compare,
        ),
    ),
    {"trades": (4, 3, 5)},
)


def _parts(maps: Maps, stream: str, sign: int, row: list[int]) -> None:
    maps.add("of symbol", sign * row[2], row[0])
    maps.add("part", sign * row[2] * (1 + maps.get("of symbol", row[0])), row[1])


def _whole(maps: Maps, stream: str, sign: int, row: list[int]) -> None:
    maps.add("whole", sign * row[1], row[0])


def _largest(maps: Maps, stream: str, sign: int, row: list[int]) -> None:
    maps.add("wholes", sign * row[1], row[0])


def _take_largest(maps: Maps) -> None:
    maps.put("largest", max(maps.values("wholes"), default=0))


# Partial sums by broker in every partition of symbols, added up by broker, and the largest: two shuffles.
PARTIAL = ToyProgram(
    "partial",
    (
        Toy(_stage(0, True, [_relation("trades", (0, 1, 2), 0)], ["part"], []), _parts),
        Toy(_stage(1, True, [_changes("part", 0)], ["whole"], ["whole"]), _whole),
        Toy(_stage(2, False, [_changes("whole", axis=False)], [], ["largest"]), _largest, _take_largest),
    ),
    {"trades": (4, 3, 5)},
)

TOYS = {program.name: program for program in (SQUARES, READS, NESTED, PARTIAL)}
