"""The run's side of the monitor: frames of what is asked for, made between two items of the run."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

from orderbook.errors import OrderbookError
from orderbook.monitor.letters import Alive, Close, Command, Frame, Logged, Open, Refused
from orderbook.monitor.mailbox import Mailbox
from orderbook.monitor.requests import Topic
from orderbook.monitor.share import Share

# Seconds between two frames of a topic.
FRAME_SECONDS = 0.05
# Seconds between two signs of life.
_ALIVE_SECONDS = 0.5

_logger = logging.getLogger("orderbook.monitor")


class TopicSource(Protocol):
    """What makes the frames of one topic."""

    def frame(self) -> Frame | None:
        """The topic now; None where nothing is new. Raises OrderbookError where it is gone."""

    def close(self) -> None:
        """Nobody asks any more."""


Failed = Callable[[OrderbookError], object]


class Publisher:
    """Serves commands and topics in the run's event loop, within its share of the time.

    sources: for every kind of topic what opens one; it raises OrderbookError for a topic that there is not.
    perform: does what clients ask besides topics.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        sources: Mapping[str, Callable[[Topic], TopicSource]],
        perform: Callable[[Command], object],
        share: Share,
    ) -> None:
        self._mailbox, self._sources, self._perform = mailbox, sources, perform
        self.share = share
        self._commands: deque[Command] = deque()
        # In the order in which their turn comes.
        self._turns: dict[Hashable, tuple[TopicSource, Failed]] = {}
        self._told_at = 0.0

    async def publish(self) -> None:
        """Serve until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + FRAME_SECONDS, loop.time())
            await asyncio.sleep(due - loop.time())
            try:
                self.step()
            except Exception:
                # A defect here must not end the run.
                _logger.exception("the monitor could not make its frames")
                await asyncio.sleep(1.0)

    def step(self) -> None:
        """Serve what fits into the share."""
        self.share.fill()
        if self._mailbox.lost:
            return
        with self.share.spending():
            self._exchange()
        turns = deque(self._turns)
        # By turns, so that whoever asks for ever more does not keep the frames of others waiting.
        while (turns or self._commands) and self.share.left:
            with self.share.spending():
                if turns:
                    self._turn(turns.popleft())
                if self._commands:
                    self._serve(self._commands.popleft())
        with self.share.spending():
            self._mailbox.flush()

    def add(self, key: Hashable, source: TopicSource, failed: Failed) -> None:
        """Give a source its turns; `failed` is told what ends it."""
        self.remove(key)
        self._turns[key] = source, failed

    def remove(self, key: Hashable) -> None:
        """A source has no turns any more."""
        if (held := self._turns.pop(key, None)) is not None:
            held[0].close()

    def close(self) -> None:
        """Forget everything."""
        for key in list(self._turns):
            self.remove(key)

    def _exchange(self) -> None:
        """Say that the run goes on, and take commands; while some wait, others do in the server."""
        if (now := time.monotonic()) - self._told_at >= _ALIVE_SECONDS:
            self._told_at = now
            self._mailbox.post(Alive())
        if not self._commands:
            self._commands.extend(self._mailbox.receive())

    def _serve(self, command: Command) -> None:
        match command:
            case Logged():
                _logger.log(command.level, "%s", command.text)
            case Open():
                self._open(command.topic)
            case Close():
                self.remove(command.topic)
            case _:
                self._perform(command)

    def _open(self, topic: Topic) -> None:
        def refused(error: OrderbookError) -> None:
            self._mailbox.post(Refused(topic, str(error)))

        try:
            self.add(topic, self._sources[topic.kind](topic), refused)
        except OrderbookError as error:
            refused(error)

    def _turn(self, key: Hashable) -> None:
        """One source's turn; its next comes after all others'."""
        held = self._turns.pop(key, None)
        if held is None:
            return
        self._turns[key] = held
        source, failed = held
        try:
            frame = source.frame()
        except OrderbookError as error:
            self.remove(key)
            failed(error)
            return
        if frame is not None:
            self._mailbox.put(frame)
