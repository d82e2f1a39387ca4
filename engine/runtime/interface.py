"""What every runtime offers the engine: the interpreter and the numba executor are two of them.

Watches and their firings, rows, and recordings of the rows that change.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import ChangeBatch, Word
from orderbook.engine.runtime.map_entries import Entries, MapRows, Match
from orderbook.views.calculus import Scalar

if TYPE_CHECKING:
    # Compiled code, which who only reads rows does without.
    from orderbook.engine.runtime.relation_store import RelationStore


@dataclass(frozen=True, slots=True)
class Watch:
    """A compiled subscription.

    `condition` is a scalar over the view's columns, as `bind_condition` gives it, not 0 where it holds
    (None: always). `per_message` looks at the view at the end of each message, else of each event. `edge`
    fires when the condition becomes true of a row (without a condition, when the row changes), else
    at every change of the row while it holds.
    """

    view: str
    condition: Scalar | None
    per_message: bool
    edge: bool


class Row(Protocol):
    """A view's row: how often it stands (1 when grouped), and its columns. It never changes."""

    @property
    def count(self) -> int: ...

    @property
    def columns(self) -> tuple[Word, ...]: ...

    def word(self, place: int) -> Word:
        """The value of one column."""


@dataclass(frozen=True, slots=True)
class PlainRow:
    """A Row whose columns are there."""

    count: int
    columns: tuple[Word, ...]

    def word(self, place: int) -> Word:
        """See Row."""
        return self.columns[place]


class Firing(Protocol):
    """One firing of a watch: the row's key, what it was (at the last look) and is; None: no row."""

    @property
    def watch(self) -> int: ...

    @property
    def key(self) -> tuple[Word, ...]: ...

    @property
    def old(self) -> Row | None: ...

    @property
    def new(self) -> Row | None: ...


@dataclass(frozen=True, slots=True)
class PlainFiring:
    """A Firing whose parts are there."""

    watch: int
    key: tuple[Word, ...]
    old: Row | None
    new: Row | None


