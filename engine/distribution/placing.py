"""Units of the map graph put into drafts of stages, each after what it reads, wherever they fit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product as choices

from .axes import KeyClass
from .graph import Edge, MapGraph, Unit
from .locality import AxisFit, Locality, Mode, column_of

# For each axis: by which key a map is held, None in full.
Places = tuple[int | None, ...]
# An event's statement: relation, insert, place in the trigger.
StatementKey = tuple[str, bool, int]
# The axes a unit is to be computed by; none: in one partition.
Label = tuple[KeyClass, ...]


@dataclass(slots=True)
class Draft:
    """A stage as it grows.

    computed: maps made here, along each axis by a key or as partial sums. copied: base maps, made of the
    same rows as elsewhere. replicas: maps kept by what other stages send. routes: for each statement the
    columns by which its event is sent, for each term. erasing: those of one without terms.
    """

    axes: Label
    computed: dict[str, tuple[Mode, ...]] = field(default_factory=dict)
    copied: dict[str, Places] = field(default_factory=dict)
    replicas: dict[str, Places] = field(default_factory=dict)
    views: list[str] = field(default_factory=list)
    routes: dict[StatementKey, tuple[Places, ...]] = field(default_factory=dict)
    erasing: dict[StatementKey, Places] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fit:
    """How a unit goes into a draft: modes by axis, and for each axis what it needs."""

    modes: tuple[Mapping[str, Mode], ...]
    axes: tuple[AxisFit, ...]


class Placing:
    """Places units; `partial` allows partial sums. Units that do not fit a label go into one partition."""

    def __init__(self, graph: MapGraph, partial: bool = True):
        self.graph, self.partial = graph, partial
        self.drafts: list[Draft] = []
        self.home: dict[str, int] = {}
        self._locality: dict[KeyClass, Locality] = {}

    def place_all(self, labels: Mapping[str, Label]) -> list[Draft]:
        """Drafts of all units, with `labels` by unit name; no label is one partition.

        A unit joins the first draft of its label that it fits, so what can be local is.
        """
        pending = list(self.graph.units)
        while pending:
            ready = self._ready(pending)
            stay = [u for u in ready if not self._place(u, labels.get(u.name, ()), fresh=False)]
            if len(stay) == len(ready):
                # The label that most ready units wait for begins the next stage; one partition waits longest.
                waiting = [labels.get(u.name, ()) for u in stay]
                label = max(dict.fromkeys(waiting), key=lambda w: (bool(w), waiting.count(w)))
                first = next(u for u in stay if labels.get(u.name, ()) == label)
                if not self._place(first, label, fresh=True):
                    labels = {**labels, first.name: ()}
                    continue
                stay.remove(first)
            placed = {u.name for u in ready} - {u.name for u in stay}
            pending = [u for u in pending if u.name not in placed]
        return self.drafts

    def fits_alone(self, unit: Unit, label: Label) -> bool:
        """Whether the unit could be computed by the label's axes in a stage of its own."""
        return not label or self._fit(unit, Draft(label), len(self.drafts)) is not None

    def _ready(self, pending: Sequence[Unit]) -> list[Unit]:
        waiting = {m for u in pending for m in u.maps}
        return [u for u in pending if not u.reads & waiting]

    def _place(self, unit: Unit, label: Label, fresh: bool) -> bool:
        """Puts the unit into a draft, a new one if `fresh`; whether it fits any."""
        if fresh:
            self.drafts.append(Draft(label))
        earliest = max((self.home[r] for r in unit.reads if r in self.home), default=0)
        for number in range(len(self.drafts) - 1 if fresh else earliest, len(self.drafts)):
            if self.drafts[number].axes == label:
                found = self._fit(unit, self.drafts[number], number)
                if found is not None:
                    self._enter(unit, number, found)
                    return True
        if fresh:
            self.drafts.pop()
        return False

    def _fit(self, unit: Unit, draft: Draft, number: int) -> Fit | None:
        known: dict[str, tuple[int | None, ...]] = {**draft.copied, **draft.replicas}
        for name in unit.reads:
            made = draft.computed.get(name, ())
            if "partial" in made:
                return None
            if name in draft.computed:
                known[name] = tuple(m for m in made if m != "partial")
        for modes in self._modes(unit, draft.axes):
            fits = []
            for axis, (keys, mode) in enumerate(zip(draft.axes, modes, strict=True)):
                fixed = {m: places[axis] for m, places in known.items() if m in unit.reads}
                fit = self._along(keys).fit(unit, mode, fixed)
                if fit is None:
                    break
                fits.append(fit)
            found = Fit(tuple(modes), tuple(fits))
            if len(fits) == len(draft.axes) and self._counts_agree(unit, found, known):
                return found
        return None

    def _modes(self, unit: Unit, label: Label) -> Iterator[Sequence[Mapping[str, Mode]]]:
        return choices(*(self._along(k).modes(unit, self.partial) for k in label))

    def _along(self, keys: KeyClass) -> Locality:
        if keys not in self._locality:
            self._locality[keys] = Locality(self.graph, keys)
        return self._locality[keys]

    def _counts_agree(self, unit: Unit, fit: Fit, known: Mapping[str, Places]) -> bool:
        """Whether base maps of doubles are held as the maps that count their rows."""
        for name in unit.reads & self.graph.base:
            count = self.graph.declarations[name].count
            own = self._held(fit, name)
            other = known.get(count) if count else own
            if count in unit.reads and count is not None:
                other = self._held(fit, count)
            if other is not None and other != own:
                return False
        return True

    def _held(self, fit: Fit, name: str) -> Places:
        return tuple(f.held[name] for f in fit.axes)

    def _enter(self, unit: Unit, number: int, fit: Fit) -> None:
        draft = self.drafts[number]
        for name in unit.maps:
            draft.computed[name] = tuple(m[name] for m in fit.modes)
            self.home[name] = number
        if unit.view is not None:
            draft.views.append(unit.view)
        for name in sorted(unit.reads):
            if name in draft.computed or name in draft.copied or name in draft.replicas:
                continue
            if name in self.graph.base:
                self._copy(draft, name, self._held(fit, name))
            else:
                draft.replicas[name] = self._held(fit, name)
        for place, edge in enumerate(unit.edges):
            if edge.statement is not None:
                own = [f.routes[place] for f in fit.axes]
                routes = tuple(tuple(r[i] for r in own) for i in range(len(edge.terms)))
                erased = tuple(self._erased(edge, m[edge.target]) for m in fit.modes)
                self._send(draft, edge, routes, erased)

    def _erased(self, edge: Edge, mode: Mode) -> int | None:
        return None if mode == "partial" else column_of(edge, edge.keys[mode])

    def _copy(self, draft: Draft, name: str, places: Places) -> None:
        count = self.graph.declarations[name].count
        for own in (name,) if count is None or count in draft.copied else (count, name):
            draft.copied[own] = places
            for edge in self.graph.edges[own]:
                route = tuple(None if p is None else column_of(edge, edge.keys[p]) for p in places)
                self._send(draft, edge, (route,) * len(edge.terms), route)

    def _send(self, draft: Draft, edge: Edge, routes: tuple[Places, ...], erased: Places) -> None:
        assert edge.event is not None
        key = (edge.event.relation, edge.event.insert, edge.number)
        draft.routes[key], draft.erasing[key] = routes, erased


