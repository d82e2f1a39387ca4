"""What proves to an exchange who asks: keys from the environment alone, which nothing records or logs.

Sources: Coinbase Exchange documentation, "Authentication" and "WebSocket Overview" (signed subscriptions);
Kraken API documentation, "Authentication" and "Get WebSockets Token".

Sessions and their recordings know messages without signatures. A `Login` adds them when a message is sent,
and the headers of requests; it does not show its secrets.
"""

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

import msgspec

from orderbook.core.errors import ConfigurationError, SourceError

_SECOND, _MILLISECOND = 10**9, 10**6


@dataclass(frozen=True, slots=True)
class Asked:
    """A POST before a connection."""

    url: str
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)


class Login:
    """Signs what the connections of a feed send; times are ns since 1970 UTC."""

    def before(self, time: int) -> Asked | None:
        """What to ask before a connection is opened."""
        return None

    def told(self, body: bytes) -> None:
        """Take the answer. Raises SourceError for a refusal."""

    def signed(self, text: str, time: int) -> str:
        """A message of a session as it is sent."""
        return text

    def headers(self, url: str, time: int) -> Mapping[str, str]:
        """The headers of a GET."""
        return {}


def keys(venue: str, names: Sequence[str], *, needed: bool) -> list[str] | None:
    """The values of variables of the environment; None where none is set and they are not needed.

    Raises ConfigurationError where one is missing.
    """
    values = [os.environ.get(name, "").strip() for name in names]
    if not any(values) and not needed:
        return None
    missing = [name for name, value in zip(names, values, strict=True) if not value]
    if missing:
        raise ConfigurationError(f"{venue}: set {', '.join(missing)} in the environment")
    return values


def secret_of(venue: str, name: str, text: str) -> bytes:
    """The bytes of a secret in base64. Raises ConfigurationError, which does not show it."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigurationError(f"{venue}: {name} is no secret in base64; copy it again") from None


class CoinbaseLogin(Login):
    """Signed subscriptions and requests of Coinbase Exchange."""

    VARIABLES = ("COINBASE_API_KEY", "COINBASE_API_SECRET", "COINBASE_API_PASSPHRASE")

    def __init__(self, key: str, secret: bytes, passphrase: str) -> None:
        self._key, self._secret, self._passphrase = key, secret, passphrase

    @classmethod
    def from_environment(cls, venue: str) -> "CoinbaseLogin | None":
        """By its variables, None where they are not set. Raises ConfigurationError."""
        found = keys(venue, cls.VARIABLES, needed=False)
        if found is None:
            return None
        key, secret, passphrase = found
        return cls(key, secret_of(venue, cls.VARIABLES[1], secret), passphrase)

    def signed(self, text: str, time: int) -> str:
        message = msgspec.json.decode(text)
        if message.get("type") != "subscribe":
            return text
        stamp = str(time // _SECOND)
        own = {"key": self._key, "passphrase": self._passphrase, "timestamp": stamp}
        signature = self._signature(f"{stamp}GET/users/self/verify")
        return msgspec.json.encode(message | own | {"signature": signature}).decode()

    def headers(self, url: str, time: int) -> Mapping[str, str]:
        parts, stamp = urlsplit(url), str(time // _SECOND)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        return {
            "CB-ACCESS-KEY": self._key,
            "CB-ACCESS-SIGN": self._signature(f"{stamp}GET{path}"),
            "CB-ACCESS-TIMESTAMP": stamp,
            "CB-ACCESS-PASSPHRASE": self._passphrase,
        }

    def _signature(self, text: str) -> str:
        return base64.b64encode(hmac.digest(self._secret, text.encode(), "sha256")).decode()


class _Token(msgspec.Struct, frozen=True):
    token: str = ""


class _TokenAnswer(msgspec.Struct, frozen=True):
    error: list[str] = []
    result: _Token = _Token()


class BinanceFuturesKeys:
    """Signs requests to Binance USD-M futures; see Binance documentation, "SIGNED Endpoint Security"."""

    VARIABLES = ("BINANCE_FUTURES_API_KEY", "BINANCE_FUTURES_API_SECRET")

    def __init__(self, key: str, secret: str) -> None:
        self._key, self._secret = key, secret

    @classmethod
    def from_environment(cls, venue: str) -> "BinanceFuturesKeys":
        """By its variables. Raises ConfigurationError where one is not set, or is none."""
        found = keys(venue, cls.VARIABLES, needed=True)
        assert found is not None
        for name, value in zip(cls.VARIABLES, found, strict=True):
            if not (value.isascii() and value.isprintable() and " " not in value):
                raise ConfigurationError(f"{venue}: {name} is no key; copy it again")
        return cls(*found)

    @property
    def headers(self) -> Mapping[str, str]:
        """Of every request."""
        return {"X-MBX-APIKEY": self._key}

    def query(self, params: Mapping[str, str], signed: bool) -> str:
        """The query of a request."""
        text = urlencode(params)
        if not signed:
            return text
        return f"{text}&signature={hmac.digest(self._secret.encode(), text.encode(), 'sha256').hex()}"

    def hidden(self, text: str) -> str:
        """A text of somebody else without what is secret."""
        return text.replace(self._key, "…").replace(self._secret, "…")


class KrakenLogin(Login):
    """A token for each connection, which its subscriptions carry."""

    VARIABLES = ("KRAKEN_API_KEY", "KRAKEN_API_SECRET")
    PATH = "/0/private/GetWebSocketsToken"

    def __init__(self, key: str, secret: bytes, rest_url: str) -> None:
        self._key, self._secret, self._rest_url = key, secret, rest_url
        self._token = ""

    @classmethod
    def from_environment(cls, venue: str, rest_url: str) -> "KrakenLogin":
        """By its variables. Raises ConfigurationError where they are not set."""
        found = keys(venue, cls.VARIABLES, needed=True)
        assert found is not None
        return cls(found[0], secret_of(venue, cls.VARIABLES[1], found[1]), rest_url)

    def before(self, time: int) -> Asked:
        nonce = str(time // _MILLISECOND)
        body = f"nonce={nonce}".encode()
        message = self.PATH.encode() + hashlib.sha256(nonce.encode() + body).digest()
        signature = base64.b64encode(hmac.digest(self._secret, message, "sha512")).decode()
        headers = {
            "API-Key": self._key,
            "API-Sign": signature,
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return Asked(f"{self._rest_url}{self.PATH}", body, headers)

    def told(self, body: bytes) -> None:
        try:
            answer = msgspec.json.decode(body, type=_TokenAnswer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise SourceError("kraken: the answer with the token for a connection cannot be read") from None
        if answer.error or not answer.result.token:
            raise SourceError(f"kraken: no token for a connection: {', '.join(answer.error) or 'none given'}")
        self._token = answer.result.token

    def signed(self, text: str, time: int) -> str:
        message = msgspec.json.decode(text)
        parameters = message.get("params")
        if not isinstance(parameters, dict) or parameters.get("channel") != "level3":
            return text
        return msgspec.json.encode(message | {"params": parameters | {"token": self._token}}).decode()
