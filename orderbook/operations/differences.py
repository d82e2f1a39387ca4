"""What another configuration would change: views, what keeps them and what that costs, and what is rebuilt.

A running engine takes over the maps that both programs hold, and fills the others from the rows of relations
(`engine/runtime/held_rows.py`).
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orderbook.configuration.configuration import Configuration
from orderbook.engine.plan.describe import Cost
from orderbook.engine.plan.planner import plan
from orderbook.engine.runtime.map_entries import Match, matched_together, matching, relations_to_fill
from orderbook.operations.explain import STAGES
from orderbook.operations.overview import event_costs, map_costs
from orderbook.operations.view_parts import part_of
from orderbook.views.m3_link import maps_by_hand
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Relation

_CONTEXT = 1


def _said(cost: Cost | None) -> str:
    return "nothing" if cost is None else str(cost)


@dataclass(frozen=True, slots=True)
class ViewDifference:
    """A view that is there before or after, or in both and otherwise.

    text: lines of its bound SQL that differ. costs, maps: of the worst event, and how many keep it, before
    and after; None where it is not there. events, of_maps: classes of cost that changed, by event, and by map
    of those that both have, under the name that it has after; None where an event is of no cost.
    """

    view: str
    costs: tuple[Cost | None, Cost | None]
    maps: tuple[int | None, int | None]
    text: tuple[str, ...] = ()
    events: Mapping[str, tuple[Cost | None, Cost | None]] = field(default_factory=dict)
    of_maps: Mapping[str, tuple[Cost | None, Cost | None]] = field(default_factory=dict)

    def cost_lines(self) -> Iterator[str]:
        """A line for each event and map whose cost is another."""
        for name, (before, after) in self.events.items():
            yield f"{name}: {_said(before)} -> {_said(after)}"
        for name, (before, after) in self.of_maps.items():
            yield f"map {name}: {_said(before)} -> {_said(after)}"

    def __str__(self) -> str:
        before, after = self.costs
        if before is None:
            return f"+ view {self.view}: {self.maps[1]} maps, worst event {after}"
        if after is None:
            return f"- view {self.view}"
        costs = f"worst event {before}" if before == after else f"worst event {before} -> {after}"
        maps = (
            f"{self.maps[1]} maps"
            if self.maps[0] == self.maps[1]
            else f"{self.maps[0]} -> {self.maps[1]} maps"
        )
        return f"~ view {self.view}: {maps}, {costs}"


@dataclass(frozen=True, slots=True)
class Differences:
    """Between two configurations.

    kept, new, dropped: maps that a running engine would take over, fill, and give up. filled_from: relations
    whose rows that needs. restart: why it could not go on, None where it could. settings: keys of the
    configurations that differ, and their values.
    """

    views: tuple[ViewDifference, ...]
    kept: tuple[str, ...]
    new: tuple[str, ...]
    dropped: tuple[str, ...]
    filled_from: tuple[str, ...]
    restart: str | None
    settings: Mapping[str, tuple[object, object]]

    def lines(self) -> Iterator[str]:
        """For people."""
        if not (self.views or self.new or self.dropped or self.settings or self.restart):
            yield "nothing differs"
            return
        for one in self.views:
            yield str(one)
            yield from (f"    {line}" for line in one.text)
            yield from (f"    cost of {line}" for line in one.cost_lines())
        yield f"maps: {len(self.kept)} taken over, {len(self.new)} new, {len(self.dropped)} dropped"
        yield from (f"  + {name}" for name in self.new)
        yield from (f"  - {name}" for name in self.dropped)
        if self.restart is not None:
            yield f"a running engine cannot go on with it: {self.restart}"
        elif self.filled_from:
            yield f"a running engine fills the new maps from the rows of {', '.join(self.filled_from)}"
        elif self.new:
            yield "a running engine starts the new maps empty"
        else:
            yield "a running engine rebuilds nothing"
        for key, (before, after) in self.settings.items():
            yield f"{key}: {before!r} -> {after!r}"


def program_differences(before: CompiledProgram, after: CompiledProgram) -> Differences:
    """What changes from one program to the other, settings apart."""
    by_hand = maps_by_hand(before.texts) & maps_by_hand(after.texts)
    matches = matched_together(after.program, matching(before.program, after.program, by_hand))
    new = tuple(one.name for one in after.program.maps if one.name not in matches)
    held = {match.name for match in matches.values()}
    needed = relations_to_fill(after.program, matches) if new else frozenset()
    return Differences(
        tuple(_views(before, after, matches)),
        tuple(matches),
        new,
        tuple(one.name for one in before.program.maps if one.name not in held),
        tuple(sorted(needed)),
        _restart({one.name: one for one in before.relations}, after.relations),
        {},
    )


def _restart(before: Mapping[str, Relation], after: tuple[Relation, ...]) -> str | None:
    changed = [one.name for one in after if one.name in before and before[one.name] != one]
    return f"{', '.join(changed)} declared otherwise" if changed else None


@dataclass(frozen=True, slots=True)
class _Costs:
    """Of one view the classes of cost of its events and of its maps, by their names."""

    events: Mapping[str, Cost]
    maps: Mapping[str, Cost]

    @classmethod
    def of(cls, program: CompiledProgram, view: str) -> "_Costs":
        part = part_of(program.program, view)
        events = list(event_costs(plan(part)))
        costs = map_costs(events)
        maps = {one.name: costs.get(one.name, Cost.CONSTANT) for one in part.maps}
        return cls({str(one): one.cost for one in events}, maps)

    @property
    def worst(self) -> Cost:
        """That of the worst event."""
        return max(self.events.values(), default=Cost.CONSTANT)


def _changed(
    before: Mapping[str, Cost], after: Mapping[str, Cost]
) -> dict[str, tuple[Cost | None, Cost | None]]:
    names = dict.fromkeys((*before, *after))
    return {name: (a, b) for name in names if (a := before.get(name)) != (b := after.get(name))}


def _views(
    before: CompiledProgram, after: CompiledProgram, matches: Mapping[str, Match]
) -> Iterator[ViewDifference]:
    own = {one.name for one in before.program.results}
    other = {one.name for one in after.program.results}
    for name in sorted(own | other):
        was = _Costs.of(before, name) if name in own else None
        now = _Costs.of(after, name) if name in other else None
        found = ViewDifference(
            name,
            (None if was is None else was.worst, None if now is None else now.worst),
            (None if was is None else len(was.maps), None if now is None else len(now.maps)),
        )
        if was is not None and now is not None:
            text = tuple(_text(STAGES["sql"](before, name), STAGES["sql"](after, name)))
            events = _changed(was.events, now.events)
            both = {m: matches[m].name for m in now.maps if m in matches and matches[m].name in was.maps}
            of_maps = _changed({m: was.maps[old] for m, old in both.items()}, {m: now.maps[m] for m in both})
            found = replace(found, text=text, events=events, of_maps=of_maps)
            if not text and not events and not of_maps and found.maps[0] == found.maps[1]:
                continue
        yield found


def _text(before: str, after: str) -> Iterator[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=_CONTEXT, lineterm="")
    return (line for line in lines if not line.startswith(("---", "+++", "@@")))


def setting_differences(before: Configuration, after: Configuration) -> dict[str, tuple[object, object]]:
    """Keys of two configurations whose values differ."""
    flat = [dict(_flat("", one.model_dump(mode="json", exclude={"views"}))) for one in (before, after)]
    names = dict.fromkeys((*flat[0], *flat[1]))
    return {key: (a, b) for key in names if (a := flat[0].get(key)) != (b := flat[1].get(key))}


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict) and value:
        for name, own in value.items():
            yield from _flat(f"{prefix}.{name}" if prefix else str(name), own)
    else:
        yield prefix, value
