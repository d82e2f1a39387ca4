"""The alerts of a run: made from its configuration, begun where its log ends, and ended with it."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from orderbook.alerts.channels import channel_of
from orderbook.alerts.messages import alert_data, check_template
from orderbook.alerts.notifier import ChannelReport, ChannelWorker, Notifier
from orderbook.alerts.rules import Raised, RuleWatch, Transition
from orderbook.alerts.store import AlertStore, Silence, Stored
from orderbook.configuration.alert_options import AlertOptions
from orderbook.configuration.configuration import Configuration
from orderbook.core.errors import OrderbookError, Problems, UserError, suggestion
from orderbook.core.units import nanoseconds
from orderbook.feeds.source import Finding
from orderbook.strategies.gated_engine import GatedEngine

# Seconds between two looks at what is due.
_LOOK = 0.05
# Seconds for which a run waits at its end, and before a checkpoint.
_AT_END, _TO_KEEP = 5.0, 30.0
# Alerts that are listed: open ones, and those that are over.
MOST_LISTED = 500


@dataclass(frozen=True, slots=True)
class AlertReport:
    """What became of a run's alerts. raised: by this run. open: now, over all runs. limited: those of the
    raised of which nobody was told, by `rate_limit`."""

    raised: int
    open: int
    limited: int
    channels: tuple[ChannelReport, ...]
    problems: Problems


class RunAlerts:
    """The alerts of one run. The engine's thread calls it; what takes long goes on beside."""

    def __init__(self, configuration: Configuration, now: Callable[[], int] = time.time_ns) -> None:
        """Raises UserError, ConfigurationError or SourceError for what cannot be used."""
        self.rules = configuration.alerts
        self.observer: Callable[[Raised], object] = lambda _: None
        self._now, self._problems = now, Problems()
        self._watches: list[RuleWatch] = []
        self._notifier: Notifier | None = None
        if not self.rules:
            return
        check_channels(configuration)
        options = configuration.alerting
        folder = options.folder or (configuration.log.folder and configuration.log.folder / "alerts")
        give_up = nanoseconds(options.give_up_after)
        channels = {name: channel_of(name, one) for name, one in configuration.channels.items()}
        self._store = AlertStore(folder, options.keep)
        workers = [
            ChannelWorker(name, one, self._store, give_up, now, self._problems)
            for name, one in channels.items()
        ]
        self._notifier = Notifier(
            self.rules, configuration.channels, workers, self._store, now, self._problems
        )

    def __bool__(self) -> bool:
        return self._notifier is not None

    def attach(self, engine: GatedEngine) -> None:
        """The engine is about to be brought to where its log ends; one before it is nobody's any more.

        Raises UserError that names an alert whose view, condition or message is wrong.
        """
        self._watches = []
        for name, options in self.rules.items():
            stored = self._store.stored(name)
            self._watches.append(_watch(name, options, engine, stored, self._told, self._problems))

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """From here on what happens is new; at the end what is due is sent, for some seconds."""
        if self._notifier is not None:
            self._notifier.start()
            for watch in self._watches:
                watch.begin(self._now())
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """End; what is not delivered waits for the next run, where it is kept."""
        if self._notifier is not None:
            self._notifier.close(_AT_END)

    def release(self) -> None:
        """Let go of the folder."""
        if self._notifier is not None:
            self._store.close()

    def save(self) -> None:
        """What has happened survives a crash on return; before a checkpoint. Raises SourceError."""
        if self._notifier is not None:
            self._notifier.flush(_TO_KEEP)

    async def attend(self) -> None:
        """Raises and clears what is due, until a thread fails without which the run must not go on."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK)

    def look(self) -> None:
        """Once what `attend` does again and again."""
        if self._notifier is not None:
            self._notifier.attend()
            now = self._now()
            for watch in self._watches:
                watch.look(now)

    def _told(self, transition: Transition) -> bool:
        assert self._notifier is not None
        taken = self._notifier.put(transition)
        if taken and isinstance(transition, Raised):
            self.observer(transition)
        return taken

    def listed(self) -> "Future[dict[str, Any]]":
        """Alerts, silences and channels, as clients have them."""

        def found() -> dict[str, Any]:
            channels = self._asked.reports()
            return {
                "alerts": [
                    {**alert_data(one), "told": one.told is not None, "limited": one.limited is not None}
                    for one in self._store.alerts(MOST_LISTED)
                ],
                "silences": [_silence(one) for one in self._store.silences(self._now())],
                "channels": [
                    {"channel": c.name, "sent": c.sent, "waiting": c.waiting, "failures": c.failures}
                    for c in channels
                ],
            }

        return self._asked.ask(found)

    def acknowledge(self, alert: str, by: str) -> "Future[int]":
        """See Notifier; of a run that has alerts, as all that is asked of them."""
        return self._asked.ask(lambda: self._asked.acknowledge(alert, by))

    def silence(self, rule: str, match: dict[str, str], seconds: float, by: str) -> "Future[dict[str, Any]]":
        """See Notifier."""
        return self._asked.ask(lambda: _silence(self._asked.silence(rule, match, seconds, by)))

    def end_silence(self, id_: int) -> "Future[None]":
        """See Notifier."""
        return self._asked.ask(lambda: self._asked.end_silence(id_))

    @property
    def _asked(self) -> Notifier:
        assert self._notifier is not None
        return self._notifier

    def report(self) -> AlertReport | None:
        """What happened so far; None for a run without alerts."""
        if self._notifier is None:
            return None
        one = self._notifier
        return AlertReport(one.raised, one.open, one.limited, tuple(one.reports()), self._problems)

    def findings(self) -> Iterator[Finding]:
        """Notifications that have not been delivered, and alerts that were not raised."""
        report = self.report()
        if report is None:
            return
        for one in report.channels:
            if left := one.waiting + one.given_up:
                todo = (
                    "see why it cannot be told; with alerting.folder or a log the next run tells what waits"
                )
                yield Finding("alerts not delivered", (one.name,), left, todo)
        for kind in ("alert not raised", "alert not sent"):
            if count := self._problems.counts[kind]:
                todo = "raise fewer: narrow `when`, or add `for`"
                yield Finding(kind, tuple(self._problems.examples[kind]), count, todo)

    def summary(self) -> Iterator[str]:
        """Lines on the alerts, on each channel, and on what went wrong."""
        report = self.report()
        if report is None:
            return
        untold = f", not told of {report.limited:,} (more than rate_limit)" if report.limited else ""
        yield f"  alerts: raised {report.raised:,}, open {report.open:,}{untold}"
        for one in report.channels:
            parts = [f"sent {one.sent:,}"]
            parts += [f"waiting {one.waiting:,}"] if one.waiting else []
            parts += [f"given up {one.given_up:,}"] if one.given_up else []
            yield f"  channel {one.name}: {', '.join(parts)}"
        yield from (f"    {line}" for line in report.problems.report())


def _silence(one: Silence) -> dict[str, Any]:
    return {"silence": one.id, "alert": one.rule, "match": one.match, "until": str(one.until), "by": one.by}


def check_channels(configuration: Configuration) -> None:
    """Raises ConfigurationError where an alert names a channel that there is not."""
    for name, options in configuration.alerts.items():
        for channel in options.named_channels:
            if channel not in configuration.channels:
                what = suggestion(channel, configuration.channels)
                raise configuration.error(("alerts", name), f"no channel is named {channel!r}; {what}")


def check_alerts(configuration: Configuration, engine: GatedEngine) -> Iterator[str]:
    """A line for each alert of the configuration; raises as RunAlerts does, and keeps and sends nothing."""
    check_channels(configuration)
    for name, one in configuration.channels.items():
        channel_of(name, one)
    for name, options in configuration.alerts.items():
        _watch(name, options, engine, {}, lambda _: True, Problems())
        told = f"told to {', '.join(options.named_channels) or 'the page alone'}"
        yield f"alert {name}: fine, of {options.view} when {options.when or 'there is a row'}, {told}"


def _watch(
    name: str,
    options: AlertOptions,
    engine: GatedEngine,
    stored: Mapping[str, Sequence[Stored]],
    tell: Callable[[Transition], bool],
    problems: Problems,
) -> RuleWatch:
    try:
        watch = RuleWatch(name, options, engine, stored, tell, problems)
        if options.message is not None:
            check_template(options.message, watch.subscriptions[0].layout.result)
    except OrderbookError as error:
        raise UserError(f"alerts.{name}: {error}") from None
    return watch


@contextmanager
def alerts_of(configuration: Configuration) -> Iterator[RunAlerts]:
    """The alerts of a configuration, which let go of what they hold in the end; see RunAlerts."""
    alerts = RunAlerts(configuration)
    try:
        yield alerts
    finally:
        alerts.release()
