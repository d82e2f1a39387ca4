"""Where statements are computed: units of the map graph in drafts of stages, by the axes that cost least.

A unit goes after what it reads, wherever it fits. Which axes each unit is computed by is chosen by a rule
of the papers, or by whichever costs less; minimum cuts of small directed graphs are found by augmenting
shortest paths (Edmonds and Karp).

The cost is what a distribution costs an event, in statements: the load of a partition of each stage, added
up. Stages of a batch run one after another, so their loads add up; partitions run beside each other, so
what is sent to all of them costs each of them, and what is sent to one of n costs the mean partition one
n-th.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from itertools import product as choices
from math import prod

from orderbook.engine.distribution.locality import MOST_AXES, AxisFit, KeyClass, Locality, Mode, column_of
from orderbook.engine.distribution.map_graph import Edge, MapGraph, Unit, used_columns
from orderbook.engine.distribution.stages import grid_side
from orderbook.views.calculus import Scalar, Var, scalar_variables
from orderbook.views.wide_values import words_of

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
        return not label or self._fit(unit, Draft(label)) is not None

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
                found = self._fit(unit, self.drafts[number])
                if found is not None:
                    self._enter(unit, number, found)
                    return True
        if fresh:
            self.drafts.pop()
        return False

    def _fit(self, unit: Unit, draft: Draft) -> Fit | None:
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


_SMALL = 1e-9


class Network:
    """Nodes between a source and a sink, with capacities."""

    SOURCE, SINK = "source", "sink"

    def __init__(self) -> None:
        self._left: defaultdict[Hashable, defaultdict[Hashable, float]]
        self._left = defaultdict(lambda: defaultdict(float))

    def add(self, start: Hashable, end: Hashable, capacity: float) -> None:
        """Lets so much more flow from one node to another; cutting between them costs as much."""
        if capacity > 0:
            self._left[start][end] += capacity
            self._left[end][start] += 0.0

    def source_side(self) -> set[Hashable]:
        """The nodes on the source's side of a minimum cut."""
        while True:
            before = self._reached()
            if self.SINK not in before:
                return set(before)
            path = []
            node: Hashable = self.SINK
            while node != self.SOURCE:
                path.append((before[node], node))
                node = before[node]
            flow = min(self._left[a][b] for a, b in path)
            for a, b in path:
                self._left[a][b] -= flow
                self._left[b][a] += flow

    def _reached(self) -> dict[Hashable, Hashable]:
        """Each node to which more can flow, and the one before it."""
        before: dict[Hashable, Hashable] = {self.SOURCE: self.SOURCE}
        waiting: deque[Hashable] = deque((self.SOURCE,))
        while waiting and self.SINK not in before:
            node = waiting.popleft()
            for end, capacity in self._left[node].items():
                if capacity > _SMALL and end not in before:
                    before[end] = node
                    waiting.append(end)
        return before


# A row that travels costs as much as this many statements, and this for each of its words: blocks of rows
# cost 1.6 to 3 times what triggers of a few statements do.
ROW, WORD = 2.0, 0.25
# A stage of its own: a shuffle, its barrier, another engine.
STAGE = 0.5
# Entries that a loop walks, or that a statement writes whose keys the event does not give, where unmeasured.
SLICE = 8.0


@dataclass(frozen=True, slots=True)
class ShuffledRows:
    """Rows that travel to a stage: of a relation, or of a map's changes from another stage.

    rows: expected for each event of the whole program; words: of one row; copies: partitions that get each.
    """

    source: str
    stage: int
    rows: float
    words: int
    copies: int
    relation: bool


