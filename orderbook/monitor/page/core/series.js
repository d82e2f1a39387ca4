/** Lines over time, drawn by uPlot; kept to a number of points, and of lines. */
import { cell, clock } from "./format.js";
import { theme } from "./theme.js";
import { decimals } from "./ticks.js";

/** Told apart by lightness and dash as well as by hue. */
const DASHES = [[], [6, 3], [2, 2], [10, 3, 2, 3]];
const KEPT = 2400;
const MOST_NAMES = 24;

export class Series {
  #plot = null;
  #names = [];
  #data = [[]];
  #label;

  constructor(label, testId) {
    this.#label = label;
    this.element = document.createElement("div");
    this.element.className = "series";
    this.element.dataset.testid = testId;
    this.element.setAttribute("role", "img");
    this.element.setAttribute("aria-label", label);
    new ResizeObserver(() => this.#resize()).observe(this.element);
    theme.on("change", () => this.#rebuild());
  }

  /** How many points there are. */
  get length() {
    return this.#data[0].length;
  }

  /** Names, and times in seconds with the values of each name. */
  get points() {
    return { names: [...this.#names], data: this.#data.map((column) => [...column]) };
  }

  /** Seconds between the oldest point and the newest. */
  get reach() {
    const [times] = this.#data;
    return times.length ? times[times.length - 1] - times[0] : 0;
  }

  clear() {
    this.#names = [];
    this.#data = [[]];
    this.#rebuild();
  }

  /** Adds a point of each name: Map of name to a number or null; time in milliseconds since 1970. */
  add(time, values) {
    const seconds = time / 1000;
    const times = this.#data[0];
    if (times.length && seconds <= times[times.length - 1]) return;
    const added = [...values.keys()].filter((name) => !this.#names.includes(name)).slice(0, MOST_NAMES - this.#names.length);
    for (const name of added) {
      this.#names.push(name);
      this.#data.push(new Array(times.length).fill(null));
    }
    times.push(seconds);
    this.#names.forEach((name, k) => this.#data[k + 1].push(values.get(name) ?? null));
    if (times.length > KEPT * 1.1) for (const column of this.#data) column.splice(0, column.length - KEPT);
    if (added.length) this.#rebuild();
  }

  draw() {
    if (!this.#plot) this.#rebuild();
    if (!this.#plot) return;
    this.#plot.setData(this.#data);
    // Without a pointer on the chart its legend has the newest values.
    if (this.#plot.cursor.left < 0) this.#plot.setLegend({ idx: this.length - 1 });
  }

  #resize() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    if (this.#plot) this.#plot.setSize({ width, height: this.#height(height) });
    else this.#rebuild();
  }

  #height(height) {
    return Math.max(40, height - (this.#names.length ? 22 : 0));
  }

  #rebuild() {
    this.#plot?.destroy();
    this.#plot = null;
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height || !this.#names.length) return;
    const { colours } = theme;
    const strokes = [colours.accent, colours.bid, colours.ask, colours.text, colours.muted];
    const axis = { stroke: colours.muted, grid: { stroke: colours.line, width: 0.5 }, ticks: { stroke: colours.line, width: 0.5, size: 4 }, font: `11px ${theme.numbers}` };
    const series = this.#names.map((label, k) => ({
      label, stroke: strokes[k % strokes.length], width: 1.25, dash: DASHES[Math.floor(k / strokes.length) % DASHES.length], points: { show: false }, spanGaps: false,
      value: (_, value) => cell(value),
    }));
    this.#plot = new window.uPlot({
      width, height: this.#height(height), series: [{ label: "time", value: (_, seconds) => (seconds === null ? "–" : clock(seconds * 1000, 1)) }, ...series], legend: { live: true },
      cursor: { points: { size: 5 }, drag: { x: true, y: false } },
      axes: [{ ...axis, size: 24, space: 80, values: (_, places) => places.map((seconds) => clock(seconds * 1000)) }, { ...axis, values: (plot, places, _, space, step) => places.map((value) => value.toFixed(decimals(step))), size: (plot, values) => Math.max(44, 8 + 7 * Math.max(0, ...(values ?? []).map((text) => text.length))) }],
      scales: { x: { time: true } }, padding: [8, 10, 0, 0],
    }, this.#data, this.element);
  }
}
