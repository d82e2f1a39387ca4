"""One start, timed: prints seconds of each step as JSON. `python -m benchmarks.first_event NAME TIME`.

NAME is vwap or sobi, TIME the time.time() at which the process was asked for.
"""

import json
import sys
import time
from pathlib import Path

VWAP = """\
CREATE VIEW v AS SELECT SUM(b.price * b.volume) / SUM(b.volume) AS vwap FROM bids b
WHERE 0.25 * (SELECT SUM(t.volume) FROM bids t)
    > (SELECT COALESCE(SUM(x.volume), 0) FROM bids x WHERE x.price > b.price);
"""


def main(name: str, asked: float) -> dict[str, float]:
    """Seconds of wall time of each step."""
    times = {"Python": time.time() - asked}
    last = time.perf_counter()

    def done(step: str) -> None:
        nonlocal last
        times[step] = time.perf_counter() - last
        last = time.perf_counter()

    import numpy as np

    from orderbook import compile as compile_views
    from orderbook.core.errors import Problems
    from orderbook.engine.runtime.engine import Engine
    from orderbook.market.book_relations import BookRelations
    from orderbook.market.books import Books
    from orderbook.market.events import EVENT, Action, Flag, Side
    from orderbook.market.synthetic_flow import synthetic_instruments

    done("import")
    sobi = Path(__file__).parent.parent / "views" / "sobi.sql"
    program = compile_views(VWAP if name == "vwap" else sobi, params={"k": 0.25})
    done("compile SQL")
    engine = Engine(program)
    done("executor")
    books = Books(synthetic_instruments(1), program.dictionary)
    relations = BookRelations(program.program, program.dictionary, Problems())
    done("books")
    view, column = ("v", "vwap") if name == "vwap" else ("sobi", "pressure")
    # No run before has asked for this condition.
    condition = f"{column} > {asked:.6f}"
    steps = {
        "first event": (), "second event": (), "event after a first subscription": (None,),
        "after a new condition": (condition,), "after a known one": (condition,),
    }  # fmt: skip
    for number, (step, subscribed) in enumerate(steps.items(), 1):
        for when in subscribed:
            engine.subscribe(view, lambda _: None, when)
        event = np.zeros(1, EVENT)
        event["action"], event["order_id"], event["side"] = Action.ADD, number, Side.BID
        event["price"], event["volume"], event["flags"] = 100, 10, Flag.LAST
        engine.apply(relations.translate(books.apply(event)))
        done(step)
    if name == "vwap" and abs(engine["v"][()].vwap - 1.0) > 1e-9:
        raise AssertionError(f"the view is {engine['v'][()]}")
    return times


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], float(sys.argv[2]))))
