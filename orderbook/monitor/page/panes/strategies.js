/** Strategies: what they did, what they hold, and what it is worth. */
import { make, setText } from "../core/dom.js";
import { count } from "../core/format.js";
import { Pane } from "../core/pane.js";
import { Lines } from "../core/past.js";
import { Series } from "../core/series.js";
import { Table } from "../core/table.js";

const EVERY = 250;
const POSITIONS = [["symbol", "text"], ["strategy", "text"], ["position", "decimal"], ["profit", "decimal"], ["mark", "decimal"], ["venue", "text"], ["book", "text"], ["cash", "decimal"], ["funding", "decimal"]];
// Columns that are left out where all rows have one value, which is told elsewhere; a book that is not valid is told.
const ALIKE = new Set(["strategy", "venue", "book", "funding"]);
const ORDERS = [["order", "int"], ["side", "text"], ["price", "decimal"], ["left", "decimal"], ["ahead", "decimal"], ["strategy", "text"]];

export class StrategiesPane extends Pane {
  #store;
  #summary = make("div.cards", { "data-testid": "strategies" });
  #positions = new Table("Positions", "positions");
  #orders = new Table("Working orders of the chosen instrument", "orders");
  #profit = new Series("Profit over time", "profit");
  #positionsBox = make("div.table-box", {}, this.#positions.element);
  #ordersBox = make("div.table-box.low", {}, this.#orders.element);
  #ordersHead = make("h3");
  #lines = new Lines(({ at, values }) => {
    this.#profit.add(1000 * at, new Map(Object.entries(values)));
    this.changed();
  });
  #at = 0;

  constructor(store) {
    super("strategies", "Strategies");
    this.#store = store;
    this.body.classList.add("stack");
    this.body.append(
      this.#summary,
      this.#positionsBox,
      this.#ordersHead, this.#ordersBox,
      make("h3", {}, "Profit"), this.#profit.element,
    );
    store.on("status", () => this.changed());
    this.#lines.pause(true);
    this.#lines.follow("profit");
    store.on("book", () => this.visible && performance.now() - this.#at > EVERY && this.changed());
  }

  /** The chart's points, as of ViewsPane. */
  get charted() {
    return this.#profit.points;
  }

  shown(visible) {
    this.#lines.pause(!visible);
  }

  draw(now) {
    const { status, book } = this.#store;
    if (!status) return;
    this.#at = now;
    const { strategies } = status;
    const cards = strategies.map((strategy) => card(strategy, (row) => this.#store.stateOf(row)));
    cards.push(...(status.gateways ?? []).map(gateway));
    const none = typeof status.preparing === "string" ? "Strategies begin with the run." : "This run has no strategies.";
    this.#summary.replaceChildren(...(cards.length ? cards : [make("p.empty", {}, none)]));
    const rows = strategies.flatMap(({ name, positions }) => positions.map((row) => [row.symbol, name, row.position, row.profit, row.mark, row.venue, this.#store.stateOf(row), row.cash, row.funding]));
    const shown = POSITIONS.flatMap(([name], at) => {
      const values = new Set(rows.map((row) => row[at]));
      const said = name === "funding" ? !rows.some((row) => row[at]) : name !== "book" || values.has("valid");
      return ALIKE.has(name) && values.size < 2 && said ? [] : [at];
    });
    const keys = shown.flatMap((at, place) => (["symbol", "strategy", "venue"].includes(POSITIONS[at][0]) ? [place] : []));
    this.#positions.set(shown.map((at) => POSITIONS[at]), rows.map((row) => shown.map((at) => row[at])), keys);
    const orders = (book?.orders ?? []).map(({ strategy, id, side, price, left, ahead }) => [
      id, side, price === null ? "market" : book.scale.price(price), book.scale.size(left), ahead === null || ahead === undefined ? null : book.scale.size(ahead), strategy,
    ]);
    this.#positionsBox.style.flex = `0 0 ${32 + 20 * strategies.reduce((sum, { positions }) => sum + positions.length, 0)}px`;
    this.#ordersBox.hidden = !orders.length;
    setText(this.#ordersHead, `Working orders of ${book?.symbol ?? "the instrument"}${orders.length ? "" : ": none"}`);
    this.#orders.set(ORDERS, orders, [0, 5]);
    this.#profit.draw();
  }
}

/** An order gateway: whether orders are really sent, and what differs from the venue. */
function gateway({ venue, mode, mainnet, ready, trouble, open_orders: open, outside, unexplained, reconciled_seconds: since }) {
  const differs = (name, volumes) => Object.entries(volumes).map(([symbol, volume]) => `${name} ${volume} ${symbol}`);
  const lines = [
    `${open} open`, since === null ? "not compared yet" : `compared ${since.toFixed(0)} s ago`, ...differs("traded by others", outside), ...differs("unexplained", unexplained),
  ];
  return make("div.card", { "data-testid": `gateway-${venue}` },
    make("strong", {}, `${venue}: ${mode === "live" ? (mainnet ? "REAL MONEY" : "testnet, live") : "dry run"}`),
    make(`span.badge.${ready ? "good" : "bad"}`, {}, ready ? "ready" : trouble ?? "not ready"), make("p", {}, lines.join(" · ")));
}

function card({ name, callbacks, orders, fills, refused, failed, positions }, stateOf) {
  const profit = positions.reduce((sum, row) => sum + Number(row.profit ?? 0), 0);
  const number = (label, value) => make("span", {}, `${label} `, make("b", {}, value));
  const shown = `${profit > 0 ? "+" : profit < 0 ? "−" : ""}${Math.abs(profit).toFixed(2)}`;
  const element = make("div.card", {}, make("strong", {}, name), number("PnL", shown), number("callbacks", count(callbacks)), number("orders", count(orders)), number("fills", count(fills)), number("refused", count(refused)));
  if (positions.some((row) => Number(row.position) && stateOf(row) !== "valid")) element.append(make("span.badge.bad", {}, "valued at a book that is not valid"));
  if (failed) {
    const problem = make("span.badge.bad");
    setText(problem, `failed: ${failed}`);
    element.append(problem);
  }
  return element;
}
