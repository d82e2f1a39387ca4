"""Crashes and faults of the disk at any moment: what the log promised is there, and nothing else is."""

import errno
import re
from collections.abc import Callable
from random import Random

import pytest
from crash_files import SHORT, CrashFiles, PowerLoss
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from log_support import FOLDER, IDENTITY, POLICIES, numbers, opened, record

from orderbook.engine.log.log import Log, LogReader
from orderbook.engine.log.segments import LogError, Position, Record, frame_bytes


def scenario(files: CrashFiles, note: Callable[[str, object], None]) -> None:
    """All that is done to a log, telling what was accepted and promised."""
    for turn in range(2):
        log = opened(files, "never" if turn else "batch")
        note("opened", log)
        for number in range(8):
            batch = [record(100 * turn + 10 * number + k, 30 * k) for k in range(3)]
            note("begin", batch)
            try:
                positions = log.append_all(batch)
            except LogError:
                note("failed", log)
            else:
                note("accepted", list(zip(positions, batch, strict=True)))
            note("durable", log.durable)
            if number == 4:
                log.sync()
                log.truncate_before(positions[0])
        log.close()
        note("durable", log.durable)


class Witness:
    """What a run of `scenario` was told, against which the log found later is judged."""

    def __init__(self) -> None:
        self.accepted: list[tuple[Position, Record]] = []
        self.maybe: list[Record] = []
        self.durable = 0

    def note(self, kind: str, what: object) -> None:
        if kind == "begin":
            self.maybe = [*what]  # type: ignore[misc]
        elif kind == "accepted":
            self.accepted += what  # type: ignore[arg-type]
            self.maybe = []
        elif kind == "durable":
            self.durable = max(self.durable, int(what))  # type: ignore[call-overload]
        elif kind == "failed" and what._failure is None:  # type: ignore[attr-defined]
            self.maybe = []

    def judge(self, log: Log) -> None:
        found = list(log.read())
        accepted = [(p, r) for p, r in self.accepted if p >= log.start]
        promised = [(p, r) for p, r in accepted if p + frame_bytes(r) <= self.durable]
        assert found[: len(promised)] == promised
        assert found[: len(accepted)] == accepted[: len(found)]
        assert [r for _, r in found[len(accepted) :]] == self.maybe[: max(0, len(found) - len(accepted))]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("page", [16, 4096])
@pytest.mark.parametrize("error", [None, errno.EIO, errno.ENOSPC])
def test_every_operation_can_be_the_one_that_fails(error: int | None, page: int) -> None:
    """An error, or (None) the power, at each operation in turn; then a power failure, and all is well."""
    files = CrashFiles(page=page)
    scenario(files, Witness().note)
    for place in range(sum(files.operations.values())):
        files, witness, random = CrashFiles(page=page), Witness(), Random(place)
        if error is None:
            files.cut_power(place)
        else:
            files.fail(None, error, after=place)
        try:
            scenario(files, witness.note)
        except (LogError, PowerLoss) as raised:
            ended = type(raised)
        else:
            ended = LogError
        assert ended is (PowerLoss if error is None else LogError)
        files.crash(random)
        log = opened(files)
        witness.judge(log)
        log.append(record(999))
        assert numbers(log)[-1] == 999
        assert not [name for name in files.names(FOLDER) if name.endswith(".new")]


