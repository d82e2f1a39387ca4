"""Errors of workers, brought to the driver as the errors they were."""

import base64
import pickle
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from orderbook.errors import OrderbookError

_MARK = re.compile(r"orderbook-error:([A-Za-z0-9+/=]+):")
_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")


class WorkerError(OrderbookError):
    """A worker failed by a mistake that is not the user's, or ended; `details` has its traceback."""

    def __init__(self, message: str, details: str = ""):
        super().__init__(message)
        self.details = details
        if details:
            self.add_note(details)


class _Transported(Exception):
    """An error on its way from a worker, as text that survives Java."""


@contextmanager
def transporting(what: str) -> Iterator[None]:
    """In a worker: errors leave as text from which `arriving` makes them again; `what` names the task."""
    try:
        yield
    except OrderbookError as error:
        raise _Transported(_packed(error)) from None
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        message = f"{what} failed: {said} ({place.filename}:{place.lineno})"
        raise _Transported(_packed(WorkerError(message, traceback.format_exc()))) from None


@contextmanager
def arriving() -> Iterator[None]:
    """At the driver, around what runs a job: raises a worker's error as it was, others as one line.

    Raises OrderbookError (the worker's), or WorkerError where a worker ended or Spark itself failed.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise worker_error(error) from None


def worker_error(error: BaseException) -> OrderbookError:
    """The error that made a job or a streaming query fail."""
    text = str(error)
    found = _MARK.search(text)
    if found:
        return pickle.loads(base64.b64decode(found[1]))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "Python worker exited" in text or "ExecutorLostFailure" in text:
        return WorkerError("a worker of Spark ended while it worked; it may have been short of memory", text)
    raised = [line for line in lines if _RAISED.match(line)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    first = next(reversed(raised or causes or lines[:1]), repr(error))
    return WorkerError(f"Spark failed: {first}", text)


def _packed(error: OrderbookError) -> str:
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:  # an error with a constructor or values that pickle cannot bring back
        pickled = pickle.dumps(WorkerError(str(error)))
    return f"orderbook-error:{base64.b64encode(pickled).decode()}: {error}"
