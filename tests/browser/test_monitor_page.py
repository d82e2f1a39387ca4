"""The monitor in a browser, over live simulated data."""

import csv
import io
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from chromium import Page, element, until
from running import TOKEN, Running, halt
from samples import PATIENCE

pytestmark = pytest.mark.browser

SHOWN = "orderbook.ladder()"
# Seconds within which a page says that what it shows is not now.
SOON = 2.0

# How many different colours a canvas has in a grid of its pixels.
COLOURS = """(canvas => {
  const { width, height } = canvas;
  const pixels = canvas.getContext('2d').getImageData(0, 0, width, height).data;
  const found = new Set();
  for (let k = 0; k < pixels.length; k += 28) found.add(pixels[k] << 16 | pixels[k + 1] << 8 | pixels[k + 2]);
  return found.size;
})(%s)"""


def levels_of(frame: dict[str, Any]) -> dict[str, dict[int, int]]:
    """Sizes of a frame of a book by ticks."""
    return {side: {ticks: lots for ticks, lots, _ in frame[side]} for side in ("bids", "asks")}


def shown_levels(shown: dict[str, Any]) -> dict[str, dict[int, int]]:
    sides = (("bids", "bid"), ("asks", "ask"))
    return {side: {row["ticks"]: row[key] for row in shown["rows"]} for side, key in sides}


def assert_same(shown: dict[str, Any], levels: dict[str, dict[int, int]]) -> None:
    """Every row of the ladder has the size that the book has at its price, 0 where it has none."""
    for side, rows in shown_levels(shown).items():
        assert rows == {ticks: levels[side].get(ticks, 0) for ticks in rows}
    assert any(row["bid"] for row in shown["rows"]) and any(row["ask"] for row in shown["rows"])


def test_ladder_equals_what_another_client_gets_at_the_same_time(page: Page, monitored: Running) -> None:
    frames: dict[str, list[dict[str, dict[int, int]]]] = {}
    seen = []
    with monitored.client() as client:
        client.subscribe(topic="book", venue="coinbase", symbol="BTC-USD", depth=200)
        for frame in client.frames("book", 4.0):
            # Frames of one time differ where orders of one message are told one by one.
            frames.setdefault(frame["time"], []).append(levels_of(frame))
            seen.append(page.evaluate(SHOWN))
    compared = 0
    for shown in seen:
        if len(frames.get(shown["time"], ())) == 1:
            assert_same(shown, frames[shown["time"]][0])
            compared += 1
    assert compared >= 10


def test_ladder_equals_the_engine_s_relations(page: Page, monitored: Running) -> None:
    levels = {}
    halt(monitored.exchange, True)
    try:
        with monitored.client() as client:
            shown = until(lambda: rests(page), 8, what="the book rests")
            for side in ("bids", "asks"):
                sums = f"SELECT price, SUM(volume) AS volume FROM {side} WHERE symbol = 'BTC-USD' GROUP BY 1"
                rows = client.ask("sql", sql=sums)["rows"]
                levels[side] = {int(Decimal(p) * 100): int(Decimal(v) * 10_000) for p, v in rows}
        assert page.evaluate(SHOWN)["rows"] == shown["rows"]
    finally:
        halt(monitored.exchange, False)
    assert_same(shown, levels)
    assert [row["price"] for row in shown["rows"]] == [f"{row['ticks'] / 100:.2f}" for row in shown["rows"]]


def rests(page: Page) -> dict[str, Any] | None:
    """What the ladder shows, where it has not changed for a while."""
    before = page.evaluate(SHOWN)
    time.sleep(1.2)
    shown: dict[str, Any] = page.evaluate(SHOWN)
    return shown if shown["rows"] == before["rows"] else None


