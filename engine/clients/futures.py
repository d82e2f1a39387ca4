"""Futures: the next event of a view, to be awaited.

Source: the client interface of CIDR 2011: a future is bound when a result arrives. So a row of which the
condition holds already binds nothing; it has to come to hold.
"""

import asyncio
from typing import TYPE_CHECKING

from engine.subscriptions import Granularity, ViewDropped, ViewEvent

from .following import Following
from .waking import Waker

if TYPE_CHECKING:
    from engine.engine import Engine


def next_event(
    engine: "Engine",
    view: str,
    where: str | None,
    timeout: float | None,
    on: Granularity,
    other_thread: bool,
) -> "asyncio.Future[ViewEvent]":
    """See `ClientInterface.next`."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ViewEvent] = loop.create_future()
    waker = Waker(loop)

    def bind(event: ViewEvent) -> None:
        waker.call(lambda: succeed(event))

    def succeed(event: ViewEvent) -> None:
        if not future.done():
            future.set_result(event)

    def fail(error: Exception) -> None:
        if not future.done():
            future.set_exception(error)

    def dropped() -> None:
        waker.call(lambda: fail(ViewDropped(f"view {view} was dropped while its next event was awaited")))

    following = Following(
        engine, view, bind, dropped, when=where, on=on, fire="edge", other_thread=other_thread, once=True
    )
    future.add_done_callback(lambda _: following.cancel())
    if timeout is not None:
        what = f"no event of {view}{f' where {where}' if where else ''} within {timeout:g} s"
        timer = loop.call_later(timeout, lambda: fail(TimeoutError(what)))
        future.add_done_callback(lambda _: timer.cancel())
    return future
