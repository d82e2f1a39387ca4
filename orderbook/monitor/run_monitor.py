"""The monitor of one run: everything that it shows, put together."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from engine.live_view import LiveView
from orderbook.configuration import Configuration
from orderbook.feed_runs import FeedRun
from orderbook.live_run import LiveRun
from orderbook.monitor.alerts import Alerts
from orderbook.monitor.book_topic import BookTopics
from orderbook.monitor.follows import Followed, Follows, Replacing, is_followed
from orderbook.monitor.letters import Ask, CloseFollow, Command, Leave, OpenFollow
from orderbook.monitor.mailbox import Mailbox
from orderbook.monitor.notes import Notes, NotesTopic, noted_warnings
from orderbook.monitor.operations import Operations
from orderbook.monitor.own_orders import OwnOrders
from orderbook.monitor.publisher import Publisher
from orderbook.monitor.server_process import ServerProcess
from orderbook.monitor.share import Share
from orderbook.monitor.status_topic import EngineHealth, FeedHealth, InstrumentsTopic, StatusTopic
from orderbook.monitor.tape import Tape
from orderbook.monitor.view_topic import ViewTopic
from orderbook.pipeline import Pipeline


class RunMonitor:
    """Shows a run. Made before the run compiles its triggers, since rules of the configuration subscribe.

    `notes` and `orders` are told of what strategies do. Raises SqlError or DataError for a wrong rule.
    """

    def __init__(self, configuration: Configuration, pipeline: Pipeline, runs: Sequence[FeedRun]) -> None:
        self._configuration, self._pipeline, self._runs = configuration, pipeline, runs
        self.notes = Notes(lambda: pipeline.time)
        # Pages count by the ticks and lots of the beginning.
        shown = tuple(pipeline.instruments)
        self.orders = OwnOrders(shown, pipeline.host.places)
        self._tape = Tape(len(pipeline.instruments))
        rules = configuration.monitor.alerts
        self._alerts = Alerts(pipeline.engine, self.notes, lambda: pipeline.time, rules)

    @contextmanager
    def serving(self, live: LiveRun) -> Iterator[tuple[ServerProcess, Publisher]]:
        """Serve meanwhile; `Publisher.publish` is to run in the run's event loop.

        Raises OrderbookError where no port can be had.
        """
        server = ServerProcess(self._configuration.monitor)
        mailbox = Mailbox(server.start())
        # Compiles what measures maps and reads books, for which the run would else wait.
        self._warm_up()
        publisher = self._publisher(live, mailbox, Share(lambda: live.queue.waited))
        live.on_items = self._tape.note
        try:
            with noted_warnings(self.notes):
                yield server, publisher
        finally:
            live.on_items = lambda _: None
            publisher.close()
            self._operations.close()
            mailbox.close()
            server.close()

    def _publisher(self, live: LiveRun, mailbox: Mailbox, share: Share) -> Publisher:
        pipeline, engine = self._pipeline, self._pipeline.engine
        feeds = FeedHealth(pipeline, live, self._runs)
        health = EngineHealth(pipeline, live, is_followed)
        books = BookTopics(pipeline, self._tape, self.orders)
        publisher = Publisher(
            mailbox,
            {
                "book": books.open,
                "view": lambda topic: ViewTopic(topic, engine),
                "status": lambda topic: StatusTopic(topic, pipeline, health, feeds, self._alerts.newest),
                "notes": lambda topic: NotesTopic(topic, self.notes),
                "instruments": lambda topic: InstrumentsTopic(
                    topic, pipeline, self.orders.instruments, self._runs, feeds.labels
                ),
            },
            self._perform,
            share,
        )

        replacing = Replacing(engine)
        publisher.add("replacing", replacing, lambda _: None)
        publisher.add("feeds", feeds, lambda _: None)

        def add_follow(name: str, followed: Followed) -> None:
            publisher.add(("follow", name), followed, lambda error: self._follows.failed(name, error))

        self._follows = Follows(
            engine,
            mailbox,
            replacing,
            add_follow,
            lambda name: publisher.remove(("follow", name)),
            self._configuration.queries,
        )
        self._operations = Operations(
            self._configuration, engine, mailbox, self._alerts, replacing, lambda: live.queue.waited
        )
        return publisher

    def _perform(self, command: Command) -> None:
        match command:
            case Ask():
                self._operations.ask(command)
            case Leave():
                self._operations.leave(command.client)
            case OpenFollow():
                self._follows.open(command.follow, command.client, command.request)
            case CloseFollow():
                self._follows.close(command.follow)

    def _warm_up(self) -> None:
        engine, books = self._pipeline.engine, self._pipeline.books
        self._tape.warm_up()
        # A view that is followed later is then watched without a wait.
        engine.warm_up()
        engine.view_bytes()
        for name in engine.views:
            view: LiveView = engine[name]
            view.row_words()
        if books is not None:
            books.best(0)