def test_ladder_stands_still_until_it_is_recentred(page: Page) -> None:
    page.evaluate(f"{element('ladder')}.focus()")
    page.press("a")

    def prices() -> list[str]:
        return [row["price"] for row in page.evaluate(SHOWN)["rows"]]

    def frames() -> int:
        return int(page.evaluate("orderbook.book().frames"))

    before, number = prices(), frames()
    page.until(f"orderbook.book().frames > {number + 20}")
    assert prices() == before
    page.press("PageUp")
    page.until(f"{SHOWN}.rows[0].price !== '{before[0]}'")
    page.press(" ")
    middle = len(before) // 2
    page.until(f"{SHOWN}.rows.slice({middle - 12}, {middle + 12}).some(row => row.bid)")
    page.press("g")
    page.until(f"{SHOWN}.group === 2")
    shown = page.evaluate(SHOWN)
    assert {row["ticks"] % 2 for row in shown["rows"]} == {0}
    page.press("G")
    page.until(f"{SHOWN}.group === 1")


def test_canvases_and_charts_draw(page: Page) -> None:
    page.until("orderbook.book().trades > 3")
    for name, least in (("ladder", 30), ("heatmap", 30), ("depth", 4), ("trades", 4)):
        colours = COLOURS % element(name)
        until(lambda c=colours, n=least: page.evaluate(c) >= n, 20, what=f"{name} has {least} colours")
    line = COLOURS % (element("view-series") + "?.querySelector('canvas')")
    page.until(f"{element('view-series')}.querySelector('canvas') && {line} > 1", 20)
    page.until("orderbook.drawTimes().ladder.count > 10 && orderbook.drawTimes().heatmap.count > 10")
    assert page.problems == []


def test_instruments_are_linked(page: Page) -> None:
    page.press("2")
    page.until("orderbook.ladder()?.symbol === 'ETH-USD' && orderbook.book().symbol === 'ETH-USD'")
    page.until(f"{element('instrument-ETH-USD')}.getAttribute('aria-pressed') === 'true'")
    page.press("1")
    page.until("orderbook.ladder()?.symbol === 'BTC-USD'")


def choose(page: Page, name: str, text: str) -> None:
    """Choose the option of a select that says so."""
    option = f"[...select.options].find(one => one.text === {json.dumps(text)})"
    told = "select.dispatchEvent(new Event('change'))"
    page.evaluate(f"(select => {{ select.value = {option}.value; {told}; }})({element(name)})")


def test_markets_stand_beside_one_another(page: Page, monitored: Running) -> None:
    beside = "orderbook.beside()"
    assert page.evaluate(beside) == []
    page.click("beside")
    page.until(f"{beside}[0]?.symbol === 'ETH-USD' && {beside}[0].doubt === ''")
    page.click("beside")
    page.until(f"{beside}[1]?.symbol === 'SOL-USD' && {element('beside')}.disabled")
    frames: dict[str, list[dict[str, dict[int, int]]]] = {}
    seen = []
    with monitored.client() as client:
        client.subscribe(topic="book", venue="coinbase", symbol="ETH-USD", depth=200)
        for frame in client.frames("book", 4.0):
            frames.setdefault(frame["time"], []).append(levels_of(frame))
            seen.append(page.evaluate(f"{beside}[0]"))
    known = [shown for shown in seen if len(frames.get(shown["time"], ())) == 1]
    assert len(known) >= 10
    for shown in known:
        assert_same(shown, frames[shown["time"]][0])
    assert page.evaluate(SHOWN)["symbol"] == "BTC-USD"
    page.until(f"{COLOURS % element('heatmap-2')} > 10 && {COLOURS % element('heatmap-3')} > 10")
    # Two of the same instrument show one book, which goes on where one of them is closed.
    choose(page, "instrument-of-ladder-2", "BTC-USD")
    page.until(f"{beside}[0].symbol === 'BTC-USD' && {beside}[0].time === {SHOWN}.time")
    page.click("close-heatmap-2")
    page.until(f"{beside}.length === 1 && {beside}[0].symbol === 'SOL-USD' && !{element('beside')}.disabled")
    frames_before = page.evaluate("orderbook.book().frames")
    page.until(f"orderbook.book().frames > {frames_before} + 10 && orderbook.doubt() === ''")
    page.click("close-ladder-3")
    page.until(f"{beside}.length === 0")
    assert page.problems == []


