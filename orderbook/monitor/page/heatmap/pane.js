/** The heat map of the book over time: what it shows, and what keys, wheel and pointers do to it. */
import { Canvas } from "../core/canvas.js";
import { choice, make, toggle } from "../core/dom.js";
import { clock } from "../core/format.js";
import { COLUMN } from "../core/history.js";
import { Doubt, Pane } from "../core/pane.js";
import { settings } from "../core/storage.js";
import { theme } from "../core/theme.js";
import { Cutoffs } from "./cutoffs.js";
import { drawHeat, FOOT, gatherTrades } from "./draw.js";
import { Gestures } from "./gestures.js";
import { Raster } from "./raster.js";
import { Window } from "./window.js";

const DEFAULTS = { mode: "percentile", percentile: [35, 99], size: [0, 10], smallest: 0 };

export class HeatPane extends Pane {
  #store;
  #doubt = new Doubt();
  #raster = new Raster();
  #cutoffs = new Cutoffs();
  #settings;
  #windows = new Map();
  #pointer = null;
  #canvas;
  #freeze;
  #inputs = {};
  #scene = null;

  /** store: the market that is shown; number: which of the heat maps it is. */
  constructor(store, number = 1) {
    const id = number === 1 ? "heatmap" : `heatmap-${number}`;
    super(id, number === 1 ? "Heat map" : `Heat map ${number}`, { live: false });
    this.#store = store;
    this.#settings = settings(id, DEFAULTS, () => this.changed());
    this.#canvas = new Canvas("Heat map of the book over time", id, () => this.changed());
    this.body.append(this.#canvas.box, this.#doubt.element);
    this.#buildBar();
    new Gestures(this.#canvas, {
      window: () => this.#window(),
      newest: () => this.#store.book?.history.last ?? 0,
      scene: () => this.#scene,
      point: (pointer) => {
        this.#pointer = pointer;
        this.changed();
      },
      changed: () => this.#moved(),
      recentre: () => this.recentre(),
    });
    const recolour = () => {
      const { heat0, heat1, heat2, heat3, heat4, raised } = theme.colours;
      this.#raster.setColours([heat0, heat1, heat2, heat3, heat4], raised);
      this.changed();
    };
    theme.on("change", recolour);
    recolour();
    store.on("book", () => this.changed());
    store.on("select", () => this.#moved());
  }

  /** Back to the newest time, with the market in the middle. */
  recentre() {
    const window = this.#window();
    window.right = null;
    window.centre(this.#store.book?.middle ?? null);
    this.#moved();
  }

  /** Stops or goes on; the book is kept meanwhile. */
  freeze() {
    this.#window().freeze(this.#store.book?.history.last ?? 0);
    this.#moved();
  }

  /** What the crosshair says at a point in CSS pixels, for tests and the crosshair. */
  under([x, y]) {
    const scene = this.#scene;
    const { book, group, high, stride, last, plot, pixels, history } = scene;
    const bucket = last - Math.floor((plot - x) / pixels);
    const number = high - Math.floor(y / scene.rowHeight);
    const column = history.before((bucket + 1) * stride - 1, stride + 9);
    const from = book.scale.price(number * group);
    const time = clock(column ? column.number * COLUMN : bucket * stride * COLUMN, 1);
    const sum = (levels) => {
      let lots = 0;
      for (let k = 0; k < levels.length; k += 2) if (Math.floor(levels[k] / group) === number) lots += levels[k + 1];
      return lots;
    };
    const lines = group === 1 ? [] : [`${from} – ${book.scale.price((number + 1) * group - 1)}`];
    if (!column) lines.push("nothing known");
    else if (column.state !== "valid") lines.push(column.state);
    else {
      const bid = sum(column.bids);
      const ask = sum(column.asks);
      if (bid) lines.push(`bid ${book.scale.size(bid)}`);
      if (ask) lines.push(`ask ${book.scale.size(ask)}`);
      if (!bid && !ask) lines.push("empty");
    }
    lines.push(...this.#tradesUnder(bucket, number));
    return { price: from, time, lines };
  }

  draw(now) {
    const { book, doubt } = this.#store;
    this.#doubt.show(doubt);
    const canvas = this.#canvas;
    const { colours } = theme;
    if (!book || !canvas.begin(colours.heat0) || book.history.last < 0) return;
    const scene = this.#lay(book, now);
    if (!scene) return;
    this.#scene = scene;
    scene.raster.paint(book.history, scene.last, scene);
    if (this.#pointer) scene.under = this.under(this.#pointer);
    drawHeat(canvas, scene, colours);
  }

  #lay(book, now) {
    const canvas = this.#canvas;
    const window = this.#window();
    window.follow(book.middle);
    if (window.low === null) return null;
    const font = `11px ${theme.numbers}`;
    canvas.context.font = font;
    const axis = Math.ceil(canvas.context.measureText(book.scale.price(window.low + window.span)).width) + 13;
    const profile = canvas.width > 420 ? 56 : 0;
    const plot = canvas.width - axis - profile;
    const height = canvas.height - FOOT;
    if (plot < 20 || height < 20) return null;
    const group = Math.max(1, Math.ceil(window.span / height));
    const rowHeight = height / (window.span / group);
    const rows = Math.ceil(height / rowHeight);
    const { stride, pixels } = window;
    const last = Math.floor((window.right ?? book.history.last) / stride);
    const columns = Math.ceil(plot / pixels);
    const shape = { columns, rows, group, high: Math.floor((window.low + window.span - 1) / group), stride };
    const { mode, smallest } = this.#settings.values;
    const [low, high] = this.#settings.values[mode];
    const cut = this.#cutoffs.of(book.history, last, shape, { mode, low, high }, book.scale, now);
    const least = smallest / book.scale.lot;
    return {
      ...shape, ...cut, book, discs: gatherTrades({ ...shape, book, last, pixels, smallest: least }), plot, profile, height, rowHeight, rasterHeight: rows * rowHeight, pixels, last, font,
      history: book.history, raster: this.#raster, pointer: this.#pointer,
    };
  }

  #tradesUnder(bucket, number) {
    const { book, stride, group } = this.#scene;
    const sums = { buy: 0, sell: 0 };
    for (let k = book.trades.length - 1; k >= 0; k--) {
      const { time, ticks, lots, side } = book.trades[k];
      const at = Math.floor(time / COLUMN / stride);
      if (at < bucket - 2) break;
      if (at <= bucket + 2 && Math.floor(ticks / group) === number) sums[side === "sell" ? "sell" : "buy"] += lots;
    }
    return Object.entries(sums).filter(([, lots]) => lots).map(([side, lots]) => `${side === "buy" ? "bought" : "sold"} ${book.scale.size(lots)}`);
  }

  #window() {
    const key = this.#store.selected ?? "";
    if (!this.#windows.has(key)) this.#windows.set(key, new Window());
    return this.#windows.get(key);
  }

  #moved() {
    const { right } = this.#window();
    this.#freeze.show(right !== null);
    this.element.classList.toggle("frozen", right !== null);
    this.changed();
  }

  #buildBar() {
    const zoom = (text, title, act) => make("button", { type: "button", title, "aria-label": title, onclick: () => { act(this.#window()); this.#moved(); } }, text);
    this.#freeze = toggle("Freeze", "Freeze or go on (F)", false, () => this.freeze(), this.id === "heatmap" ? "freeze" : `freeze-${this.id}`);
    const mode = choice("Colours by", [["percentile", "Percentile"], ["size", "Size"]], this.#settings.values.mode, (value) => {
      this.#settings.set({ mode: value });
      this.#showInputs();
    });
    const number = (label, changed) => {
      const input = make("input.number", { type: "number", min: "0", step: "any", title: label, "aria-label": label });
      input.addEventListener("change", () => Number.isFinite(input.valueAsNumber) && changed(input.valueAsNumber));
      return input;
    };
    const set = (place) => (value) => {
      const { mode: by } = this.#settings.values;
      const pair = [...this.#settings.values[by]];
      pair[place] = by === "percentile" ? Math.min(100, value) : value;
      this.#settings.set({ [by]: pair });
    };
    this.#inputs = {
      low: number("Colours begin at", set(0)),
      high: number("Colours end at", set(1)),
      smallest: number("Trades from size", (value) => this.#settings.set({ smallest: value })),
    };
    const cut = make("details.menu", {}, make("summary", { title: "Colour cut-offs and size of trades" }, "Cut-offs"),
      make("div.menu-body", {}, make("label", {}, "Colours by ", mode), make("label", {}, "from ", this.#inputs.low), make("label", {}, "to ", this.#inputs.high), make("label", {}, "Trades from ", this.#inputs.smallest)));
    this.bar.append(
      zoom("−", "Longer times (−)", (window) => window.zoomTime(-1)), zoom("+", "Shorter times (+)", (window) => window.zoomTime(1)),
      zoom("↕", "Fewer prices (Shift ↑)", (window) => window.zoomPrice(1 / 1.5)), zoom("⇕", "More prices (Shift ↓)", (window) => window.zoomPrice(1.5)),
      make("button", { type: "button", title: "Newest time, market in the middle (Home)", onclick: () => this.recentre() }, "Centre"),
      this.#freeze.element, cut,
    );
    this.#showInputs();
  }

  #showInputs() {
    const { mode, smallest } = this.#settings.values;
    [this.#inputs.low.value, this.#inputs.high.value] = this.#settings.values[mode];
    this.#inputs.smallest.value = smallest;
  }
}
