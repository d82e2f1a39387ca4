"""Pictures of the views of views/market and views/surveillance on recorded data, for docs/market.md.

`python -m benchmarks.market_pictures` draws a panel for each: Binance's BTC spot and futures, NASDAQ's AMZN
where a view reads orders or the spread; detectors on AMZN with cases of each kind of abuse injected. There is
none of `crossed_markets`, of which no recording shows a row, nor of `wash_brokers`: none names brokers.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import matplotlib
import numpy as np
import typer

from orderbook.feeds.merge import Merger
from orderbook.feeds.source_kinds import open_source
from orderbook.market.abuse_injection import Injector
from orderbook.market.abuse_plan import KINDS, Survey
from orderbook.market.events import Events, Flag
from orderbook.market.instruments import Instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views
from orderbook.views.types import Parameter

from .measure import data_folder

matplotlib.use("agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

BTC = ("hftbacktest/spot_btcusdt_20240808.gz", "hftbacktest/usdm_btcusdt_20240808.gz")
AMZN = ("lobster/AMZN_2012-06-21_34200000_57600000_message_1.csv.zst",)
FUTURES = "BTC-USDT-PERP"
PARAMETERS: Mapping[str, Parameter] = {"bar": "1s", "step": "1s", "bar_volume": 10, "size": 10}
AMZN_PARAMETERS: Mapping[str, Parameter] = {"bar": "5 minutes", "step": "1 minute", "level_bps": 2}
COLUMNS, LOOKS = 4, 150
SECOND = 10**9
Rows = list[dict[str, Any]]


class Panel(NamedTuple):
    """What is drawn of a view: `ys` over `x`, a column of its rows; over the stream's time where it is None.

    kind: as lines, points, or bars. where: a column and the value of the rows that are drawn.
    """

    view: str
    x: str | None
    ys: Sequence[str]
    kind: str = "line"
    where: tuple[str, Any] | None = None


OF_BTC = (
    Panel("bars", "bar", ("close", "vwap")),
    Panel("amihud", None, ("illiquidity",)),
    Panel("basis", None, ("basis_bps",)),
    Panel("book_slope", None, ("bid_slope", "ask_slope")),
    Panel("consolidated", None, ("bid", "ask"), where=("symbol", "BTC-USDT")),
    Panel("cost_to_trade", None, ("buy_bps", "sell_bps")),
    Panel("depth_at_distance", None, ("bid_10", "ask_10")),
    Panel("effective_spread", None, ("spread_bps",)),
    Panel("footprint", "price", ("delta",), "point"),
    Panel("imbalance", None, ("imbalance",)),
    Panel("imbalance_near", None, ("imbalance",)),
    Panel("kyle_lambda", None, ("lambda",)),
    Panel("markouts", "horizon", ("markout_bps",), "point"),
    Panel("mid_returns", "step", ("r",)),
    Panel("ofi", "bar", ("ofi",), "bar"),
    Panel("prints", "ts", ("price",), "point"),
    Panel("quoted_spread", None, ("spread_bps",)),
    Panel("realised_spread", None, ("spread",)),
    Panel("realised_variance", None, ("variance", "continuous")),
    Panel("sign_agreement", None, ("tick_rule", "lee_ready")),
    Panel("touch_quotes", "ts", ("bid", "ask")),
    Panel("trade_flow", None, ("pressure",)),
    Panel("trade_signs", "ts", ("price",), "point", ("lee_ready", "buy")),
    Panel("valid_touch", None, ("bid", "ask")),
    Panel("volume_bars", "began", ("close",)),
    Panel("volume_profile", "price", ("volume",), "bar"),
    Panel("vpin", None, ("vpin",)),
    Panel("weighted_depth", None, ("bid_depth", "ask_depth")),
    Panel("bid_levels", "price", ("volume",), "point"),
    Panel("ask_levels", "price", ("volume",), "point"),
)  # fmt: skip
OF_AMZN = (
    Panel("cancel_ratio", "bar", ("cancel_ratio",)),
    Panel("executions_by_side", "ts", ("volume",), "point"),
    Panel("fill_probability", "place", ("probability",), "point"),
    Panel("hidden_volume", "bar", ("traded", "hidden"), "bar"),
    Panel("multi_level_ofi", "bar", ("ofi",), "bar", ("level", 0)),
    Panel("mid_steps", "step", ("spread",)),
    Panel("order_lifetimes", "placed_at", ("placed",), "point"),
    Panel("resilience", None, ("resilience",)),
    Panel("roll_spread", None, ("spread",)),
)
# Of detectors, when and at which price each case is.
OF_DETECTORS = {
    "flipping": ("cancelled_at", "price"),
    "iceberg": ("span", "price"), "layering": ("cancelled", None), "marking_the_close": ("day", "close"),
    "momentum_ignition": ("span", "high"), "pinging": ("span", "lowest"), "quote_stuffing": ("span", None),
    "spoofing": ("cancelled_at", "price"), "wash_trades": ("span", "price"),
}  # fmt: skip


def recorded(names: Sequence[str], most: int) -> tuple[Events, Instruments]:
    """So many events of recordings that are merged, in whole batches."""
    merger = Merger([open_source(str(data_folder() / name)) for name in names])
    found: list[Events] = []
    for item in merger:
        if isinstance(item, np.ndarray):
            found.append(item.copy())
            if sum(map(len, found)) >= most:
                break
    return np.concatenate(found), merger.instruments


def pieces(events: Events) -> Iterator[Events]:
    """About LOOKS pieces of whole messages."""
    ends = np.flatnonzero(events["flags"] & int(Flag.LAST)) + 1
    yield from np.split(events, np.unique(ends[np.linspace(0, len(ends) - 1, LOOKS, dtype=int)[1:-1]]))


def rows_of(
    panels: Sequence[Panel],
    parameters: Mapping[str, Parameter],
    events: Events,
    instruments: Instruments,
    symbol: str,
) -> dict[str, Rows]:
    """The rows to draw of each view; of those over time, rows at each look with their `time`, in s."""
    program = compile_views([f"market/{panel.view}" for panel in panels], parameters)
    pipeline = Pipeline(GatedEngine(program, "numba"), instruments)
    found: dict[str, Rows] = defaultdict(list)
    start = int(events["exchange_time"][events["exchange_time"] > 0].min())
    for piece in pieces(events):
        pipeline.apply(piece)
        for panel in panels:
            if panel.x is None:
                now = (int(piece["exchange_time"][-1]) - start) / SECOND
                rows = chosen(pipeline, panel, symbol)
                found[panel.view] += [{**row, "time": now} for row in rows[:1]]
    for panel in panels:
        if panel.x is not None:
            found[panel.view] = chosen(pipeline, panel, symbol)
    return found


def all_rows(pipeline: Pipeline, view: str) -> Rows:
    """The rows of a view."""
    return [dict(row) for row in pipeline.engine[view].values()]


def chosen(pipeline: Pipeline, panel: Panel, symbol: str) -> Rows:
    """The rows of a view that a panel is about: those of one symbol where it tells symbols."""
    rows = all_rows(pipeline, panel.view)
    wanted = {"symbol": symbol, **dict([panel.where] if panel.where else [])}
    return [row for row in rows if all(row.get(name, value) == value for name, value in wanted.items())]


def draw(axes: Axes, panel: Panel, rows: Rows) -> None:
    """One panel."""
    x = panel.x or "time"
    rows = sorted((row for row in rows if row[x] is not None), key=lambda row: row[x])
    for y in panel.ys:
        points = [(float(row[x]), float(row[y])) for row in rows if row[y] is not None]
        points = [(a, b) for a, b in points if math.isfinite(b)]
        if not points:
            continue
        if panel.view.endswith("_levels"):
            low, high = np.quantile([a for a, _ in points], (0.1, 0.9))
            points = [(a, b) for a, b in points if low <= a <= high]
        left = np.array([a for a, _ in points])
        if left.max() > 10**15:
            left = (left - left.min()) / SECOND
        right = [b for _, b in points]
        if panel.kind == "line":
            axes.plot(left, right, linewidth=0.9, label=y)
        elif panel.kind == "point":
            axes.plot(left, right, ".", markersize=2.5, label=y)
        else:
            axes.bar(left, right, width=(left.max() - left.min() or 1) / max(len(left), 1), label=y)
    axes.set_title(f"market/{panel.view}", fontsize=8, loc="left")
    if len(panel.ys) > 1:
        axes.legend(fontsize=6, frameon=False)
    axes.set_ylabel(panel.ys[0] if len(panel.ys) == 1 else "", fontsize=7)
    axes.set_xlabel({"time": "s", None: "s"}.get(panel.x, panel.x if panel.x in _OWN else "s"), fontsize=7)


# Columns that are no times.
_OWN = ("price", "place")


def grid(count: int) -> tuple[Any, list[Axes]]:
    """A figure of so many panels."""
    lines = -(-count // COLUMNS)
    figure, axes = pyplot.subplots(lines, COLUMNS, figsize=(3 * COLUMNS, 1.75 * lines), squeeze=False)
    every = [one for line in axes for one in line]
    for one in every:
        one.tick_params(labelsize=6)
        one.grid(visible=True, linewidth=0.3)
        one.ticklabel_format(useOffset=False)
    for one in every[count:]:
        one.set_visible(False)
    return figure, every


def save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=80, metadata={"Software": None})
    pyplot.close(figure)
    print(path)


def draw_views(folder: Path, most: int) -> None:
    """Every view of views/market."""
    found = rows_of(OF_BTC, PARAMETERS, *recorded(BTC, most), FUTURES)
    found |= rows_of(OF_AMZN, AMZN_PARAMETERS, *recorded(AMZN, 10**9), "AMZN")
    panels = sorted((*OF_BTC, *OF_AMZN), key=lambda panel: panel.view)
    figure, every = grid(len(panels))
    for axes, panel in zip(every, panels, strict=False):
        draw(axes, panel, found[panel.view])
    save(figure, folder / "market-library.png")


def draw_detectors(folder: Path) -> None:
    """Detectors on AMZN, whose mid is the line, with labelled abuse: where cases are, and where it was."""
    events, instruments = recorded(AMZN, 10**9)
    survey = Survey()
    survey.read(events)
    abuse = [(kind, 1 if kind == "marking_the_close" else 3) for kind in KINDS]
    injector = Injector(survey, abuse, strength=1.0, seed=1)
    injected = np.concatenate([injector.apply(events), injector.finish()])
    names = ["market/mid_steps", *(f"surveillance/{name}" for name in OF_DETECTORS)]
    program = compile_views(names, {"step": "1 minute"})
    pipeline = Pipeline(GatedEngine(program, "numba"), instruments)
    pipeline.apply(injected)
    steps = sorted((row["step"], float(row["twice_mid"]) / 2) for row in all_rows(pipeline, "mid_steps"))
    start = steps[0][0]
    hours = [(step - start) / SECOND / 3_600 for step, _ in steps]
    figure, every = grid(len(OF_DETECTORS))
    for axes, (name, (when, price)) in zip(every, OF_DETECTORS.items(), strict=False):
        axes.plot(hours, [mid for _, mid in steps], linewidth=0.6, color="0.6")
        for label in injector.labels:
            if label.kind == name:
                axes.axvline(
                    (label.begin - start) / SECOND / 3_600, color="tab:orange", linewidth=1, alpha=0.6
                )
        rows = all_rows(pipeline, name)
        mids = dict(zip(hours, (mid for _, mid in steps), strict=True))
        for row in rows:
            at = (row[when] - start) / SECOND / 3_600
            at = max(hours) if name == "marking_the_close" else at
            near = mids[min(hours, key=lambda hour: abs(hour - at))]
            axes.plot([at], [float(row[price]) if price else near], "x", color="tab:blue", markersize=5)
        axes.set_title(f"surveillance/{name}: {len(rows)}", fontsize=8, loc="left")
        axes.set_xlabel("h", fontsize=7)
    save(figure, folder / "surveillance.png")


def main(
    folder: Annotated[Path, typer.Option(help="Where the pictures are put.")] = Path("docs/pictures"),
    events: Annotated[int, typer.Option(help="Of Binance's recordings, so many.")] = 150_000,
) -> None:
    """Draws every view of the library on the recordings in the folder of recorded data."""
    draw_detectors(folder)
    draw_views(folder, events)


if __name__ == "__main__":
    typer.run(main)
