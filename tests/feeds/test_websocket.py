"""The websocket client hands over what the library's own would, however the bytes are cut."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.client import ClientProtocol
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, ConnectionClosedError
from websockets.frames import Close, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from orderbook.feeds.live.frame_connection import FrameConnection

LARGEST = 70_000
KINDS = ["text"] * 6 + ["binary", "parts", "ping", "pong", "masked", "odd", "close"]
TEXT, BINARY, CONT = Opcode.TEXT, Opcode.BINARY, Opcode.CONT
SIZES = st.sampled_from([0, 1, 125, 126, 127, 300, 65_535, 65_536, LARGEST, LARGEST + 1])


# Messages, the code of the close that was sent, and how the connection is then.
Outcome = tuple[list[bytes], int | None, State]


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


def frame(opcode: Opcode, data: bytes = b"", fin: bool = True, mask: bool = False) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=mask, extensions=[])


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Bytes of frames, right and wrong, in order."""
    out = []
    for number in range(draw(st.integers(1, 12))):
        data = bytes([65 + number]) * draw(SIZES)
        match draw(st.sampled_from(KINDS)):
            case "text":
                out.append(frame(TEXT, data))
            case "binary":
                out.append(frame(BINARY, data))
            case "parts":
                out += [frame(TEXT, data, fin=False), frame(Opcode.PING, b"between")]
                out.append(frame(draw(st.sampled_from([CONT, CONT, CONT, TEXT])), b"end"))
            case "ping":
                out.append(frame(Opcode.PING, data[:125]))
            case "pong":
                out.append(frame(Opcode.PONG, data[:125]))
            case "masked":
                out.append(frame(TEXT, data, mask=True))
            case "odd":
                out.append(draw(st.sampled_from([b"\xc1\x01a", b"\x83\x01a", b"\x80\x01a", b"\x81\xff"])))
            case "close":
                out.append(frame(Opcode.CLOSE, Close(1001, "bye").serialize()))
    return b"".join(out)


def reference(stream: bytes) -> Outcome:
    """Messages, and the close code sent, by the library's protocol object alone."""
    protocol = ClientProtocol(parse_uri("ws://localhost"), max_size=LARGEST)
    protocol.state = State.OPEN
    protocol.parser = super(ClientProtocol, protocol).parse()
    next(protocol.parser)
    protocol.receive_data(stream)
    messages, parts = list[bytes](), list[bytes]()
    for event in protocol.events_received():
        assert isinstance(event, Frame)
        if event.opcode in (TEXT, BINARY, CONT):
            parts.append(bytes(event.data))
            if event.fin:
                messages.append(b"".join(parts))
                parts.clear()
    sent = protocol.close_sent
    return messages, None if sent is None else sent.code, protocol.state


async def taken(stream: bytes, cuts: Sequence[int]) -> Outcome:
    protocol = ClientProtocol(parse_uri("ws://localhost"), max_size=LARGEST)
    connection = FrameConnection(protocol)
    connection.connection_made(Transport())
    protocol.state = State.OPEN
    protocol.parser = super(ClientProtocol, protocol).parse()
    next(protocol.parser)
    connection.response, connection._head = Response(101, "", Headers()), None
    messages: list[bytes] = []
    connection.deliver(lambda some, _: messages.extend(some))
    places = sorted({0, *(cut % (len(stream) + 1) for cut in cuts), len(stream)})
    for start, end in pairwise(places):
        connection.data_received(stream[start:end])
    sent = protocol.close_sent
    return messages, None if sent is None else sent.code, protocol.state


@given(streams(), st.lists(st.integers(0, 2**20), max_size=12))
def test_messages_are_those_of_the_library(stream: bytes, cuts: Sequence[int]) -> None:
    assert asyncio.run(taken(stream, cuts)) == reference(stream)


def test_frames_that_break_the_rules() -> None:
    part = frame(TEXT, b"a", fin=False)
    for wrong in (part + frame(TEXT, b"b"), frame(CONT, b"b"), part + part, frame(TEXT, b"m", mask=True)):
        stream = frame(TEXT, b"before") + wrong + frame(TEXT, b"after")
        messages, code, _ = asyncio.run(taken(stream, [3]))
        assert (messages, code) == ([b"before"], 1002) == reference(stream)[:2]


@examples(30)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=8), st.integers(1, 7))
def test_every_cut_of_short_frames(sizes: list[int], step: int) -> None:
    stream = b"".join(frame(TEXT, bytes([97 + n]) * size) for n, size in enumerate(sizes))
    assert asyncio.run(taken(stream, range(0, len(stream), step))) == reference(stream)


async def end_of(connection: FrameConnection) -> ConnectionClosed:
    while True:
        try:
            await connection.delivered()
        except ConnectionClosed as error:
            return error


def test_over_a_socket() -> None:
    """Messages that come with the handshake, pings, a big message, and why the connection ended."""

    async def handler(connection: ServerConnection) -> None:
        for number in range(100):
            await connection.send(str(number))
        await (await connection.ping())
        await connection.send("x" * 1_000_000)
        assert await connection.recv() == "heard"
        await connection.close(4001, "enough")

    async def main() -> None:
        messages: list[bytes] = []
        async with serve(handler, "127.0.0.1", 0, compression=None) as server:
            url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            options: dict[str, Any] = {
                "compression": None,
                "proxy": None,
                "create_connection": FrameConnection,
            }
            async with connect(url, max_size=2**24, **options) as connection:
                assert isinstance(connection, FrameConnection)
                connection.deliver(lambda some, _: messages.extend(some))
                while len(messages) < 101:
                    await connection.delivered()
                await connection.send("heard")
                ended = await end_of(connection)
                assert isinstance(ended, ConnectionClosedError)
                assert ended.rcvd is not None and ended.rcvd.code == 4001
            assert messages == [*(str(n).encode() for n in range(100)), b"x" * 1_000_000]
            async with connect(url, max_size=1000, **options) as connection:
                assert isinstance(connection, FrameConnection)
                connection.deliver(lambda *_: None)
                ended = await end_of(connection)
                assert ended.sent is not None and ended.sent.code == 1009

    asyncio.run(main())
