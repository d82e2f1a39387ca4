"""The table `monitor` of a configuration: where the page and the websocket are served, and its alerts."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from orderbook.operation_options import TOKEN, is_loopback_host
from orderbook.option_types import Section, Text, matching


class AlertRule(Section):
    """Alerts when a condition over a view's columns comes to hold of a row."""

    name: Text
    view: Text
    when: Text


class MonitorOptions(Section):
    """The monitor of `orderbook run`. A `host` that is not loopback needs a `token`.

    `port`: where it is taken, the next free one. `token`: what clients must give to change anything; without
    one nobody can.
    """

    enabled: bool = True
    port: Annotated[int, Field(ge=0, le=65535)] = 8799
    host: Text = "127.0.0.1"
    token: Annotated[str, matching(TOKEN, "visible ASCII characters without spaces"), Field(repr=False)] = ""
    alerts: Annotated[tuple[AlertRule, ...], Field(strict=False)] = ()

    @field_validator("token")
    @classmethod
    def _needed(cls, token: str, info: ValidationInfo) -> str:
        if not token and info.data.get("enabled") and not is_loopback_host(info.data.get("host", "")):
            raise PydanticCustomError("token", "a token, because monitor.host is not loopback")
        return token
