"""Who may use a server of the run, the monitor or the metrics: checks of Host, Origin and token."""

import hmac
import ipaddress
from urllib.parse import urlsplit

from orderbook.core.options import is_loopback_host

_PORTS = {"http": 80, "https": 443}


def _authority(text: str) -> tuple[str, int | None] | None:
    """Host and port of `host[:port]`; None for what is neither."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or parts.path or parts.query or parts.fragment or parts.username is not None:
        return None
    return host, port


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Access:
    """Lets in requests that name the server as it is served, and pages that it has itself given out.

    A page of another site can make a browser send anything here, also under a name of its own that resolves
    to this machine. So Host must be an address, `localhost` or a configured name, and an Origin, which
    browsers send with a websocket, the same as Host, or the configured one. Programs send none and get in.

    host: that listens. origin: where a proxy serves the page to others, "" for none.
    """

    def __init__(self, host: str, token: str, origin: str = "") -> None:
        self._origin = origin.lower()
        proxied = _authority(self._origin.partition("://")[2])
        self._names = {"localhost", host.lower(), *([] if proxied is None else proxied[:1])}
        # What a proxy hands on comes from this machine, whoever sent it.
        self.local = is_loopback_host(host) and not origin
        self._token = token
        self.changes_allowed = bool(token)

    def refusal(self, host: str | None, origin: str | None) -> str | None:
        """Why a request with these headers is refused; None where it is not."""
        named = None if host is None else _authority(host)
        if named is None or not (named[0] in self._names or _is_address(named[0])):
            return f"no server of this name: {host}"
        if origin is None or (self._origin and origin.lower() == self._origin):
            return None
        scheme, _, rest = origin.partition("://")
        page, usual = _authority(rest), _PORTS.get(scheme)
        if page is None or usual is None or (page[0], page[1] or usual) != (named[0], named[1] or usual):
            return f"not for pages of {origin}"
        return None

    def may_read(self, authorization: str | None, query_token: str | None) -> bool:
        """Whether a client gets anything: on loopback always, elsewhere with the token.

        The token stands in the header `Authorization: Bearer TOKEN`, or, as browsers cannot set that for a
        websocket, in the query, `?token=TOKEN`.
        """
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            given = query_token or ""
        return self.local or self.token_is(given.strip())

    def token_is(self, given: str) -> bool:
        """Whether this is the token; compares in a time that tells nothing of it. False without one."""
        return hmac.compare_digest(given.encode(), self._token.encode()) and self.changes_allowed
