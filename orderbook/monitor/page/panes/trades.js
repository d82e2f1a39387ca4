/** Time and sales: trades as they happen, newest first. */
import { Canvas } from "../core/canvas.js";
import { make, saving } from "../core/dom.js";
import { clock } from "../core/format.js";
import { Pane } from "../core/pane.js";
import { settings } from "../core/storage.js";
import { theme } from "../core/theme.js";

const ROW = 17;
const HEAD = 20;

export class TradesPane extends Pane {
  #store;
  #canvas;
  #settings = settings("trades", { smallest: 0 }, () => this.changed());
  #skipped = 0;
  #held = null;
  #wheel = 0;

  constructor(store) {
    super("trades", "Time & sales");
    this.#store = store;
    this.slim = true;
    this.#canvas = new Canvas("Time and sales, newest first", "trades", () => this.changed());
    this.body.append(this.#canvas.box);
    const filter = make("input.number", { type: "number", min: "0", step: "any", value: this.#settings.values.smallest, "aria-label": "Trades from size" });
    filter.addEventListener("input", () => this.#settings.set({ smallest: Math.max(0, filter.valueAsNumber || 0) }));
    this.bar.append(make("label.inline", { title: "Smaller trades are not listed" }, make("span.where-wide", {}, "Size from"), filter));
    this.bar.append(saving("CSV", "Save the trades listed as CSV", () => `${store.book?.symbol ?? "trades"}-trades.csv`, () => this.csv(), "trades-csv"));
    this.#canvas.element.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.#wheel += event.deltaMode === 1 ? event.deltaY * ROW : event.deltaY;
      const rows = Math.trunc(this.#wheel / ROW);
      this.#wheel -= rows * ROW;
      this.#scroll(rows);
    }, { passive: false });
    this.#canvas.element.addEventListener("keydown", (event) => {
      const rows = { ArrowUp: -1, ArrowDown: 1, PageUp: -20, PageDown: 20, Home: -1e9 }[event.key];
      if (!rows) return;
      event.preventDefault();
      this.#scroll(rows);
    });
    store.on("book", () => this.changed());
    store.on("select", () => this.#scroll(-1e9));
    theme.on("change", () => this.changed());
  }

  /** Scrolled back, the list stands still although trades come. */
  #scroll(rows) {
    this.#skipped = Math.max(0, this.#skipped + rows);
    if (!this.#skipped) this.#held = null;
    else this.#held ??= this.#store.book?.trades[this.#store.book.trades.length - 1] ?? null;
    this.changed();
  }

  /** The trades that the list has, newest first. */
  csv() {
    const { book } = this.#store;
    const trades = book ? this.#chosen(book, Infinity) : [];
    const lines = trades.map(({ time, ticks, lots, side }) => [new Date(time).toISOString(), book.symbol, book.scale.price(ticks), book.scale.size(lots), side].join(","));
    return ["time,symbol,price,size,side", ...lines, ""].join("\r\n");
  }

  draw(now) {
    const { colours } = theme;
    const canvas = this.#canvas;
    const { book } = this.#store;
    if (!canvas.begin(colours.panel)) return;
    const { context, width } = canvas;
    context.textBaseline = "middle";
    context.font = `11px ${theme.words}`;
    context.fillStyle = colours.muted;
    const columns = [8, width * 0.6, width - 24];
    context.textAlign = "left";
    context.fillText(this.#held ? "Time · held, Home goes on" : "Time", columns[0], HEAD / 2);
    context.textAlign = "right";
    context.fillText("Price", columns[1], HEAD / 2);
    context.fillText("Size", columns[2], HEAD / 2);
    context.fillStyle = colours.line;
    context.fillRect(0, HEAD - 1, width, 1);
    if (!book) return;
    const trades = this.#chosen(book, Math.floor((canvas.height - HEAD) / ROW) + 1);
    if (!trades.length) {
      context.textAlign = "center";
      context.fillStyle = colours.muted;
      context.fillText("No trades yet", width / 2, HEAD + 24);
      return;
    }
    const most = Math.max(...trades.map(({ lots }) => lots));
    trades.forEach((trade, row) => drawTrade(context, trade, HEAD + row * ROW, { width, columns, colours, most, now, scale: book.scale }));
  }

  #chosen(book, count) {
    const least = this.#settings.values.smallest / book.scale.lot;
    const found = [];
    let skip = this.#skipped;
    let from = book.trades.length - 1;
    if (this.#held) from = Math.max(0, book.trades.lastIndexOf(this.#held));
    for (let k = from; k >= 0 && found.length < count; k--) {
      if (book.trades[k].lots < least) continue;
      if (skip > 0) skip--;
      else found.push(book.trades[k]);
    }
    return found;
  }
}

function drawTrade(context, { time, ticks, lots, side, shown }, y, { width, columns, colours, most, now, scale }) {
  const colour = side === "sell" ? colours.ask : side === "buy" ? colours.bid : colours.text;
  const middle = y + ROW / 2 + 0.5;
  const fresh = Math.max(0, 1 - (now - shown) / 600);
  context.fillStyle = side === "sell" ? colours.askSoft : side === "buy" ? colours.bidSoft : colours.line;
  const length = (lots / most) * (width - columns[1] - 12);
  context.fillRect(width - length, y + 1, length, ROW - 1);
  if (fresh) {
    context.globalAlpha = 0.5 * fresh;
    context.fillRect(0, y, width, ROW);
    context.globalAlpha = 1;
  }
  context.font = `12px ${theme.numbers}`;
  context.fillStyle = colours.muted;
  context.textAlign = "left";
  context.fillText(clock(time, 3), columns[0], middle);
  context.fillStyle = colour;
  context.textAlign = "right";
  context.fillText(scale.price(ticks), columns[1], middle);
  context.fillStyle = colours.text;
  context.fillText(scale.size(lots), columns[2], middle);
  context.fillStyle = colour;
  context.textAlign = "center";
  context.fillText(side === "sell" ? "▼" : side === "buy" ? "▲" : "·", width - 11, middle);
}