class Crashes(RuleBasedStateMachine):
    """Anything may happen to a log; a beginning of what was appended is found, with all that was promised."""

    @initialize(policy=st.sampled_from(sorted(POLICIES)), page=st.sampled_from((8, 32, 100, 4096)))
    def begin(self, policy: str, page: int) -> None:
        self.files, self.policy, self.now, self.next = CrashFiles(page=page), policy, 0, 0
        self.witness = Witness()
        self.removable = self.started = 0
        self.log = opened(self.files, policy, lambda: self.now)
        self.follow()

    def follow(self) -> None:
        self.reader = LogReader(FOLDER, IDENTITY, files=self.files)
        self.followed: list[tuple[Position, Record]] = []

    def do(self, seed: int, action: Callable[[], None]) -> None:
        try:
            action()
        except LogError:
            if self.log._failure is not None:
                self.restart(seed, crash=True)
        except PowerLoss:
            self.restart(seed, crash=True)
        else:
            self.witness.note("durable", self.log.durable)

    def restart(self, seed: int, *, crash: bool, power: int | None = None) -> None:
        random = Random(seed)
        if crash:
            self.files.crash(random)
        else:
            self.files.kill()
            if self.log._failure is None:
                self.agrees()
        if power is not None:
            self.files.cut_power(power)
        try:
            self.log = opened(self.files, self.policy, lambda: self.now)
        except PowerLoss:
            self.files.crash(random)
            self.log = opened(self.files, self.policy, lambda: self.now)
        self.files.heal()
        self.witness.judge(self.log)
        assert self.log.durable == self.log.end
        assert self.started <= self.log.start <= self.removable
        self.witness.accepted, self.witness.maybe = list(self.log.read()), []
        self.witness.durable = self.log.durable
        self.follow()

    @rule(sizes=st.lists(st.integers(0, 150), min_size=1, max_size=5), seed=st.integers(0, 2**32))
    def append(self, sizes: list[int], seed: int) -> None:
        batch = [record(self.next + k, size) for k, size in enumerate(sizes)]
        self.next += len(batch)

        def action() -> None:
            self.witness.note("begin", batch)
            try:
                positions = self.log.append_all(batch)
            except LogError:
                self.witness.note("failed", self.log)
                raise
            self.witness.note("accepted", list(zip(positions, batch, strict=True)))
            assert self.policy != "batch" or self.log.durable == self.log.end

        self.do(seed, action)

    @rule(nanoseconds=st.integers(0, 60), seed=st.integers(0, 2**32))
    def wait(self, nanoseconds: int, seed: int) -> None:
        self.now += nanoseconds
        self.do(seed, self.log.sync_if_due)

    @rule(seed=st.integers(0, 2**32))
    def sync(self, seed: int) -> None:
        self.do(seed, self.log.sync)
        assert self.log.durable == self.log.end

    @rule(number=st.integers(0, 1000), seed=st.integers(0, 2**32))
    def truncate(self, number: int, seed: int) -> None:
        if not self.witness.accepted:
            return
        position = self.witness.accepted[number % len(self.witness.accepted)][0]
        self.removable = max(self.removable, position)

        def action() -> None:
            self.log.truncate_before(position)
            self.started = self.log.start

        self.do(seed, action)

    @rule(
        operation=st.sampled_from(("write", "sync", "truncate", "rename", "remove", "sync_folder", "open")),
        error=st.sampled_from((errno.EIO, errno.ENOSPC, SHORT)),
        after=st.integers(0, 3),
        times=st.integers(1, 2),
    )
    def fault(self, operation: str, error: int, after: int, times: int) -> None:
        self.files.fail("write" if error == SHORT else operation, error, after=after, times=times)

    @rule(after=st.integers(0, 8))
    def power(self, after: int) -> None:
        self.files.cut_power(after)

    @rule(seed=st.integers(0, 2**32), crash=st.booleans(), power=st.none() | st.integers(0, 25))
    def stop(self, seed: int, crash: bool, power: int | None) -> None:
        self.files.heal()
        self.restart(seed, crash=crash, power=power)

    @rule(seed=st.integers(0, 2**32))
    def close(self, seed: int) -> None:
        self.do(seed, self.log.close)
        self.files.heal()
        if self.log._lock < 0:
            self.restart(seed, crash=True)

    @invariant()
    def agrees(self) -> None:
        if self.files._power is not None:
            return
        accepted = [(p, r) for p, r in self.witness.accepted if p >= self.log.start]
        assert list(self.log.read()) == accepted
        assert self.witness.durable <= self.log.durable <= self.log.end
        sizes = [self.files.size(path) for path in self.files.files() if path.suffix == ".log"]
        assert self.log.segments <= len(sizes)

    @rule()
    def read_on(self) -> None:
        if self.files._power is not None:
            return
        try:
            self.followed += self.reader.read()
        except LogError as error:
            if not re.search("removed from it|cut off|before its start", str(error)):
                raise
            self.follow()
            self.followed += self.reader.read()
        known = dict(self.witness.accepted)
        if self.witness.accepted:
            assert self.reader.position == self.log.end or self.log._tail is None
        for position, found in self.followed:
            assert known.get(position, found) == found
        first = self.followed[0][0] if self.followed else 0
        assert [p for p, _ in self.followed if p in known] == [p for p in known if p >= first]


TestCrashes = Crashes.TestCase
TestCrashes.settings = settings(stateful_step_count=40)
