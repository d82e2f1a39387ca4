"""One sender as its receiver sees it: which of its messages came, and which of them count."""

from dataclasses import dataclass, field

from .messages import BEGINNING, Life, Marker, Moment, Rows

Numbered = Rows | Marker


@dataclass(slots=True)
class Channel:
    """What came from one sender.

    settled: the number of its last committed marker. came: the life of every message above that. through:
    everything up to this number came. rows: by number, messages that hold uncommitted rows. markers: by
    epoch, those not committed. ended: where its last committed epoch ended. promises: by number above
    `settled`. promised: what it promised that holds. reached: the highest stamp it has sent or ended.
    lives: those that began after a restart, in order.
    """

    settled: int = 0
    came: dict[int, int] = field(default_factory=dict)
    through: int = 0
    rows: dict[int, Rows] = field(default_factory=dict)
    markers: dict[int, Marker] = field(default_factory=dict)
    ended: int = BEGINNING[0]
    promises: dict[int, Moment] = field(default_factory=dict)
    promised: Moment = BEGINNING
    reached: int = BEGINNING[0]
    lives: list[Life] = field(default_factory=list)

    def begin(self, life: Life) -> list[Rows]:
        """Notes the life of a message; of a new one, returns the rows of earlier lives that never counted."""
        if life.number == 0 or life in self.lives:
            return []
        self.lives = sorted([*self.lives, life])
        lost = {n for n, of in self.came.items() if self._stale(n, of)}
        if not lost:
            return []
        undone = [self.rows.pop(n) for n in sorted(lost & self.rows.keys())]
        self.came = {n: of for n, of in self.came.items() if n not in lost}
        self.markers = {e: m for e, m in self.markers.items() if m.number not in lost}
        self.promises = {n: p for n, p in self.promises.items() if n not in lost}
        self.through = min(self.through, min(lost) - 1)
        held = (p for n, p in self.promises.items() if n <= self.through)
        self.promised = max(held, default=(self.ended, -1, -1))
        return undone

    def accept(self, message: Numbered) -> bool:
        """Whether a message counts and is new; then it is noted."""
        number = message.number
        if number <= self.settled or number in self.came or self._stale(number, message.life.number):
            return False
        self.came[number] = message.life.number
        promise = (message.end, -1, -1) if isinstance(message, Marker) else message.promise
        sent = message.end if isinstance(message, Marker) else latest(message)
        self.reached = max(self.reached, sent)
        if promise is not None:
            self.promises[number] = promise
        while self.through + 1 in self.came:
            self.through += 1
            self.promised = max(self.promised, self.promises.get(self.through, BEGINNING))
        return True

    def _stale(self, number: int, life: int) -> bool:
        return any(later.number > life and number > later.after for later in self.lives)

    def closed(self, number: int) -> int:
        """Stamps below this were ended by the sender before it sent message `number`."""
        ends = (m.end for m in self.markers.values() if m.number < number)
        return max(ends, default=self.ended)

    def end_of(self, epoch: int) -> int | None:
        """Where the epoch ends, if everything the sender has sent of it came."""
        marker = self.markers.get(epoch)
        return marker.end if marker is not None and marker.number <= self.through else None

    def truncate(self, epoch: int) -> None:
        """Forgets what is committed with an epoch."""
        marker = self.markers.pop(epoch)
        self.settled, self.ended = marker.number, marker.end
        self.came = {n: life for n, life in self.came.items() if n > marker.number}
        self.promises = {n: p for n, p in self.promises.items() if n > marker.number}
        for number in [n for n, m in self.rows.items() if latest(m) < marker.end]:
            del self.rows[number]

    def __len__(self) -> int:
        return len(self.rows) + len(self.markers) + sum(n > self.through for n in self.came)


def latest(message: Rows) -> int:
    """The highest stamp in a message; that of BEGINNING where it has no rows."""
    return max((int(b.versions["stamp"][-1]) for b in message.blocks), default=BEGINNING[0])