class ViewCopy(Protocol):
    """A copy of a view's rows, as of the moment of `finish`; on the engine's thread unless said otherwise."""

    @property
    def stale(self) -> bool:
        """Whether what it copies from is there no more, or watched otherwise: only a new copy helps."""

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that there were when this was made."""

    def prepare(self) -> None:
        """Compiles what the copy runs; in any thread, before `begin`."""

    def begin(self) -> bool:
        """From now on changed rows are noted; False where all places to note them are taken."""

    def piece(self) -> bool:
        """Copies a piece, between two changes; whether it was the last."""

    def finish(self) -> None:
        """Between two changes, after the last piece: the rows are those of now."""

    def end(self) -> None:
        """Notes nothing more."""

    def rows(self) -> list[NDArray[np.int64]]:
        """After `finish`, in any thread: parts of the rows, int64[n, words of the row], at least one."""


# Takes kinds, flags and values of a batch and where to begin; gives where it stopped, the complement of that
# where watches fired, NOT_DESCRIBED, or something less that `stopped` is to know, for which no events are
# counted.
Direct = Callable[[NDArray[np.int16], NDArray[np.uint8], NDArray[np.int64], int], int]


class Runtime(Protocol):
    """Runs one program. Not thread-safe: one thread owns it."""

    def watch(self, watches: Sequence[Watch]) -> None:
        """Replaces the watches; takes effect with the next change. Rows as they are now are a first look."""

    def admit(self, rows: "RelationStore") -> None:
        """From now on events are checked against these rows, and counted in them, as they are applied."""

    def apply(self, batch: ChangeBatch, start: int) -> int:
        """Applies changes from index `start` on, in order, without events that are refused.

        Returns the index after the last change applied: the batch's length, or earlier, right after
        the event or message at which watches fired, or before a change of the clock that is none of its
        ticks. `kinds` index `program.relations`.

        Raises ExactnessError when a value does not fit 128 bits.
        """

    def fill(self, batches: Iterable[ChangeBatch]) -> None:
        """Applies rows that maps are filled from, each an event; patterns are followed at the end."""

    def direct(self, progress: int) -> "Direct | None":
        """What applies batches and counts their events at an address, until watches change; None: nothing."""

    def ready(self) -> int:
        """Where the state lies for compiled code that applies changes itself, from now until the dictionary
        grows; 0: nowhere."""

    def functions_of(self, watch: "Watch") -> tuple[int, int, int]:
        """The addresses of the state, of the function of it, a key's and a row's address that writes the row
        of a watch's view, and says how often it stands, and of that of the state, a row's address and 0 that
        says whether the watch's condition holds, 0 where it has none. Without compiled code 0."""

    def stopped(self, stop: int) -> int:
        """Notes what `direct` left to do; what `apply` would have returned. Raises as `apply` does."""

    @property
    def noted(self) -> bool:
        """Whether `apply` has left something to do: firings, refusals, a change of the clock."""

    def firings(self) -> Sequence[Firing]:
        """The firings at which `apply` stopped, by watch; empty if none."""

    def record(self, recordings: "Sequence[Recording]") -> "Recorder":
        """What applies changes from now on, and records these views instead of watching.

        Rows as they are now are a first look. The recorder ends with the next call of `watch` or `record`.
        """

    def row(self, view: str, key: tuple[Word, ...]) -> Row | None:
        """One row of a view as of the last change; None where there is none."""

    def rows(self, view: str) -> Iterator[tuple[tuple[Word, ...], Row]]:
        """All rows of a view as of the last change, in any order."""

    def row_words(self, view: str) -> NDArray[np.int64]:
        """All rows of a view, in any order: int64[n, words of the key and of the row]; see RowFormat."""

    def copy_view(self, view: str) -> ViewCopy | None:
        """A copy of all rows of a view, to be made in pieces; None where `row_words` is as good."""

    def map_sizes(self) -> dict[str, int]:
        """Entries of every map, by name."""

    def memory_bytes(self) -> int:
        """Bytes held by all maps and their indexes."""

    def map_bytes(self) -> dict[str, int]:
        """Bytes held for every map, by name; maps that share a structure share its bytes evenly."""

    def entries(self, name: str) -> Entries:
        """A copy of the entries of a map, as of the last change."""

    def copied(self) -> tuple[MapRows, ...]:
        """A copy of the entries of all maps, as of the last change."""

    def restore(self, maps: Sequence[MapRows], codes: NDArray[np.int64] | None) -> None:
        """Replaces the entries of all maps by those that a runtime of the same program copied.

        `codes`, int64[n], gives for each dictionary code in the copy what it is now, None where all are the
        same. Rows of views follow, watches do not look.
        """

    def adopt(self, other: "Runtime", matches: Mapping[str, Match]) -> None:
        """Replaces the entries of maps by those of another runtime, which is of no more use afterwards.

        `matches` gives for each map, by name, which it is there.
        """

    def close(self) -> None:
        """Gives back what the runtime holds; it is of no more use afterwards."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A view whose changed rows are recorded: at the end of each message, or of each event.

    old: whether the rows before are wanted, too.
    """

    view: str
    per_message: bool
    old: bool = True


@dataclass(frozen=True, slots=True)
class Records:
    """n changes of rows of one view, in the order of the changes that made them.

    changes: int64[n], the index of the last change that the look took in. keys: int64[n, k], encoded as in
    a ChangeBatch. old, new: int64[n, w], the row at the look before and now as `RowFormat` lays it out: how
    often it stands (0: no row), then for each column whether it is there and its value, an int64 or the
    bits of a double; of 128 bits the low and the high word. A row that stays as it was is not recorded.
    """

    changes: NDArray[np.int64]
    keys: NDArray[np.int64]
    old: NDArray[np.int64]
    new: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.changes)


class Recorder(Protocol):
    """Applies changes to one runtime, whose watches it has taken the place of, and gives what they did."""

    def apply(self, batch: ChangeBatch) -> tuple[Records, ...]:
        """Applies a batch; the Records of every recording, in their order. Raises as Runtime.apply does."""

    def rows(self, view: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Keys and rows of a view now, laid out as in Records, in any order."""

    def pending(self) -> tuple[Records, ...]:
        """What would be recorded if a message ended here; `changes` mean nothing."""

    def restore(self, pending: Sequence[Records]) -> None:
        """Makes rows differ from the last look as `pending` says: `old` is how that look saw them."""