WIDTHS = """Object.fromEntries([...document.querySelectorAll('.pane')].map(
  pane => [pane.dataset.testid, [pane.clientWidth, pane.clientHeight]]))"""


def test_layouts_are_kept_under_a_name(page: Page, monitored: Running) -> None:
    """With what is shown, sizes and instruments; also after the page was closed."""
    name = "<b>two</b> markets"
    standing = page.evaluate(WIDTHS)
    page.click("beside")
    page.until("orderbook.beside()[0]?.symbol === 'ETH-USD'")
    choose(page, "instrument-of-ladder-2", "SOL-USD")
    page.evaluate("document.querySelector('.pane[data-testid=pane-depth]').parentElement"
                  ".querySelector('[aria-label=\"Hide Depth\"]').click()")  # fmt: skip
    page.evaluate("document.querySelector('.splitter.vertical').focus()")
    for _ in range(4):
        page.press("ArrowLeft")
    page.press("2")
    page.until(f"{SHOWN}.symbol === 'ETH-USD' && orderbook.beside()[0].symbol === 'SOL-USD'")
    shown = page.evaluate(WIDTHS)
    assert "pane-ladder-2" in shown and "pane-depth" not in shown
    menu = "document.querySelector('.acts details.menu')"
    page.evaluate(f"{menu}.open = true")
    page.until(f"{element('layout-save')} !== null")
    page.click("layout-save")
    page.until(f"{element('layout-problem')}.textContent === 'A layout has a name.'")
    page.fill("layout-name", name)
    page.click("layout-save")
    page.until(f"{element('layout-use')}?.textContent === {json.dumps(name)}")
    page.click("reset-layout")
    page.until(f"!{element('pane-ladder-2')}")
    assert page.evaluate(WIDTHS) == standing
    page.press("1")
    page.go(monitored.url)
    page.until(f"{SHOWN}?.symbol === 'BTC-USD'")
    page.evaluate(f"{menu}.open = true")
    page.until(f"{element('layout-use')} !== null")
    page.click("layout-use")
    page.until(f"{SHOWN}?.symbol === 'ETH-USD' && orderbook.beside()[0]?.symbol === 'SOL-USD'")
    assert page.evaluate(WIDTHS) == shown
    page.until(f"{element('layout-drop')} !== null")
    page.click("layout-drop")
    page.until(f"!{element('layout-drop')}")
    assert page.problems == []


def test_a_view_is_added_in_the_sql_box_and_updates(page: Page) -> None:
    page.click("tab-sql")
    page.fill("sql-text", "SELECT symbol, COUNT(*) AS n, SUM(volume) AS volume FROM bids GROUP BY symbol")
    page.click("sql-run")
    page.until(f"{element('sql-outcome')}.textContent.startsWith('3 rows')")
    page.until(f"{element('sql-result')}.querySelectorAll('tbody tr').length === 3")
    page.fill("view-name", "resting")
    page.click("sql-add")
    page.until(f"{element('token')} !== null")
    page.fill("token", TOKEN)
    page.evaluate("document.querySelector('dialog.ask button.primary').click()")
    page.until("orderbook.views().includes('resting')", 60)
    page.until(f"{element('view-choice')}?.value === 'resting'")
    rows = f"{element('view-table')}.querySelector('tbody').innerText"
    page.until(f"{rows}.includes('BTC-USD')")
    before = page.evaluate(rows)
    page.until(f"{rows} !== {json.dumps(before)} && {rows}.includes('BTC-USD')")
    assert page.problems == []


