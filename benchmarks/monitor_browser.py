"""The monitor's page in a browser, in its own process: `python -m benchmarks.monitor_browser URL SECONDS`.

Loads the page anew for each line that it reads, and writes, as JSON, what it shows as soon as it is live and
has so many seconds of past: `at`, milliseconds since it was asked for; `columns`, of those seconds how many
the heat map has; `charted`, seconds of a view's chart; `trades`. It stays open until the input ends.
"""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "browser"))

from chromium import browser

from orderbook.core.processors import give_way

# In the page, so that nothing is asked of it meanwhile.
_SHOWN = """new Promise((shown) => {
  const timer = setInterval(() => {
    const page = window.orderbook;
    if (!page?.ladder() || page.doubt() || Math.min(...Object.values(page.reach())) < %(past)d) return;
    clearInterval(timer);
    // What is drawn next has all of it.
    requestAnimationFrame(() => setTimeout(() => shown(performance.now())));
  }, 5);
})"""
_HAD = """(past => {
  const { last, trades } = orderbook.past();
  const seconds = Array.from({ length: past }, (_, k) => last - 10 * k);
  const columns = orderbook.past(seconds).columns.filter(Boolean).length;
  return { columns, charted: orderbook.reach().view, trades: trades.length };
})(%(past)d)"""


def main(url: str, seconds: int) -> None:
    """Until the input ends."""
    give_way(0)
    with browser() as opening, opening() as page:
        page.show(1440, 900, dark=True)
        past = {"past": seconds}
        for _ in sys.stdin:
            page.send("Page.navigate", url=url)
            at = page.evaluate(_SHOWN % past)
            print(json.dumps({"at": at, **page.evaluate(_HAD % past)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