@dataclass(frozen=True, slots=True)
class Model:
    """Prices of drafts. rates: events of each relation, in any unit; partitions: how many a stage has."""

    graph: MapGraph
    partitions: int
    rates: Mapping[str, float]

    def share(self, relation: str) -> float:
        """The part of all events that are changes of a relation."""
        names = {t.relation for t in self.graph.program.triggers}
        total = sum(self.rates.get(n, 1.0) for n in names) or 1.0
        return self.rates.get(relation, 1.0) / total

    def cost(self, drafts: Sequence[Draft]) -> float:
        """Statements, and rows by what they are worth, that the mean event costs the mean partition."""
        found = STAGE * len(drafts)
        for number, draft in enumerate(drafts):
            size = grid_side(self.partitions, len(draft.axes)) ** len(draft.axes)
            for message in self.messages(drafts, number):
                found += message.rows * (ROW + WORD * message.words) * message.copies / size
            found += sum(self._work(draft, e) for e in self._edges(draft))
        return found

    def messages(self, drafts: Sequence[Draft], number: int) -> list[ShuffledRows]:
        """The rows that travel to one draft."""
        draft = drafts[number]
        size = grid_side(self.partitions, len(draft.axes))
        found = []
        edges = self._edges(draft)
        columns = used_columns(edges)
        ways: dict[tuple[str, Places, bool], float] = {}
        for edge in edges:
            assert edge.event is not None and edge.statement is not None
            name = edge.event.relation
            late = edge.statement.after and not edge.maps_read.isdisjoint(draft.replicas)
            for route in draft.routes[name, edge.event.insert, edge.number]:
                ways[name, route, late] = self.share(name)
        for (name, route, _), rows in ways.items():
            found.append(
                ShuffledRows(name, number, rows, len(columns.get(name, ())), _copies(route, size), True)
            )
        for name, places in draft.replicas.items():
            words = len(self.graph.declarations[name].keys) + words_of(self.graph.declarations[name].type)
            rows = 2 * self.changes(name)
            found.append(ShuffledRows(name, number, rows, words, _copies(places, size), False))
        return found

    def changes(self, name: str) -> float:
        """Entries of a map that the mean event changes: inserts and deletes are as frequent."""
        found = 0.0
        for edge in self.graph.edges[name]:
            assert edge.event is not None
            found += self.share(edge.event.relation) / 2 * entries(edge)
        return found

    def work(self, edge: Edge) -> float:
        """Steps of one evaluation of a statement, however it is placed."""
        return sum(_steps(edge, number) for number in range(len(edge.terms))) or 1.0

    def _edges(self, draft: Draft) -> list[Edge]:
        return [e for m in (*draft.computed, *draft.copied) for e in self.graph.edges[m]]

    def _work(self, draft: Draft, edge: Edge) -> float:
        """Steps that the mean partition makes for a statement at the mean event."""
        assert edge.event is not None
        modes: Sequence[Mode | None] = draft.computed.get(edge.target) or draft.copied.get(edge.target) or ()
        size = grid_side(self.partitions, len(draft.axes))
        routes = draft.routes[edge.event.relation, edge.event.insert, edge.number] or ((),)
        sent = max(prod(1.0 if p is None else 1 / size for p in route) for route in routes)
        divided = prod(1.0 if m is None else 1 / size for m in modes)
        return self.share(edge.event.relation) / 2 * max(sent, divided * self.work(edge))


def _copies(route: Places, size: int) -> int:
    return prod(size for place in route if place is None)


def entries(edge: Edge) -> float:
    """Entries that a statement writes."""
    return SLICE if _free(edge, edge.keys) else 1.0


def _steps(edge: Edge, number: int) -> float:
    """Steps of one term: a loop for every variable that a map's key binds, of which two count."""
    free = {v for r in edge.terms[number].reads for v in _free(edge, r.keys)}
    return SLICE ** min(len(free), 2)


def _free(edge: Edge, keys: Sequence[Scalar]) -> set[Var]:
    known = edge.event.parameters if edge.event is not None else ()
    return {v for k in keys for v in scalar_variables(k)} - set(known)


Labels = Mapping[str, Label]
# More units than this are moved by cuts only, not one by one.
MOST_SINGLE_MOVES = 40


def grids(classes: Sequence[KeyClass]) -> list[Label]:
    """All labels over given classes, the finest first."""
    return [label for n in range(len(classes), 0, -1) for label in combinations(classes, n)]


def at_destination(graph: MapGraph, labels: Sequence[Label]) -> Labels:
    """Every unit by the first label that its own keys have; what it reads is sent to it."""
    placing = Placing(graph, partial=False)
    return {u.name: _first_fitting(placing, u, labels) for u in graph.units}


def at_source(graph: MapGraph, labels: Sequence[Label]) -> Labels:
    """Every unit where most of what it reads is computed; partial sums are sent on."""
    placing = Placing(graph)
    found: dict[str, Label] = {}
    made = {m: u.name for u in graph.units for m in u.maps}
    for unit in graph.units:
        near = Counter(found[made[r]] for r in sorted(unit.reads) if r in made and found.get(made[r]))
        found[unit.name] = _first_fitting(placing, unit, [*(n for n, _ in near.most_common()), *labels])
    return found


