"""When a node executes, and what it sends: options of one machine (DBToaster, CIDR 2011, section 5.1)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mode:
    """Which waiting is traded for which corrections.

    barriers: execute nothing before every sender has promised that nothing earlier follows.
    tick: ns by which a stage waits for each stage before it; 0: not at all.
    notices: switches tell all nodes of impending writes, and what comes after a write that is known waits
        for it; the rest passes it.
    buffer: how many calls of a node a correction waits for others to join it.
    suppress: send only what changed; without it every execution sends to all its receivers, and a correction
        says all again.
    """

    barriers: bool = False
    tick: int = 0
    notices: bool = False
    buffer: int = 0
    suppress: bool = True


SERIAL = Mode(barriers=True)
PIPELINED = Mode(tick=1)
BYPASS = Mode(notices=True)
SPECULATIVE = Mode()
BUFFERED = Mode(buffer=4)
UNSUPPRESSED = Mode(suppress=False)

MODES = {
    "serial": SERIAL,
    "pipelined": PIPELINED,
    "bypass": BYPASS,
    "speculative": SPECULATIVE,
    "buffered": BUFFERED,
    "unsuppressed": UNSUPPRESSED,
}
