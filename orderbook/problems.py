"""What was wrong with a source's input: counted by kind, with the first places of each."""

from collections import Counter

KEPT_EXAMPLES = 5
KEPT_TEXT = 120
# How the kinds begin of what was noticed and used as it is: nothing is missing for it.
_USED = ("off the tick", "off the lot", "instrument changed")


class Problems:
    """Problems that did not stop a source.

    `counts` maps a kind ("malformed line") to how often it occurred; `examples` maps it to the
    first few places, as "file:line: detail". Memory is bounded by the number of kinds.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def add(self, kind: str, where: str, detail: str) -> None:
        """Count one problem of `kind` at `where` ("file:line")."""
        self.counts[kind] += 1
        kept = self.examples.setdefault(kind, [])
        if len(kept) < KEPT_EXAMPLES:
            kept.append(f"{where}: {detail[:KEPT_TEXT]}")

    def extend(self, other: "Problems") -> None:
        """Count the problems of another, too."""
        self.counts += other.counts
        for kind, examples in other.examples.items():
            kept = self.examples.setdefault(kind, [])
            kept += examples[: KEPT_EXAMPLES - len(kept)]

    @property
    def unusable(self) -> int:
        """How many were of input that was left out, or made a book doubtful."""
        return sum(count for kind, count in self.counts.items() if not kind.startswith(_USED))

    def clear(self) -> None:
        self.counts.clear()
        self.examples.clear()

    def report(self) -> list[str]:
        """One line for each kind: how many, and where the first were."""
        return [f"{count} x {kind}: {'; '.join(self.examples[kind])}" for kind, count in self.counts.items()]