# Of a page's past what is old enough to be told to all: columns by number, trades, bars, volumes.
PAST = """((first, last, traded) => {
  const past = orderbook.past(Array.from({ length: last - first }, (_, k) => first + k));
  const trades = past.trades.filter(([number]) => number <= traded);
  const lots = trades.reduce((sum, [, , , lots]) => sum + lots, 0);
  return { columns: past.columns, trades, lots };
})(%d, %d, %d)"""


def test_a_page_that_is_opened_shows_what_an_open_one_does(
    page: Page, open_page: Callable[[], AbstractContextManager[Page]], monitored: Running
) -> None:
    page.until("orderbook.past().trades.length > 20 && orderbook.past().seconds.length > 3", 60)
    first = page.evaluate("orderbook.past().first")
    with open_page() as other:
        other.show(1440, 900, dark=True)
        other.go(monitored.url)
        other.until(f"orderbook.past()?.first <= {first + 10} && orderbook.charted().view.data[0].length > 3")
        # What both were told, but for columns that are not over.
        halt(monitored.exchange, True)
        try:
            until(lambda: rests(page) and rests(other), PATIENCE, what="the book rests")
            last = min(one.evaluate("orderbook.past().last") for one in (page, other)) - 1
            traded = min(one.evaluate("orderbook.past().traded") for one in (page, other))
            told = PAST % (max(first, last - 3000), last, traded)
            shown, again = page.evaluate(told), other.evaluate(told)
            bars = [one.evaluate("orderbook.past().seconds") for one in (page, other)]
            volumes = [sorted(one.evaluate("orderbook.past().volume")) for one in (page, other)]
        finally:
            halt(monitored.exchange, False)
        assert again["trades"] == shown["trades"] and shown["trades"]
        assert bars[0] == bars[1] and volumes[0] == volumes[1]
        assert sum(bought + sold + neither for *_, bought, sold, neither in bars[0]) >= shown["lots"]
        # A page that is slow leaves out frames, of which the server keeps all.
        columns = zip(shown["columns"], again["columns"], strict=True)
        assert any(one == two is not None for one, two in columns)
        assert other.problems == []


