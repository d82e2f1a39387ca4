"""The table `monitor` of a configuration: where the page and the websocket are served, and its alerts."""

from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from orderbook.durations import nanoseconds
from orderbook.operation_options import Token, check_token
from orderbook.option_types import Duration, Section, Size, Text, matching
from orderbook.sizes import size_of

_ORIGIN = r"(https?://[A-Za-z0-9.-]+(:\d{1,5})?)?"


# Less, and a process has no room beside what it needs for itself.
_LEAST_MEMORY = 384 * 10**6


def _memory(text: str) -> str:
    if size_of(text) < _LEAST_MEMORY:
        raise PydanticCustomError("memory", 'a size of at least "384 MB"')
    return text


_MEMORY = Annotated[Size, AfterValidator(_memory)]


class QueryOptions(Section):
    """What SQL of clients may take, ad hoc and for a continuous query or a view; beyond that it is refused.

    `time_limit` and `memory` are those of a query and of each of the two processes that run them, `rows` and
    `answer` the size of an answer. `compile_time_limit` and `compile_memory` are those of a process that
    binds and compiles; `views` is how many continuous queries of SQL there are.
    """

    time_limit: Duration = "10s"
    memory: _MEMORY = "512 MB"
    rows: Annotated[int, Field(ge=1)] = 1_000_000
    answer: Size = "2 MB"
    compile_time_limit: Duration = "60s"
    compile_memory: _MEMORY = "1 GB"
    views: Annotated[int, Field(ge=0)] = 8

    @property
    def seconds(self) -> float:
        """`time_limit`."""
        return nanoseconds(self.time_limit) / 1e9

    @property
    def memory_bytes(self) -> int:
        """`memory`."""
        return size_of(self.memory)

    @property
    def answer_bytes(self) -> int:
        """`answer`."""
        return size_of(self.answer)

    @property
    def compile_seconds(self) -> float:
        """`compile_time_limit`."""
        return nanoseconds(self.compile_time_limit) / 1e9

    @property
    def compile_memory_bytes(self) -> int:
        """`compile_memory`."""
        return size_of(self.compile_memory)


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
