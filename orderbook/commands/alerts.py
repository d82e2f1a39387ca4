"""`orderbook alerts`: what a run alerts of, acknowledged and silenced through its monitor's websocket."""

from collections.abc import Mapping, Sequence
from typing import Any

from orderbook.commands.asking import answer_of_run
from orderbook.core.errors import UserError, visible
from orderbook.core.summaries import told
from orderbook.core.units import moment_text, nanoseconds

_OTHERWISE = "give --url and --token"


def alerts(
    url: str,
    token: str,
    acknowledge: str | None,
    silence: str | None,
    match: Sequence[str],
    length: str,
    end_silence: int | None,
    by: str,
) -> None:
    """Print what is open and over, or do one thing.

    Raises UserError for bad arguments, SourceError where the run cannot be reached or refuses.
    """
    wishes = [one is not None for one in (acknowledge, silence, end_silence)]
    if sum(wishes) > 1:
        raise UserError("give one of --acknowledge, --silence and --end-silence")
    if silence is None and match:
        raise UserError("--match is for --silence")
    if acknowledge is not None:
        request: dict[str, object] = {"op": "acknowledge", "alert": acknowledge, "by": by}
    elif silence is not None:
        request = {"op": "silence", "alert": silence, "seconds": nanoseconds(length) / 1e9, "by": by}
        request["match"] = dict(map(_column, match))
    elif end_silence is not None:
        request = {"op": "end_silence", "silence": end_silence}
    else:
        request = {"op": "alerts"}
    if request["op"] != "alerts":
        request["token"] = token
    answer = answer_of_run(url, token, request, _OTHERWISE)
    told(**{name: value for name, value in answer.items() if name not in ("id", "type")})
    if acknowledge is not None:
        print(f"acknowledged: {answer['acknowledged']}")
    elif silence is not None:
        print(f"silence {answer['silence']}: {visible(silence)} until {moment_text(int(answer['until']))}")
    elif end_silence is not None:
        print(f"silence {end_silence} has ended")
    else:
        _list(answer)


def _column(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UserError(f"--match {text}: expected COLUMN=VALUE, such as symbol=BTC-USD")
    return name, value


def _list(answer: Mapping[str, Any]) -> None:
    for one in answer["alerts"]:
        states = ["open" if one["over"] is None else f"over {moment_text(int(one['over']))}"]
        states += ["acknowledged"] if one["acknowledged"] is not None else []
        states += ["rate limit"] if one["limited"] else []
        raised = moment_text(int(one["raised"]))
        line = f"{one['alert']}  {raised}  {one['severity']}  {one['message']}  ({', '.join(states)})"
        print(visible(line))
    for one in answer["silences"]:
        which = " ".join(f"{name}={value}" for name, value in one["match"].items())
        until = moment_text(int(one["until"]))
        print(visible(f"silence {one['silence']}: {one['alert']} {which} until {until} {one['by']}".rstrip()))
    for one in answer["channels"]:
        print(visible(f"channel {one['channel']}: sent {one['sent']}, waiting {one['waiting']}"))
    if not answer["alerts"]:
        print("no alert has been raised")
