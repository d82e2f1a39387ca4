"""The tables of a configuration that say how a run is watched: its metrics and its logs."""

import ipaddress
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from orderbook.option_types import File, Section, Text, matching

Token = Annotated[
    str, matching(r"[!-~]*", "visible ASCII characters without spaces"), Field(repr=False)
]


class MetricsOptions(Section):
    """The metrics endpoint: `port` 0 is none. A `host` that is not loopback needs a `token`."""

    port: Annotated[int, Field(ge=0, le=65535)] = 0
    host: Text = "127.0.0.1"
    token: Token = ""

    @field_validator("token")
    @classmethod
    def _needed(cls, token: str, info: ValidationInfo) -> str:
        if info.data.get("port"):
            check_token(token, "metrics", info.data.get("host", ""))
        return token


class LoggingOptions(Section):
    """What is logged, from `level` on, and where: to `file` (None: standard error)."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    file: File | None = None


def check_token(token: str, section: str, host: str) -> None:
    """Raises where others can reach what a section of the configuration serves, and there is no token."""
    if not token and not is_loopback_host(host):
        raise PydanticCustomError("token", f"a token, because {section}.host is not loopback")


def is_loopback_host(host: str) -> bool:
    """Whether a server on this host can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
