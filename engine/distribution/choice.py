"""Which axes each unit is computed by: by a rule of the papers, or whichever costs less."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations

from .axes import MOST_AXES, KeyClass
from .cost import ROW, WORD, Model
from .graph import MapGraph, Unit
from .min_cut import Network
from .placing import Draft, Label, Placing
from .shipped import words_of

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
        return {
            u.name: label if u.name in changed else labels.get(u.name, ()) for u in self.graph.units
        }

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
