"""Maps that a plan adds to its program: directories of a map's keys, and scratch maps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from views.compiler.calculus import ZERO, MapRef, Var, product
from views.compiler.intervals import exact
from views.compiler.m3 import MapDeclaration
from views.compiler.types import INT64_MAX, Type

from .statistics import Statistics
from .steps import Directory


@dataclass(slots=True)
class Derived:
    """Collects derived maps while a program is lowered.

    `leaders` names for each map the first of those that share its entries, so that they share
    directories too. `statistics` are what orders of loops are chosen by.
    """

    declared: Mapping[str, MapDeclaration]
    leaders: Mapping[str, str]
    statistics: Statistics | None = None
    maps: dict[str, MapDeclaration] = field(default_factory=dict)
    directories: dict[str, Directory] = field(default_factory=dict)
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    def directory(self, source: str, positions: tuple[int, ...]) -> str:
        """The name of the map that counts the source's entries by the keys at `positions`."""
        source = self.leaders.get(source, source)
        if source in self.maps:
            raise ValueError(f"{source} is derived itself")
        name = self._unused("_".join([source, "keys", *map(str, positions)]), of=source)
        if name not in self.maps:
            whole = self.declared[source]
            keys = tuple(whole.keys[p] for p in positions)
            kinds = tuple(whole.key_types[p] for p in positions)
            definition = product(MapRef(source, whole.keys))
            self.maps[name] = MapDeclaration(name, keys, kinds, exact(0, INT64_MAX), definition)
            self.directories[name] = Directory(name, source, positions)
        return name

    def scratch(self, kinds: Sequence[Type], value: Type) -> str:
        """The name of a new map that a statement fills and reads."""
        name = self._unused(f"scratch_{next(self._numbers)}")
        keys = tuple(Var(f"key_{i}") for i in range(len(kinds)))
        self.maps[name] = MapDeclaration(name, keys, tuple(kinds), value, ZERO)
        return name

    def _unused(self, name: str, of: str = "") -> str:
        while name in self.declared or (name in self.maps and not of):
            name += "_"
        return name