def candles_of(trades: list[list[Any]], seconds: int) -> dict[int, list[int]]:
    """Open, high, low, close, lots bought, sold and of no side, by the second at which a candle begins."""
    found: dict[int, list[list[Any]]] = {}
    for trade in trades:
        found.setdefault(int(trade[1] // (1000 * seconds)) * seconds, []).append(trade)
    return {
        start: [
            own[0][2], max(trade[2] for trade in own), min(trade[2] for trade in own), own[-1][2],
            *(sum(trade[3] for trade in own if trade[4] == side) for side in ("buy", "sell", "")),
        ]
        for start, own in found.items()
    }  # fmt: skip


CANDLES = "({ candles: orderbook.candles(), trades: orderbook.past().trades })"


def test_candles_and_cumulative_delta_are_those_of_the_trades(page: Page) -> None:
    """Also of a page that was not there when they happened."""
    choose = "choice => { choice.value = '%s'; choice.dispatchEvent(new Event('change')); }"
    drawn = COLOURS % "document.querySelector('.candles canvas')"
    for seconds in (1, 5, 15, 60):
        page.evaluate(f"({choose % seconds})({element('candles-interval')})")
        page.until(f"orderbook.candles().length && orderbook.candles().every(([at]) => at % {seconds} === 0)")
        # The last may have had a trade since it was drawn.
        page.until(f"orderbook.candles().length > {1 if seconds > 5 else 4}", 90)
        told = page.evaluate(CANDLES)
        expected, cumulative = candles_of(told["trades"], seconds), 0
        first = told["candles"][0][0]
        assert [candle[0] for candle in told["candles"]][:-1] == [
            start for start in sorted(expected) if first <= start < told["candles"][-1][0]
        ]
        for start, *candle, delta in told["candles"][:-1]:
            bought, sold = expected[start][4:6]
            cumulative += bought - sold
            assert candle == expected[start] and delta == cumulative
        page.until(f"{drawn} > 2")
    reading = f"{element('candles-reading')}.textContent"
    assert page.evaluate(f"/^\\d\\d:\\d\\d:00  O [\\d.]+  H [\\d.]+  L [\\d.]+  C [\\d.]+$/.test({reading})")
    assert page.evaluate(f"{element('delta-reading')}.textContent").startswith("Cumulative delta ")
    assert page.problems == []


# Whether a heat map that has painted a book's own columns shows those of the server once they are there.
PAINTED = """(async () => {
  const { Raster } = await import("/static/heatmap/raster.js");
  const { History } = await import("/static/core/history.js");
  const shape = { columns: 20, rows: 8, group: 1, high: 7, stride: 1, from: 0, to: 4 };
  const painted = () => {
    const made = new Raster();
    made.setColours(["#000000", "#000040", "#0000a0", "#0060ff", "#ffffff"], "#808080");
    return made;
  };
  const pixels = (raster) => {
    const context = new OffscreenCanvas(shape.columns, shape.rows).getContext("2d");
    raster.blit(context, 0, 0, shape.columns, shape.rows);
    return context.getImageData(0, 0, shape.columns, shape.rows).data.join();
  };
  const own = new History();
  own.add(2000, [[3, 4]], [[5, 4]], "valid");
  const side = (ticks) => new Float64Array([ticks, 4]);
  const column = (number) => ({ number, bids: side(2), asks: side(6), state: "valid" });
  const fine = Array.from({ length: 16 }, (_, k) => column(k + 4));
  const told = History.of({ coarse: [], fine, every: 1 }, own);
  const [raster, fresh] = [painted(), painted()];
  raster.paint(own, 20, shape);
  const before = pixels(raster);
  raster.paint(told, 20, shape);
  fresh.paint(told, 20, shape);
  return [pixels(raster) === pixels(fresh), pixels(raster) !== before];
})()"""


def test_the_heat_map_paints_a_past_that_comes_after_its_first_columns(page: Page) -> None:
    assert page.evaluate(PAINTED) == [True, True]


def test_what_is_shown_is_saved_as_csv(page: Page) -> None:
    page.until("orderbook.book().trades > 3")
    keep = (
        "URL.createObjectURL = (blob) => { blob.text().then((text) => window.saved.push(text)); return '#'; }"
    )
    page.evaluate(f"window.saved = []; {keep}; 1")
    choose = "choice => { choice.value = 'depth'; choice.dispatchEvent(new Event('change')); }"
    page.evaluate(f"({choose})({element('view-choice')})")
    page.until(f"{element('view-table')}.innerText.includes('bid_orders')")
    page.click("view-csv")
    page.click("trades-csv")
    page.until("window.saved.length === 2")
    texts = page.evaluate("window.saved")
    rows, trades = sorted((list(csv.DictReader(io.StringIO(text))) for text in texts), key=len)
    assert [row["symbol"] for row in rows] == ["BTC-USD", "ETH-USD", "SOL-USD"]
    assert all(Decimal(row["bid_volume"]) > 0 and int(row["bid_orders"]) > 0 for row in rows)
    assert {trade["symbol"] for trade in trades} == {"BTC-USD"}
    assert {trade["side"] for trade in trades} <= {"buy", "sell"}
    assert all(Decimal(trade["price"]) > 0 < Decimal(trade["size"]) for trade in trades)
    times = [trade["time"] for trade in trades]
    assert times == sorted(times, reverse=True)


def test_the_kill_switch_is_pulled_and_released(page: Page) -> None:
    page.until(f"{element('halt')}.textContent === 'Halt'")
    for said, then in (("Halted", "Halted"), ("Released", "Halt")):
        page.click("halt")
        page.until(f"{element('halt-go')} !== null")
        page.click("halt-go")
        # Once the page has the token it does not ask for it again.
        page.until(f"{element('token')} !== null || {element('halt-dialog')}?.innerText.startsWith('{said}')")
        if page.evaluate(f"{element('token')} !== null"):
            page.fill("token", TOKEN)
            page.evaluate("document.querySelector('dialog.ask button.primary').click()")
        page.until(f"{element('halt-dialog')}?.innerText.startsWith('{said}')", 15)
        page.click("halt-close")
        page.until(f"{element('halt')}.textContent === '{then}'", 15)
    assert page.problems == []


def test_a_rule_alerts(page: Page, monitored: Running) -> None:
    page.click("tab-alerts")
    choose = "choice => { choice.value = 'depth'; choice.dispatchEvent(new Event('change')); }"
    page.evaluate(f"({choose})({element('rule-view')})")
    page.fill("rule-when", "symbol = 'BTC-USD' and nothing > 1")
    page.click("rule-add")
    page.until(f"{element('rules')}.innerText.includes('no column nothing')")
    with monitored.client() as client:
        sql = "SELECT bid_orders FROM depth WHERE symbol = 'BTC-USD'"
        now = client.ask("sql", sql=sql)["rows"][0][0]
    # Every second number about the one of now, so that it comes to hold again and again.
    numbers = " or ".join(f"bid_orders = {now + n}" for n in range(-40, 41, 2))
    page.fill("rule-when", f"symbol = 'BTC-USD' and ({numbers})")
    page.click("rule-add")
    page.until(f"{element('alert-log')}.querySelector('li.alert') !== null", 60)
    page.until("!document.getElementById('banner').hidden")


def test_a_condition_is_as_sql_s_where_a_value_is_null(page: Page) -> None:
    told = {
        "not (a > 1 or b > 1)": False,
        "not (a > 1 and b > 1)": True,
        "a > 1 or b = 0": True,
        "a > 1 and b = 0": False,
        "not a > 1": False,
        "not b > 1 and not c": True,
    }
    load = "import('/static/core/condition.js').then(({ condition }) => { window.held = %s.map(%s); })"
    page.evaluate(load % (json.dumps([*told]), "text => condition(text).holds({ a: null, b: 0, c: false })"))
    page.until("window.held !== undefined")
    assert page.evaluate("window.held") == [*told.values()]


def test_why_of_an_alert_in_the_log(page: Page, monitored: Running, pictures: Path) -> None:
    rule = {"name": "odd", "view": "depth", "when": "bid_orders % 2 = 1"}
    with monitored.client() as client:
        client.ask("set_rule", rule=rule, token=TOKEN)
    page.click("tab-log")
    page.until(f"{element('log')}.querySelector('li.alert .why') !== null")
    page.evaluate(f"{element('log')}.querySelector('li.alert .why').click()")
    page.until(f"/^depth at \\d+,\\d+,\\d+\\n/.test({element('explain-text')}.textContent)", PATIENCE)
    page.picture(pictures / "why.png")
    page.fill("why-version", "7")
    page.click("why-ask")
    page.until(f"{element('explain-text')}.textContent.startsWith('A version is')")
    page.click("why-newest")
    page.until(f"{element('why-version')}.value.length > 20")
    page.click("explain-lineage")
    page.until(f"{element('explain-text')}.textContent.startsWith('reads bids')")
    page.click("explain-costs")
    page.click("costs-ask")
    page.until(f"/ depth: [\\d.]+ [nµ]s/.test({element('explain-text')}.textContent)", PATIENCE)
    assert "insert into bids" in page.evaluate(f"{element('explain-text')}.textContent")
    page.picture(pictures / "costs.png")
    with monitored.client() as client:
        client.ask("set_rule", rule={**rule, "when": None}, token=TOKEN)
    assert page.problems == []


@pytest.mark.parametrize("dark", [True, False], ids=["dark", "light"])
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1280, 800), (390, 844)])
def test_every_size_and_theme_draws(
    open_page: Callable[[], AbstractContextManager[Page]],
    monitored: Running,
    pictures: Path,
    width: int,
    height: int,
    dark: bool,
) -> None:
    theme = "dark" if dark else "light"
    with open_page() as page:
        page.show(width, height, dark=dark, density=2 if width < 500 else 1)
        page.go(monitored.url)
        page.until("orderbook.ladder() && orderbook.doubt() === '' && orderbook.book().frames > 20")
        page.picture(pictures / f"{theme}-{width}.png")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for label in ("Size from", "Time & sales"):
            seen = (
                f"[...document.querySelectorAll('.group-head *')].find(one => one.textContent === '{label}')"
            )
            fits = "(one => !one || (one.offsetHeight <= 26 && one.scrollWidth <= one.clientWidth + 1))"
            assert page.evaluate(f"{fits}({seen})"), label
        if width < 500:
            for name in ("heatmap", "candles", "trades", "views", "sql"):
                page.click(f"tab-{name}")
                page.until(f"{element('pane-' + name)}?.clientHeight > 300 && !{element('pane-ladder')}")
            page.click("tab-heatmap")
            page.until(f"{COLOURS % element('heatmap')} > 10", 10)
            page.picture(pictures / f"{theme}-{width}-heatmap.png")
        assert page.problems == []


