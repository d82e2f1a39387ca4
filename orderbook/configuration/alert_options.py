"""The tables of a configuration for alerts: `[alerts.NAME]`, `[channels.NAME]`, and `[alerting]`."""

import os
import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from orderbook.configuration.options import unset
from orderbook.core.errors import UserError
from orderbook.core.options import Duration, File, Filled, Section, Text, is_loopback_host, matching, read_by
from orderbook.core.units import delay, nanoseconds

Delay = Annotated[str, read_by(delay, 'a time such as "5s", or "0s"')]
Name = Annotated[str, matching(r"[A-Za-z_][\w-]*", "a name of letters, digits, _ and -")]
Channels = Annotated[tuple[Text, ...], Field(strict=False)]
_RATE = re.compile(r"\s*(\d{1,6})\s*/\s*(\S+)\s*")


def _set(value: str) -> str:
    if not os.environ.get(value[1:]):
        raise unset(value)
    return value


# What a secret is: never in a file.
Secret = Annotated[
    str,
    matching(r"\$[A-Za-z_]\w*", "$NAME of a variable of the environment, where secrets are"),
    AfterValidator(_set),
]


def rate_of(text: str) -> tuple[int, int]:
    """How many in how many ns `10/1m` says. Raises UserError."""
    found = _RATE.fullmatch(text)
    if found is None or not int(found[1]):
        raise UserError(f'give a number and a time, as in "10/1m", instead of {text!r}')
    return int(found[1]), nanoseconds(found[2])


class EscalationStep(Section):
    """Other channels that are told where nobody has acknowledged an alert `after` it was raised."""

    after: Duration
    channels: Annotated[Channels, Filled]

    @property
    def nanoseconds(self) -> int:
        """`after` in ns."""
        return nanoseconds(self.after)


class AlertOptions(Section):
    """An alert of every row of `view` of which `when` holds (None: every row).

    It is raised once `when` has held `for` so long, and cleared where `clear` holds (None: where `when` does
    not) or the row goes. `channels` are told of at most `rate_limit` alerts; again every `repeat` ("0s":
    never) and by the steps of `escalate`, until it is acknowledged or cleared. `message` names columns in
    braces.
    """

    model_config = ConfigDict(validate_by_alias=True, validate_by_name=True)

    view: Text
    when: Text | None = None
    clear: Text | None = None
    held_for: Delay = Field("0s", alias="for")
    severity: Literal["info", "warning", "critical"] = "warning"
    channels: Channels = ()
    message: Text | None = None
    rate_limit: Annotated[str, read_by(rate_of, 'a number and a time, such as "10/1m"')] = "10/1m"
    repeat: Delay = "0s"
    escalate: Annotated[tuple[EscalationStep, ...], Field(strict=False)] = ()

    @field_validator("escalate")
    @classmethod
    def _later_and_later(cls, steps: tuple[EscalationStep, ...]) -> tuple[EscalationStep, ...]:
        after = [step.nanoseconds for step in steps]
        if after != sorted(set(after)):
            raise PydanticCustomError("escalate", "steps each of which is after the one before")
        return steps

    @model_validator(mode="after")
    def _clears_what_it_raises(self) -> Self:
        if self.clear is not None and self.when is None:
            raise PydanticCustomError("clear", "a condition `when` where there is one to clear")
        return self

    @property
    def named_channels(self) -> tuple[str, ...]:
        """All channels that it names."""
        return tuple(
            dict.fromkeys([*self.channels, *(one for step in self.escalate for one in step.channels)])
        )


_NO_SECRET = (
    "the `secret` by which the webhook is signed, a variable of the environment, such as $DESK_SECRET; "
    "`export DESK_SECRET=$(openssl rand -base64 24)` makes one"
)


class ChannelOptions(Section):
    """Where alerts are sent: a webhook, signed with `secret`, or a service by its address for apprise.

    `webhook` is an https address (http for this machine), or `$NAME` of the environment. `resolved`: whether
    it is told that an alert is over. An attempt may take `timeout`.
    """

    webhook: Annotated[str | None, Field(repr=False)] = None
    secret: Secret | None = None
    service: Secret | None = None
    resolved: bool = True
    timeout: Duration = "10s"

    @field_validator("webhook")
    @classmethod
    def _address(cls, webhook: str | None) -> str | None:
        if webhook is None or webhook.startswith("$"):
            return None if webhook is None else _set(webhook)
        found = re.fullmatch(r"(https?)://(\[[0-9a-fA-F:]+\]|[^/:@\s]+)(:\d+)?(/\S*)?", webhook)
        if found is None or (found[1] == "http" and not is_loopback_host(found[2].strip("[]"))):
            raise PydanticCustomError(
                "webhook", "an https address without user or password (http for this machine alone), or $NAME"
            )
        return webhook

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.webhook is None) is (self.service is None):
            raise PydanticCustomError("channel", "one of `webhook` and `service`")
        if self.webhook is not None and self.secret is None:
            raise PydanticCustomError("channel", _NO_SECRET)
        if self.service is not None and self.secret is not None:
            raise PydanticCustomError("channel", "no `secret`, which is for webhooks")
        return self

    @property
    def seconds(self) -> float:
        """`timeout`."""
        return nanoseconds(self.timeout) / 1e9


class AlertingOptions(Section):
    """What is kept of alerts: in `folder` (None: `alerts` in the log's, or nowhere without a log).

    The last `keep` alerts that are over stay. What could not be delivered for `give_up_after` is given up.
    """

    folder: File | None = None
    keep: Annotated[int, Field(ge=1)] = 10_000
    give_up_after: Duration = "24h"
