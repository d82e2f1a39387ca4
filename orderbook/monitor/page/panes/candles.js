/** Candles of trades, and below them what was bought less what was sold, cumulated. */
import { choice, make, setText } from "../core/dom.js";
import { clock, short } from "../core/format.js";
import { Pane } from "../core/pane.js";
import { settings } from "../core/storage.js";
import { theme } from "../core/theme.js";
import { decimals } from "../core/ticks.js";

/** Seconds of a candle; under a minute of the last half hour, else of the last day. */
const INTERVALS = [[1, "1 s"], [5, "5 s"], [15, "15 s"], [60, "1 min"], [300, "5 min"], [900, "15 min"], [3600, "1 h"]];
/** Pixels from one candle to the next; candles that are drawn, at most. */
const PITCH = 8;
const MOST = 500;
const SYNC = "candles";

export class CandlesPane extends Pane {
  #store;
  #settings = settings("candles", { interval: 5 }, () => this.changed());
  #traded = make("div.reading", { "data-testid": "candles-reading" });
  #summed = make("div.reading", { "data-testid": "delta-reading" });
  #prices = new Chart("Candles of trades");
  #delta = new Chart("Cumulative delta");
  #seen = [];
  #candles = [];
  #pointed = null;

  constructor(store) {
    super("candles", "Candles & delta");
    this.#store = store;
    this.slim = true;
    this.body.classList.add("candles");
    this.body.append(this.#traded, this.#prices.element, this.#summed, this.#delta.element);
    this.bar.append(make("label.inline", {}, choice("Time of a candle", INTERVALS, this.#settings.values.interval, (value) => this.#settings.set({ interval: Number(value) }), "candles-interval")));
    for (const chart of [this.#prices, this.#delta]) {
      chart.changed = () => this.#again();
      chart.pointed = (index) => {
        this.#pointed = index;
        this.#read();
      };
    }
    store.on("book", () => this.changed());
    theme.on("change", () => {
      for (const chart of [this.#prices, this.#delta]) chart.forget();
      this.#again();
    });
  }

  /** What is drawn: [seconds since 1970 at which it begins, open, high, low, close in ticks, lots bought, sold, of no
   *  side, and bought less sold since the first that is drawn]. */
  get drawn() {
    return this.#candles.map((candle) => [...candle]);
  }

  #again() {
    this.#seen = [];
    this.changed();
  }

  draw() {
    const { book } = this.#store;
    const width = this.#prices.room;
    if (!book || !width) return;
    const { interval } = this.#settings.values;
    const last = Math.floor(book.time / 1000 / interval);
    // Frames without a trade leave all as it is.
    const now = [book, book.seconds, book.traded, interval, last, width];
    if (now.every((value, k) => value === this.#seen[k])) return;
    this.#seen = now;
    const count = Math.max(2, Math.min(MOST, Math.floor(width / PITCH)));
    const unit = interval < 60 ? 1 : 60;
    const bars = (unit === 1 ? book.seconds : book.minutes).grouped(interval / unit, last - count + 1);
    let cumulative = 0;
    this.#candles = bars.map(([number, ...bar]) => {
      cumulative += bar[4] - bar[5];
      return [number * interval, ...bar, cumulative];
    });
    const range = [(last - count + 1) * interval, (last + 1) * interval];
    const times = this.#candles.map(([start]) => start + interval / 2);
    const column = (place, step) => this.#candles.map((candle) => candle[place] * step);
    const { tick, lot, priceDecimals } = book.scale;
    const gutter = Math.max(52, 16 + 7 * Math.max(0, ...this.#candles.slice(-1).map((candle) => book.scale.price(candle[2]).length)));
    const { colours } = theme;
    const price = (value, step) => value.toFixed(Math.min(priceDecimals, decimals(step)));
    const candles = [1, 2, 3, 4].map((place) => column(place, tick));
    this.#prices.draw({ range, gutter, data: [times, ...candles], text: price, times: false, paint: (plot) => paintCandles(plot, interval, colours) });
    const size = (value, step) => (Math.abs(value) < 1e4 ? value.toFixed(decimals(step)) : short(value));
    this.#delta.draw({ range, gutter, data: [times, column(8, lot)], text: size, times: true, line: colours.accent, paint: (plot) => paintZero(plot, colours) });
    this.#read();
  }

  /** The candle under the pointer, else the newest, in words. */
  #read() {
    const { book } = this.#store;
    const candle = this.#candles[this.#pointed ?? this.#candles.length - 1];
    if (!book || !candle) {
      setText(this.#traded, "No trades yet");
      setText(this.#summed, "Cumulative delta");
      return;
    }
    const [start, open, high, low, close, bought, sold, , cumulative] = candle;
    const prices = [["O", open], ["H", high], ["L", low], ["C", close]].map(([name, ticks]) => `${name} ${book.scale.price(ticks)}`);
    setText(this.#traded, `${clock(start * 1000)}  ${prices.join("  ")}`);
    const sum = `${cumulative > 0 ? "+" : ""}${book.scale.size(cumulative)} since ${clock(this.#candles[0][0] * 1000)}`;
    setText(this.#summed, `Cumulative delta ${sum}  bought ${book.scale.size(bought)}  sold ${book.scale.size(sold)}`);
  }
}

/** One of the two plots, as wide as its element; what is drawn is given anew each time. */
class Chart {
  #plot = null;
  #scene = null;
  /** What a plot is built for. */
  #built = "";

  constructor(label) {
    this.element = make("div.plot", { role: "img", "aria-label": label });
    this.changed = this.pointed = () => {};
    new ResizeObserver(() => {
      const { clientWidth: width, clientHeight: height } = this.element;
      if (this.#plot && width && height) this.#plot.setSize({ width, height });
      this.changed();
    }).observe(this.element);
  }

  /** Pixels that candles have. */
  get room() {
    return Math.max(0, this.element.clientWidth - (this.#scene?.gutter ?? 60) - 24);
  }

  forget() {
    this.#plot?.destroy();
    this.#plot = null;
  }

  /** scene: range and data in seconds since 1970, gutter in pixels, text(value, step), times: whether they are told below,
   *  line: its colour, or nothing, and paint(plot). */
  draw(scene) {
    this.#scene = scene;
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    const built = String(scene.gutter);
    if (!this.#plot || built !== this.#built) {
      this.forget();
      this.#built = built;
      this.#plot = this.#make(width, height);
    }
    this.#plot.setData(scene.data);
  }

  #make(width, height) {
    const { colours } = theme;
    const scene = () => this.#scene;
    const { data, gutter, line, times } = scene();
    const axis = { stroke: colours.muted, grid: { stroke: colours.line, width: 0.5 }, ticks: { stroke: colours.line, width: 0.5, size: 4 }, font: `11px ${theme.numbers}` };
    const series = data.slice(1).map(() => (line ? { stroke: line, width: 1.5, points: { show: false } } : { paths: () => null, points: { show: false } }));
    return new window.uPlot({
      width, height, series: [{}, ...series], legend: { show: false }, padding: [8, 24, times ? 0 : 4, 0],
      cursor: { sync: { key: SYNC }, drag: { x: false, y: false }, points: { show: false }, y: false },
      scales: { x: { time: true, range: () => scene().range } },
      axes: [
        { ...axis, size: times ? 22 : 0, space: 80, values: (_, places) => places.map((seconds) => (times ? clock(seconds * 1000) : "")) },
        { ...axis, size: gutter, space: 20, values: (_, places, __, ___, step) => places.map((value) => scene().text(value, step)) },
      ],
      hooks: {
        drawClear: [(plot) => line && scene().paint(plot)], draw: [(plot) => !line && scene().paint(plot)],
        setCursor: [(plot) => this.pointed(plot.cursor.left >= 0 ? plot.cursor.idx : null)],
      },
    }, data, this.element);
  }
}

/** Hollow where the price rose, or stayed, filled where it fell. */
function paintCandles(plot, interval, colours) {
  const { ctx: context, data: [times, open, high, low, close] } = plot;
  const ratio = devicePixelRatio || 1;
  const width = Math.max(1, Math.round(plot.valToPos(times[0] + interval, "x", true) - plot.valToPos(times[0], "x", true) - 2 * ratio));
  context.save();
  context.lineWidth = Math.max(1, Math.round(ratio));
  times.forEach((time, k) => {
    const x = Math.round(plot.valToPos(time, "x", true));
    const [o, h, l, c] = [open, high, low, close].map((column) => Math.round(plot.valToPos(column[k], "y", true)));
    const rose = close[k] >= open[k];
    context.strokeStyle = context.fillStyle = rose ? colours.bid : colours.ask;
    const half = context.lineWidth / 2;
    const [top, bottom] = [Math.min(o, c), Math.max(o, c)];
    const left = x - Math.floor(width / 2);
    context.beginPath();
    context.moveTo(x + half, h);
    context.lineTo(x + half, top);
    context.moveTo(x + half, bottom);
    context.lineTo(x + half, l);
    context.stroke();
    if (!rose || bottom - top < 2 || width < 3) context.fillRect(left, top, width, Math.max(context.lineWidth, bottom - top));
    else context.strokeRect(left + half, top + half, width - 2 * half, bottom - top - 2 * half);
  });
  context.restore();
}

function paintZero(plot, colours) {
  const { ctx: context, bbox } = plot;
  const y = Math.round(plot.valToPos(0, "y", true)) + 0.5;
  if (!(y >= bbox.top && y <= bbox.top + bbox.height)) return;
  context.save();
  context.strokeStyle = colours.faint;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(bbox.left, y);
  context.lineTo(bbox.left + bbox.width, y);
  context.stroke();
  context.restore();
}
