"""The table `monitor` of a configuration: where the page and the websocket are served, and its alerts."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from orderbook.operation_options import Token, check_token
from orderbook.option_types import Section, Text, matching

_ORIGIN = r"(https?://[A-Za-z0-9.-]+(:\d{1,5})?)?"


class AlertRule(Section):
    """Alerts when a condition over a view's columns comes to hold of a row."""

    name: Text
    view: Text
    when: Text


class MonitorOptions(Section):
    """The monitor of `orderbook run`. A `host` that is not loopback, and an `origin`, need a `token`.

    `port`: where it is taken, the next free one. `token`: what clients must give to change anything; without
    one nobody can. `origin`: where a proxy serves the page, "" for none.
    """

    enabled: bool = True
    port: Annotated[int, Field(ge=0, le=65535)] = 8799
    host: Text = "127.0.0.1"
    origin: Annotated[str, matching(_ORIGIN, 'an origin such as "https://desk.example"')] = ""
    token: Token = ""
    alerts: Annotated[tuple[AlertRule, ...], Field(strict=False)] = ()

    @field_validator("token")
    @classmethod
    def _needed(cls, token: str, info: ValidationInfo) -> str:
        if info.data.get("enabled"):
            check_token(token, "monitor", info.data.get("host", ""))
            if info.data.get("origin") and not token:
                raise PydanticCustomError("token", "a token, because monitor.origin lets others in")
        return token
