"""Keys of exchanges: from the environment, on the wire as documented, and nowhere else."""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import zstandard
from rest_server import rest
from samples import PATIENCE
from websockets.asyncio.server import ServerConnection, serve

from orderbook.core.errors import ConfigurationError, SourceError
from orderbook.feeds.exchanges.coinbase_full import CoinbaseFull
from orderbook.feeds.exchanges.credentials import CoinbaseLogin, KrakenLogin
from orderbook.feeds.exchanges.exchange import ExchangeOptions
from orderbook.feeds.live.http_requests import http_get
from orderbook.feeds.live.live_feed import LiveFeed
from orderbook.feeds.live.simulated_exchange import Simulated
from orderbook.feeds.recording.capture_replay import CaptureSource
from orderbook.feeds.recording.raw_recorder import RawRecorder
from orderbook.market.instruments import Instrument, Instruments

KEY, PASSPHRASE, SECRET = "the-key-7f3a", "the-passphrase-9c1d", b"the secret of this test, long enough"
TEXT = base64.b64encode(SECRET).decode()
NOW = 1_700_000_000_123_456_789


@pytest.fixture
def coinbase_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(CoinbaseLogin.VARIABLES, (KEY, TEXT, PASSPHRASE), strict=True):
        monkeypatch.setenv(name, value)


def signature(text: str) -> str:
    return base64.b64encode(hmac.new(SECRET, text.encode(), hashlib.sha256).digest()).decode()


def test_signatures_of_coinbase(coinbase_keys: None) -> None:
    login = CoinbaseLogin.from_environment("coinbase")
    assert login is not None
    sent = json.loads(login.signed('{"type":"subscribe","channels":["full"]}', NOW))
    assert sent == {
        "type": "subscribe", "channels": ["full"], "key": KEY, "passphrase": PASSPHRASE,
        "timestamp": "1700000000", "signature": signature("1700000000GET/users/self/verify"),
    }  # fmt: skip
    assert login.signed('{"type":"ping"}', NOW) == '{"type":"ping"}'
    assert login.headers("https://x/products/BTC-USD/book?level=3", NOW) == {
        "CB-ACCESS-KEY": KEY, "CB-ACCESS-TIMESTAMP": "1700000000", "CB-ACCESS-PASSPHRASE": PASSPHRASE,
        "CB-ACCESS-SIGN": signature("1700000000GET/products/BTC-USD/book?level=3"),
    }  # fmt: skip
    assert not any(one in repr(login) for one in (KEY, PASSPHRASE, TEXT))


def test_the_documented_signature_of_kraken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kraken documents a key's signature for AddOrder; that of a token is made alike."""
    secret = "kQH5HW/8p1uGOVjbgWA7FunAmGO8lsSUXNsu3eow76sz84Q18fWxnyRzBHCd3pd5nE9qa99HAZtuZuj6F1huXg=="
    monkeypatch.setenv("KRAKEN_API_KEY", KEY)
    monkeypatch.setenv("KRAKEN_API_SECRET", secret)
    login = KrakenLogin.from_environment("kraken", "https://api.kraken.com")
    asked = login.before(NOW)
    nonce = "1700000000123"
    assert (asked.url, asked.body) == (f"https://api.kraken.com{KrakenLogin.PATH}", f"nonce={nonce}".encode())

    def by_hand(path: str, nonce: str, body: str) -> str:
        digest = hashlib.sha256((nonce + body).encode()).digest()
        made = hmac.new(base64.b64decode(secret), path.encode() + digest, hashlib.sha512)
        return base64.b64encode(made.digest()).decode()

    order = "nonce=1616492376594&ordertype=limit&pair=XBTUSD&price=37500&type=buy&volume=1.25"
    assert by_hand("/0/private/AddOrder", "1616492376594", order) == (
        "4/dpxb3iT4tp/ZCVEwSnEsLxx0bqyhLpdfOpc6fn7OR8+UClSV5n9E6aSS8MPtnRfp32bAb0nmbRn6H8ndwLUQ=="
    )
    assert asked.headers["API-Sign"] == by_hand(KrakenLogin.PATH, nonce, asked.body.decode())
    assert asked.headers["API-Key"] == KEY
    assert not any(one in repr(login) + repr(asked) for one in (KEY, secret, asked.headers["API-Sign"]))
    with pytest.raises(SourceError, match="no token for a connection: EAPI:Invalid key"):
        login.told(b'{"error":["EAPI:Invalid key"]}')
    with pytest.raises(SourceError, match="cannot be read"):
        login.told(b"<html>")
    login.told(b'{"error":[],"result":{"token":"T0K","expires":900}}')
    request = '{"method":"subscribe","params":{"channel":"%s"}}'
    assert json.loads(login.signed(request % "level3", NOW))["params"]["token"] == "T0K"
    assert login.signed(request % "trade", NOW) == request % "trade"


