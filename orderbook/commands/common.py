"""What commands share: the configuration under their options, signals, and what makes a result incomplete."""

import asyncio
import gc
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path

from orderbook.configuration.configuration import Configuration, Scalar, load_configuration
from orderbook.core.errors import UserError
from orderbook.core.processors import has_frozen
from orderbook.core.summaries import told
from orderbook.feeds.source import Finding
from orderbook.operations.logs import configure_logging
from orderbook.run.assembly import with_strategies_of_views
from orderbook.run.findings import incomplete_lines, refuse_incomplete


def configured(
    config: Path | None,
    views: Sequence[str],
    strategies: Sequence[str],
    overrides: Mapping[str, object],
    allow_incomplete: bool = False,
    sets: Sequence[str] = (),
) -> Configuration:
    """The configuration with the command line's options over it, see `load_configuration`, and with the
    strategies that the files of its views declare.

    sets: NAME=VALUE each, of parameters of views and strategies. Raises UserError for one that none has.
    """
    if sets:
        from orderbook.backtesting.settings import configuration_keys

        values = settings(sets)
        keys = configuration_keys(
            configured(config, views, strategies, overrides, allow_incomplete), list(values)
        )
        overrides = {**overrides, **{key: values[name] for name in values for key in keys[name]}}
    chosen = {**overrides}
    if allow_incomplete:
        chosen["run.allow_incomplete"] = True
    if views:
        chosen["run.views"] = list(views)
    if strategies:
        chosen["run.strategies"] = list(strategies)
    configuration = load_configuration(config, chosen)
    configure_logging(configuration.logging)
    # Where only strategies are named, only those run.
    return configuration if strategies and not views else with_strategies_of_views(configuration)


def settings(texts: Sequence[str]) -> dict[str, Scalar]:
    """The value of each NAME=VALUE, see `setting_value`. Raises UserError."""
    return {name: setting_value(value) for name, value in map(setting, texts)}


def setting(text: str) -> tuple[str, str]:
    """The name and the text of NAME=VALUE. Raises UserError, which says where a key of a table belongs."""
    name, equals, value = text.partition("=")
    if equals and name.isidentifier():
        return name, value
    why = "expected NAME=VALUE"
    if equals and _KEY.fullmatch(name):
        table, _, key = name.rpartition(".")
        why = f"parameters alone; {key} stands under [{table}] of the file that --config names"
    raise UserError(f"--set {text}: {why}")


def setting_value(text: str) -> Scalar:
    """A number, true or false, else text, which may stand in double quotes. Raises UserError."""
    if text in ("true", "false"):
        return text == "true"
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1]
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    if not number.is_finite():
        raise UserError(f"--set {text}: expected a finite number or a string")
    return int(text) if text.lstrip("-").isdecimal() else number


# A key of the configuration, in a table.
_KEY = re.compile(r"\w+(\.\w+)+")


def tell_incomplete(
    findings: Sequence[Finding], configuration: Configuration, failed: Iterable[Exception] = ()
) -> None:
    """Print what makes a result incomplete, after everything else. Raises the first of what has failed, else
    IncompleteError where there are findings that are not allowed."""
    for line in incomplete_lines(findings):
        print(line)
    told(incomplete=list(findings))
    for error in failed:
        raise error
    refuse_incomplete(findings, configuration.run.allow_incomplete)


@contextmanager
def terminable() -> Iterator[None]:
    """A request to terminate ends what is done as Ctrl-C does: in order. For the main thread."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def settled() -> Iterator[None]:
    """What is there now is not looked through for garbage, which would be a pause of a tenth of a second.

    A process that has frozen what it holds, before it began a run, keeps it so.
    """
    if has_frozen():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def stopped_by_signals() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C or a request to terminate sets, once; a second one acts as it always does."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        stopped.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield stopped
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