def _first_fitting(placing: Placing, unit: Unit, labels: Sequence[Label]) -> Label:
    return next((label for label in labels if placing.fits_alone(unit, label)), ())


class Search:
    """Labels of least cost, as far as moves between them find it."""

    def __init__(self, graph: MapGraph, labels: Sequence[Label], model: Model):
        self.graph, self.model, self.labels = graph, model, labels
        alone = Placing(graph)
        self.fits = {
            (u.name, number): alone.fits_alone(u, label)
            for u in graph.units
            for number, label in enumerate(labels)
        }

    def best(self, start: Sequence[Labels], kept: frozenset[str] = frozenset()) -> Labels:
        """The cheapest of given labels, and of what moves make of them; the `kept` units stay as they are."""
        cost, place = min((self.cost(labels), i) for i, labels in enumerate(start))
        found = start[place]
        improving = True
        while improving:
            improving = False
            for move in self._moves(found, kept):
                moved = self.cost(move)
                if moved < cost - 1e-9:
                    cost, found, improving = moved, move, True
                    break
        return found

    def uniform(self) -> list[Labels]:
        """All units in one partition, and all that fit by one label, for each label."""
        return [{}, *map(self._all, range(len(self.labels)))]

    def cost(self, labels: Labels) -> float:
        return self.model.cost(drafts_of(self.graph, labels))

    def _all(self, number: int) -> Labels:
        return {u.name: self.labels[number] for u in self.graph.units if self.fits[u.name, number]}

    def _moves(self, labels: Labels, kept: frozenset[str]) -> Iterator[Labels]:
        """Labels near the given ones: of many units at once by minimum cuts, then of one."""
        for number in [*range(len(self.labels)), None]:
            moved = self._expanded(labels, number)
            changed = {n: label for n, label in moved.items() if n not in kept and label != labels.get(n, ())}
            if changed:
                yield {**labels, **changed}
        if len(self.graph.units) <= MOST_SINGLE_MOVES:
            for unit in self.graph.units:
                options = [label for i, label in enumerate(self.labels) if self.fits[unit.name, i]]
                for label in [] if unit.name in kept else [*options, ()]:
                    if labels.get(unit.name, ()) != label:
                        yield {**labels, unit.name: label}

    def _expanded(self, labels: Labels, number: int | None) -> Labels:
        """The labels with those units changed to one label for which a minimum cut says so.

        In the cut, a unit costs its work, and a map that is read elsewhere the rows of its changes.
        """
        label = () if number is None else self.labels[number]
        network = Network()
        made = {m: u.name for u in self.graph.units for m in u.maps}
        for unit in self.graph.units:
            own = labels.get(unit.name, ())
            possible = number is None or self.fits[unit.name, number]
            # On the source's side is what changes; an edge that is cut is paid.
            network.add(network.SOURCE, unit.name, self._work(unit, own))
            network.add(unit.name, network.SINK, self._work(unit, label) if possible else float("inf"))
        for unit in self.graph.units:
            for name in unit.reads & made.keys():
                before, after = made[name], unit.name
                network.add(before, after, self._sending(name, labels.get(after, ())))
                network.add(after, before, self._sending(name, label))
        changed = network.source_side()
        return {u.name: label if u.name in changed else labels.get(u.name, ()) for u in self.graph.units}

    def _work(self, unit: Unit, label: Label) -> float:
        size = self.model.partitions if label else 1
        events = ((e, e.event) for e in unit.edges)
        work = sum(self.model.share(v.relation) / 2 * self.model.work(e) for e, v in events if v is not None)
        rows = 0.0 if unit.edges[0].event is not None or unit.view is None else ROW
        return (work + rows) / size

    def _sending(self, name: str, label: Label) -> float:
        declaration = self.graph.declarations[name]
        words = len(declaration.keys) + words_of(declaration.type)
        shared = any(name in k.maps for k in label) or not label
        return 2 * self.model.changes(name) * (ROW + WORD * words) * (1 if shared else self.model.partitions)


def drafts_of(graph: MapGraph, labels: Labels, partial: bool = True) -> list[Draft]:
    """The drafts of stages that labels lead to."""
    return Placing(graph, partial).place_all(labels)


def candidates(classes: Sequence[KeyClass]) -> list[Label]:
    """The labels that are tried where no key is forced: single classes, and grids of two of the commonest."""
    most = classes[:MOST_AXES]
    pairs = [p for p in permutations(most[:3], 2) if p[0].axis.name < p[1].axis.name]
    return [*((k,) for k in most), *pairs]
