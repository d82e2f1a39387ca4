/** Puts the page together. */
import { Alerts } from "./core/alerts.js";
import { Books, keyOf } from "./core/books.js";
import { Connection } from "./core/connection.js";
import { help, listenForKeys } from "./core/keys.js";
import { Layout } from "./core/layout.js";
import { Layouts } from "./core/layouts.js";
import { drawTimes } from "./core/scheduler.js";
import { Store } from "./core/store.js";
import { bannerIn, Strip } from "./core/strip.js";
import { askToken, forgetToken, knownToken } from "./core/token.js";
import { HeatPane } from "./heatmap/pane.js";
import { LadderPane } from "./ladder/pane.js";
import { AlertsPane } from "./panes/alerts.js";
import { Beside } from "./panes/beside.js";
import { CandlesPane } from "./panes/candles.js";
import { DepthPane } from "./panes/depth.js";
import { ExplainPane } from "./panes/explain.js";
import { HealthPane } from "./panes/health.js";
import { LogPane } from "./panes/log.js";
import { SqlPane } from "./panes/sql.js";
import { StrategiesPane } from "./panes/strategies.js";
import { TradesPane } from "./panes/trades.js";
import { ViewsPane } from "./panes/views.js";

/** The websocket beside the page; beyond loopback the server needs the token for reading too. */
function address() {
  const url = new URL("ws", location.href);
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  url.search = url.hash = "";
  if (knownToken()) url.searchParams.set("token", knownToken());
  return url.href;
}

const byId = (id) => document.getElementById(id);
const connection = new Connection(address);
const books = new Books(connection);
const store = new Store(connection, books);
const alerts = new Alerts(connection, store);

const ladder = new LadderPane(store);
const heat = new HeatPane(store);
const candles = new CandlesPane(store);
const beside = new Beside(store, connection, books);
const views = new ViewsPane(store, connection);
const strategies = new StrategiesPane(store);
const sql = new SqlPane(store, connection, (view) => {
  views.choose(view);
  layout.reveal("views");
});
const explain = new ExplainPane(store, connection);
const log = new LogPane(store, (view, version) => {
  explain.why(view, version);
  layout.reveal("explain");
});
const inOrder = [
  ladder, heat, candles, new DepthPane(store), new TradesPane(store), views, strategies, log,
  new AlertsPane(store, connection, alerts), sql, explain, new HealthPane(store), ...beside.panes,
];
const panes = new Map(inOrder.map((pane) => [pane.id, pane]));
const layout = new Layout(byId("desk"), byId("tabs"), panes);
beside.layout = layout;
const layouts = new Layouts(layout, [store, ...beside.markets]);
const strip = new Strip(byId("strip"), store, connection, { layout, layouts, panes, beside, help });
alerts.on("alert", bannerIn(byId("banner"), () => layout.reveal("alerts")));

const reveal = (id) => () => layout.reveal(id, true);
listenForKeys(
  {
    " ": () => ladder.recentre(), c: () => ladder.recentre(), a: () => ladder.toggleAuto(), n: () => ladder.toggleEmpty(),
    g: () => ladder.regroup(1), G: () => ladder.regroup(-1), f: () => heat.freeze(), t: () => strip.nextTheme(), "?": help,
    l: reveal("ladder"), h: reveal("heatmap"), k: reveal("candles"), d: reveal("depth"), s: reveal("trades"), v: reveal("views"), q: reveal("sql"),
    x: reveal("explain"), p: reveal("strategies"), o: reveal("log"), r: reveal("alerts"), e: reveal("health"),
    z: () => {
      const focused = document.activeElement?.closest(".pane")?.dataset.testid?.slice("pane-".length);
      layout.enlarge(focused ?? "ladder");
    },
  },
  (number) => store.instruments[number - 1] && store.select(keyOf(store.instruments[number - 1])),
);

// A websocket that is refused for want of the token looks as one to a server that is away.
let asking = false;
connection.on("lost", async () => {
  if (asking || connection.messages) return;
  asking = true;
  try {
    const { token } = await (await fetch("health")).json();
    if (token) forgetToken();
    asking = token && (await askToken()) === "";
  } catch {
    asking = false;
  }
});

/** What tests and the curious may read; nothing can be changed through it. */
window.orderbook = Object.freeze({
  ladder: () => ladder.shownRows,
  /** The ladders of the markets beside the chosen one. */
  beside: () => beside.ladders.map(({ shownRows }) => shownRows),
  book: () => {
    const { book } = store;
    return book && { venue: book.venue, symbol: book.symbol, time: book.timeText, state: book.state, frames: book.frames, trades: book.trades.length };
  },
  /** The chosen book's past: trades, bars, volumes, and the column that is shown of each of some numbers. */
  past: (numbers = []) => {
    const { book } = store;
    const column = (number) => {
      const found = book.history.before(number);
      return found ? { state: found.state, bids: [...found.bids], asks: [...found.asks] } : null;
    };
    return book && {
      first: book.history.first, last: book.history.last, columns: numbers.map(column), traded: book.traded,
      trades: book.trades.map(({ number, time, ticks, lots, side }) => [number, time, ticks, lots, side]),
      seconds: book.seconds.rows(), minutes: book.minutes.rows(), volume: [...book.volume],
    };
  },
  /** Seconds of the past that the chosen book has, and the chart of the view. */
  reach: () => ({ book: store.book ? (store.book.history.last - store.book.history.first) / 10 : 0, view: views.reach }),
  candles: () => candles.drawn,
  charted: () => ({ view: views.charted, profit: strategies.charted }),
  connection: () => ({ state: connection.state, silence: connection.silence, messages: connection.messages, bytes: connection.bytes }),
  drawTimes,
  doubt: () => store.doubt,
  views: () => [...store.views],
});