# Of panes that show what is now, whether each is marked, dimmed and says why.
MARKED = """[...document.querySelectorAll('.not-live')].map(mark =>
  !mark.hidden && mark.textContent.startsWith('not live: ')
  && mark.parentElement.querySelector('.pane-body.was') !== null)"""
# What the header shows, and whether anything in it is as bright as what is now.
HEADER = f"""({{
  feeds: {element("feeds-strip")}.innerText, engine: {element("engine-strip")}.textContent,
  good: document.querySelectorAll('#strip .badge.good').length,
  dimmed: ['feeds', 'engine', 'instruments'].every(
    name => Number(getComputedStyle(document.querySelector(`#strip .${{name}}`)).opacity) < 1),
}})"""


def shown_as_before(page: Page) -> dict[str, Any]:
    """That everything that is not of now is marked so, and not by colour alone."""
    page.until(f"{MARKED}.length >= 3 && {MARKED}.every(Boolean)", SOON, 0.02)
    header: dict[str, Any] = page.evaluate(HEADER)
    assert header["engine"].startswith("was ")
    assert (header["good"], header["dimmed"]) == (0, True)
    return header


def test_a_run_that_hangs_shows_as_stale_and_comes_back(page: Page, monitored: Running) -> None:
    halt(monitored.run, True)
    try:
        told = f"{element('connection')}.textContent.startsWith('stale') && !{element('doubt')}.hidden"
        state = "orderbook.connection().state === 'stale' && orderbook.doubt() !== ''"
        page.until(f"{state} && {told}", SOON, 0.02)
        assert shown_as_before(page)["feeds"].startswith("was valid")
    finally:
        halt(monitored.run, False)
    page.until("orderbook.connection().state === 'live' && orderbook.doubt() === ''", 15)
    page.until(f"!{MARKED}.some(Boolean) && {HEADER}.feeds.startsWith('valid') && {HEADER}.good === 2", SOON)
    assert page.evaluate(HEADER)["dimmed"] is False


def test_a_dropped_feed_shows_as_stale_at_once_and_an_ended_run_too(
    page: Page, monitored: Running, pictures: Path
) -> None:
    """Stays the last: nothing is left of the run."""
    monitored.exchange.kill()
    state = "document.querySelector('.feed')?.dataset.state"
    told = f"{element('feeds-strip')}.innerText.startsWith('stale') && !{element('doubt')}.hidden"
    page.until(f"{state} === 'stale' && orderbook.doubt().startsWith('stale') && {told}", SOON, 0.02)
    monitored.run.kill()
    told = f"{element('connection')}.textContent.startsWith('disconnected')"
    page.until(f"orderbook.connection().state === 'disconnected' && {told}", SOON, 0.02)
    assert shown_as_before(page)["feeds"].startswith("was stale")
    page.picture(pictures / "disconnected.png")
