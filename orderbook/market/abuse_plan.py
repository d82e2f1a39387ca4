"""What is known before abuse is added to a stream: its span, when episodes begin, and their labels."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from orderbook.core.errors import UserError
from orderbook.market.abuse_scripts import CLOSE_SHARE, CLOSE_SPAN, LONGEST, SCRIPTS
from orderbook.market.events import Action, Events, Flag

KINDS = tuple(SCRIPTS)
_MARKING = "marking_the_close"
_DAY = 86_400 * 10**9
_LAST = int(Flag.LAST)
_ADD, _EXECUTE, _LEVEL, _TRADE = int(Action.ADD), int(Action.EXECUTE), int(Action.LEVEL), int(Action.TRADE)


@dataclass
class Survey:
    """What must be known of a stream before abuse is added: `read` its batches, all of them.

    days: (first, last) time of the events of an instrument on a UTC day, ns. counts: events of instruments.
    """

    days: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)
    last_order: int = 0
    last_trade: int = 0
    brokers: int = 0
    trade_first: bool = False

    def read(self, events: Events) -> None:
        """Looks at EVENT[n]. Raises UserError where books come by levels, which have no orders."""
        if (events["action"] == _LEVEL).any():
            raise UserError(
                "abuse is added to orders, and these books come by price levels; give a source of orders"
            )
        times = np.where(events["exchange_time"], events["exchange_time"], events["receive_time"])
        for instrument in np.unique(events["instrument"]).tolist():
            own = times[(events["instrument"] == instrument) & (times > 0)]
            self.counts[instrument] += len(own)
            for day in np.unique(own // _DAY).tolist():
                found = own[own // _DAY == day]
                first, last = self.days.get((instrument, day), (int(found.min()), int(found.max())))
                self.days[instrument, day] = min(first, int(found.min())), max(last, int(found.max()))
        ordered = (events["action"] <= _EXECUTE) & (events["action"] >= _ADD)
        traded = events["action"] == _TRADE
        for name, rows in (("last_order", ordered), ("last_trade", traded)):
            if rows.any():
                setattr(self, name, max(getattr(self, name), int(events["order_id"][rows].max())))
        self.brokers = max(self.brokers, int(events["broker_id"].max(initial=0)))
        executed = np.flatnonzero(events["action"][1:] == _EXECUTE) + 1
        if len(executed) and not self.trade_first:
            same = ~(events["flags"][executed - 1] & _LAST).astype(bool)
            self.trade_first = bool((same & (events["action"][executed - 1] == _TRADE)).any())

    def first(self, instrument: int) -> int:
        """The time of an instrument's first event, ns."""
        return min(first for (own, _), (first, _) in self.days.items() if own == instrument)

    def rate(self, instrument: int) -> float:
        """Events of an instrument a ns of its days."""
        spent = sum(last - first for (own, _), (first, last) in self.days.items() if own == instrument)
        return self.counts[instrument] / max(1, spent)


@dataclass(slots=True)
class Label:
    """An episode of abuse: begin and end in ns, orders by what they were for.

    `side` is that of the orders that are not meant to be executed, or the aggressor's. `taken` are orders of
    the stream that were executed, whose later `dropped` events are left out.
    """

    kind: str
    strength: float
    instrument: int
    side: int
    begin: int
    end: int = 0
    non_bona_fide: list[int] = field(default_factory=list)
    bona_fide: list[int] = field(default_factory=list)
    counterparties: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    messages: int = 0
    dropped: int = 0
    cut_short: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """An episode that is to begin at a time (ns) or, where there is no room, until `latest`.

    `tries` are how often it may begin again where the stream cuts it short.
    """

    start: int
    kind: str
    instrument: int
    latest: int
    close: int
    tries: int = 12


def planned(survey: Survey, abuse: Sequence[tuple[str, int]], random: np.random.Generator) -> list[Planned]:
    """So many episodes of each kind, spread over the stream, in the order of time.

    Raises UserError for kinds that are none, more closes than the stream has, and a stream that is too short.
    """
    unknown = [kind for kind, _ in abuse if kind not in SCRIPTS]
    if unknown:
        raise UserError(f"no abuse {unknown[0]}; give one of {', '.join(KINDS)}")
    if any(count < 1 for _, count in abuse):
        raise UserError("give at least one episode of each kind of abuse")
    kinds = [kind for kind, count in abuse if kind != _MARKING for _ in range(count)]
    closes = sum(count for kind, count in abuse if kind == _MARKING)
    if closes > len(survey.days):
        raise UserError(
            f"{_MARKING}={closes}: an instrument closes once a day, which makes {len(survey.days)} here"
        )
    found, closing = [], dict[tuple[int, int], int]()
    days = sorted(survey.days)
    for place in random.permutation(len(days))[:closes].tolist():
        first, last = survey.days[days[place]]
        start = closing[days[place]] = last - min(CLOSE_SPAN, int((last - first) * CLOSE_SHARE))
        found.append(Planned(start, _MARKING, days[place][0], last, last))
    random.shuffle(kinds)
    needed, room = sum(LONGEST[kind] for kind in kinds), 0.9e-9 * sum(b - a for a, b in survey.days.values())
    if needed > room:
        raise UserError(
            f"{len(kinds)} episodes take up to {needed:.3g} s, and the stream has room for {room:.3g} s of "
            "them; give a longer one (of generated flow more --events or a lower --rate), or fewer episodes"
        )
    weights = np.array([last - first for first, last in (survey.days[day] for day in days)], np.float64)
    weights *= [survey.counts[instrument] for instrument, _ in days]
    drawn: list[int] = (
        random.choice(len(days), len(kinds), p=weights / weights.sum()).tolist() if kinds else []
    )
    slots: dict[int, list[str]] = {}
    for kind, place in zip(kinds, drawn, strict=True):
        slots.setdefault(place, []).append(kind)
    for place, own in slots.items():
        first, last = survey.days[days[place]]
        # The beginning shows what is usual, the end belongs to the close.
        end = min(closing.get(days[place], last), last - (last - first) // 20)
        first, last = first + (last - first) // 20, end
        width = (last - first) // len(own)
        for k, kind in enumerate(own):
            begin = first + k * width
            start = begin + int(random.uniform(0, 0.5) * width)
            found.append(Planned(start, kind, days[place][0], begin + width, survey.days[days[place]][1]))
    return sorted(found, key=lambda one: (one.start, one.instrument, one.kind))
