"""Names that nothing else has: the one wanted, or with a number after it."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class UniqueNames:
    """Gives out names that are not in `taken`, each once: price, price_2, price_3."""

    taken: set[str] = field(default_factory=set)

    def new(self, wanted: str) -> str:
        """The name wanted, or else with the first number that makes it new."""
        name, number = wanted, 1
        while name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self.taken.add(name)
        return name