def test_keys_that_are_missing_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*CoinbaseLogin.VARIABLES, *KrakenLogin.VARIABLES):
        monkeypatch.delenv(name, raising=False)
    assert CoinbaseFull.login(ExchangeOptions()) is None
    with pytest.raises(ConfigurationError, match="kraken: set KRAKEN_API_KEY, KRAKEN_API_SECRET in the"):
        KrakenLogin.from_environment("kraken", "")
    monkeypatch.setenv("COINBASE_API_KEY", KEY)
    with pytest.raises(ConfigurationError, match="set COINBASE_API_SECRET, COINBASE_API_PASSPHRASE in"):
        CoinbaseFull.login(ExchangeOptions())
    monkeypatch.setenv("COINBASE_API_SECRET", "not base64!")
    monkeypatch.setenv("COINBASE_API_PASSPHRASE", PASSPHRASE)
    with pytest.raises(ConfigurationError) as raised:
        CoinbaseFull.login(ExchangeOptions())
    assert "COINBASE_API_SECRET is no secret in base64" in str(raised.value)
    assert "not base64!" not in str(raised.value)
    assert Simulated.login(ExchangeOptions()) is None


def test_signed_requests_go_nowhere_else() -> None:
    headers = {"CB-ACCESS-KEY": KEY}
    with rest({"/here": (200, b"ok", {})}) as (other, asked):
        moved = {"/book": (302, b"", {"Location": f"{other}/here"}), "/plain": (200, b"ok", {})}
        with rest(moved) as (address, first):
            with pytest.raises(SourceError, match="a redirection of a signed request"):
                asyncio.run(http_get(f"{address}/book", headers=headers))
            assert asyncio.run(http_get(f"{address}/book")) == b"ok"
            assert asyncio.run(http_get(f"{address}/plain", headers=headers)) == b"ok"
            assert (
                first[-1][2]["Cb-Access-Key" if "Cb-Access-Key" in first[-1][2] else "CB-ACCESS-KEY"] == KEY
            )
    assert len(asked) == 1 and KEY not in str(asked)
    with pytest.raises(SourceError, match="over https alone"):
        asyncio.run(http_get("http://example.invalid/book", headers=headers))


def test_a_signed_feed_is_recorded_and_logged_without_its_keys(
    coinbase_keys: None, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "websockets")
    product, order = "BTC-USD", "d50ec984-77a8-460a-b958-66f114b0de9b"
    moment = "2026-08-09T21:05:48.210883Z"
    book = {"sequence": 49, "time": moment, "bids": [["100.00", "1", order]], "asks": []}
    path = f"/products/{product}/book?level=3"
    received: list[Any] = []

    async def exchange(connection: ServerConnection) -> None:
        received.append(json.loads(await connection.recv()))
        told = [{"name": "full", "product_ids": [product]}]
        await connection.send(json.dumps({"type": "subscriptions", "channels": told}))
        for number in range(50, 10**6):
            message = {"type": "received", "product_id": product, "sequence": number, "side": "buy",
                       "time": moment, "order_id": order}  # fmt: skip
            await connection.send(json.dumps(message))
            await asyncio.sleep(0.02)

    recorder = RawRecorder(tmp_path, "coinbase_full", "coinbase_full")
    listed = Instruments([Instrument.listed("coinbase", product, Decimal("0.01"), Decimal("1e-8"))])

    async def play(address: str) -> None:
        async with serve(exchange, "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            options = ExchangeOptions(f"ws://127.0.0.1:{port}", address)
            async with LiveFeed(CoinbaseFull, listed, [0], options, recorder.connection) as feed:
                async with asyncio.timeout(PATIENCE):
                    async for _ in feed:
                        if feed.shards[0].session.synchronised_products:
                            break

    with rest({path: (200, json.dumps(book).encode(), {})}) as (address, asked):
        asyncio.run(play(address))
    recorder.close()
    sent = received[0]
    assert (sent["key"], sent["passphrase"]) == (KEY, PASSPHRASE)
    assert sent["signature"] == signature(f"{sent['timestamp']}GET/users/self/verify")
    headers = {name.upper(): value for name, value in asked[0][2].items()}
    assert headers["CB-ACCESS-SIGN"] == signature(f"{headers['CB-ACCESS-TIMESTAMP']}GET{path}")
    secrets = (KEY, PASSPHRASE, TEXT, sent["signature"], headers["CB-ACCESS-SIGN"])
    files = [file.read_bytes() for file in tmp_path.glob("*.zst")]
    written = b"".join(zstandard.ZstdDecompressor().stream_reader(file).read() for file in files)
    assert b'"type":"subscribe"' in written.replace(b"\\", b"")
    assert not any(one.encode() in written for one in secrets)
    assert not any(one in caplog.text for one in secrets)
    (found,) = [source.instruments for source in [CaptureSource([tmp_path])]]
    assert str(found[0]) == "coinbase:BTC-USD"


def test_keys_are_not_sent_over_plain_websockets(coinbase_keys: None) -> None:
    listed = Instruments([Instrument.listed("coinbase", "BTC-USD", Decimal("0.01"), Decimal("1e-8"))])

    async def play() -> str:
        options = ExchangeOptions("ws://example.invalid", "http://127.0.0.1:1")
        async with LiveFeed(CoinbaseFull, listed, [0], options) as feed:
            task = asyncio.ensure_future(anext(feed))
            problems = feed.shards[0].session.statistics.problems
            async with asyncio.timeout(PATIENCE):
                while not problems.examples.get("disconnected"):
                    await asyncio.sleep(0.02)
            task.cancel()
            return problems.examples["disconnected"][0]

    assert "keys are sent over wss alone" in asyncio.run(play())
