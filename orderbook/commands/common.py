"""What commands share: the configuration under their options, signals, and what makes a result incomplete."""

import asyncio
import gc
import json
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from orderbook.configuration.configuration import Configuration, Scalar, load_configuration
from orderbook.core.errors import SourceError, UserError, visible
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
    """The value of each NAME=VALUE: a number, true or false, else text. Raises UserError."""
    return dict(map(_setting, texts))


def _setting(text: str) -> tuple[str, Scalar]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UserError(f"--set {text}: expected NAME=VALUE")
    if value in ("true", "false"):
        return name, value == "true"
    try:
        number = Decimal(value)
    except InvalidOperation:
        return name, value
    if not number.is_finite():
        raise UserError(f"--set {text}: expected a finite number or a string")
    return name, number


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


def socket_address(url: str, token: str = "") -> str:
    """The socket of a monitor, given as http://HOST:PORT/, HOST:PORT, or itself. Raises UserError."""
    said = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(said)
        known = parts.scheme in ("http", "https", "ws", "wss") and parts.hostname and (parts.port or 1)
    except ValueError:
        known = None
    if not known or any(c.isspace() for c in url):
        raise UserError(f"--url {url}: expected http://HOST:PORT, as the run prints it, or HOST:PORT")
    path = parts.path.rstrip("/")
    # Behind a proxy a page has a path, beside which the socket's is.
    path = path if path.endswith("/ws") else f"{path}/ws"
    query = f"token={quote(token, safe='')}" if token else parts.query
    return urlunsplit((parts.scheme.replace("http", "ws"), parts.netloc, path, query, ""))


# Seconds for a connection, and for an answer, which takes some where a run is busy.
_CONNECTED, _ANSWERED = 15.0, 30.0


def answer_of_run(url: str, token: str, request: Mapping[str, object], otherwise: str) -> dict[str, Any]:
    """What `ask_run` gives, for what is not in an event loop."""
    return asyncio.run(ask_run(url, token, request, otherwise))


async def ask_run(
    url: str, token: str, request: Mapping[str, object], otherwise: str, seconds: float = _ANSWERED
) -> dict[str, Any]:
    """What a run answers to a request through its monitor's websocket, within so many seconds.

    otherwise: what to do where nothing is heard. Raises UserError for a URL that is none, SourceError
    without an answer, or with an error as it.
    """
    # Not what every command waits for.
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

    address = socket_address(url, token)
    try:
        async with (
            asyncio.timeout(seconds),
            connect(address, max_size=None, compression=None, open_timeout=_CONNECTED) as socket,
        ):
            await socket.send(json.dumps({"id": 1, **request}))
            while True:
                message: dict[str, Any] = json.loads(await socket.recv())
                if message.get("id") == 1:
                    break
    except (OSError, TimeoutError, InvalidHandshake, InvalidURI, ConnectionClosed) as error:
        raise SourceError(
            f"no answer from a monitor at {url}: {type(error).__name__}: {error}; {otherwise}"
        ) from None
    if message["type"] == "error":
        raise SourceError(visible(str(message["error"])))
    return message


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
