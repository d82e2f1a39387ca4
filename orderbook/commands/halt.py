"""`orderbook halt`: the kill switch of a run, pulled or released through its monitor's websocket."""

from orderbook.commands.asking import answer_of_run
from orderbook.core.errors import SourceError
from orderbook.core.summaries import told

_OTHERWISE = (
    "nothing is known to be halted: give --url and --token, or end the run, whose open orders are then "
    "cancelled"
)


def halt(url: str, token: str, release: bool, reason: str) -> None:
    """Print what it did. Raises UserError for a URL that is none, SourceError where the run cannot be
    reached, refuses, or still has open orders."""
    request = {"op": "halt", "halted": not release, "reason": reason, "token": token}
    try:
        answer = answer_of_run(url, token, request, _OTHERWISE)
    except SourceError as error:
        raise SourceError(f"not halted: {error}") from None
    told(**{name: value for name, value in answer.items() if name not in ("id", "type")})
    if release:
        print("released: orders are taken again" if not answer["halted"] else "the run is still halted")
        return
    venues = ", ".join(answer["gateways"])
    where = f" (at {venues}, and simulated ones)" if venues else " (all simulated)"
    done = answer["open_before"] - answer["open"]
    print(f"halted: {done} of {answer['open_before']} open orders cancelled{where}; none is taken any more")
    if answer["open"] or not answer["halted"]:
        raise SourceError(
            f"{answer['open']} orders may still be open; the run goes on cancelling them: look at the "
            "monitor, and at the venue itself"
        )
