"""A distribution run by StageRunners over whole blocks, stage after stage, as a batch job does."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from fuzz import encoded

from orderbook.core.changes import Dictionary
from orderbook.engine.distribution.blocks import VERSION, Block, NetEffect, in_pieces
from orderbook.engine.distribution.stage_runner import Granularity, StageRunner
from orderbook.engine.distribution.stages import Distribution, Router, Stage
from orderbook.views.encoding.values import pack
from orderbook.views.m3 import Program

Words = tuple[int | float | None, ...]
# Relation, whether inserted, encoded row.
Change = tuple[str, bool, Words]


def coded(
    program: Program, dictionary: Dictionary, events: Iterable[Iterable[tuple[str, bool, Sequence[Any]]]]
) -> list[list[Change]]:
    """Events whose rows are values, as those of `fuzz.changes`, with encoded rows."""

    def row_of(name: str, row: Sequence[Any]) -> Words:
        columns = zip(row, program.relation(name).columns, strict=True)
        return tuple(encoded(value, column.type, dictionary.encode) for value, column in columns)

    return [[(name, insert, row_of(name, row)) for name, insert, row in event] for event in events]


def blocks_of(program: Program, events: Sequence[Sequence[Change]]) -> dict[str, Block]:
    """The changes of each relation; events are a nanosecond apart."""
    found: dict[str, list[tuple[tuple[int, ...], bool, list[int]]]] = {}
    for number, event in enumerate(events, 1):
        for part, (relation, insert, row) in enumerate(event):
            version = (number, 0, part, number, number)
            found.setdefault(relation, []).append((version, not insert, [pack(w) for w in row]))
    return {
        name: Block(
            name,
            np.array([r[0] for r in rows], VERSION),
            np.array([r[1] for r in rows], np.bool_),
            np.array([r[2] for r in rows], np.int64),
        )
        for name, rows in found.items()
    }


def histories(
    distribution: Distribution,
    dictionary: Dictionary,
    blocks: Mapping[str, Block],
    partitions: int,
    backend: str,
    unit: Literal["event", "interval", "end"] = "event",
    stamps: Sequence[int] = (),
    cut: Collection[int] = (),
) -> dict[str, list[tuple[object, ...]]]:
    """The history rows of every view of all partitions, in order: look, key and row words.

    Intervals are of 3 ns. stamps: where pieces of the stages `cut` begin, of which those that read the
    relations only are run in pieces.
    """
    sources: dict[str, list[Block]] = {name: [block] for name, block in blocks.items()}
    found: dict[str, list[tuple[object, ...]]] = {}
    relations = {relation.name for relation in distribution.program.relations}
    for stage in distribution.stages:
        router = Router(stage.axes, [partitions] * len(stage.axes), dictionary)
        pieces = stamps if stage.number in cut and {e.source for e in stage.inputs} <= relations else ()
        for piece, parts in enumerate(_pieces(distribution.program, sources, pieces)):
            arrived = [_arrived(stage, router, part) for part in parts]
            for number in range(router.count):
                runner = StageRunner(stage, dictionary, backend, Granularity(unit, 3))
                if piece:
                    runner.fill(arrived[0].get(number, []))
                result = runner.apply(arrived[1].get(number, []))
                runner.close()
                for name, block in result.outputs.items():
                    sources.setdefault(name, []).append(block)
                for view, history in result.history.items():
                    if unit == "end" and piece < len(pieces):
                        continue
                    rows = zip(
                        history.looks.tolist(), history.keys.tolist(), history.rows.tolist(), strict=True
                    )
                    found.setdefault(view, []).extend(
                        (tuple(look), tuple(key), tuple(row)) for look, key, row in rows
                    )
    return {view: sorted(rows) for view, rows in found.items()}


def _pieces(
    program: Program, sources: Mapping[str, Sequence[Block]], stamps: Sequence[int]
) -> Iterator[tuple[list[Block], list[Block]]]:
    """For each piece the rows that are there when it begins, and its own."""
    parts = [(piece, part) for own in sources.values() for b in own for piece, part in in_pieces(b, stamps)]
    for piece in range(1 + len(stamps)):
        net = NetEffect(program.relations)
        for number, part in parts:
            if number < piece:
                net.add(part)
        yield net.blocks(0, 0), [part for number, part in parts if number == piece]


def _arrived(stage: Stage, router: Router, blocks: Sequence[Block]) -> dict[int, list[Block]]:
    found: dict[int, list[Block]] = {}
    for entry in stage.inputs:
        for block in blocks:
            if block.source == entry.source:
                for number, part in router.route(block, entry):
                    found.setdefault(number, []).append(part)
    return found
