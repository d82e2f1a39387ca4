/** Any view as a live table, and one of its columns over time, a line for each key. */
import { choice, fillChoice, make, saving, setText, toggle } from "../core/dom.js";
import { count } from "../core/format.js";
import { Pane } from "../core/pane.js";
import { Lines } from "../core/past.js";
import { Series } from "../core/series.js";
import { settings } from "../core/storage.js";
import { Table } from "../core/table.js";

const LIMIT = 500;
const TABLE_EVERY = 100;
const SERIES_EVERY = 250;
/** Lines that can still be told apart. */
const LINES = 12;
/** Milliseconds until a chosen view that the engine does not have is given up; one that was just added is soon there. */
const AWAITED = 10_000;
const NUMERIC = /int|decimal|double|float|numeric|real/i;

export class ViewsPane extends Pane {
  #store;
  #connection;
  #subscription = null;
  #subscribed = null;
  #frame = null;
  #drawn = null;
  #tableAt = 0;
  #seriesAt = 0;
  #timer = 0;
  #settings = settings("views", { view: "", columns: {}, linked: false });
  #table;
  #series;
  #lines = new Lines((line) => this.#addLine(line));
  #view;
  #column;
  #linked;
  #note;

  constructor(store, connection) {
    super("views", "Views");
    this.#store = store;
    this.#connection = connection;
    this.#table = new Table("Rows of the view", "view-table", (column) => this.#chooseColumn(column));
    this.#series = new Series("Chosen column over time", "view-series");
    this.#view = choice("View", [], "", (view) => this.choose(view), "view-choice");
    this.#column = choice("Column of the chart", [], "", (column) => this.#chooseColumn(column), "view-column");
    this.#linked = toggle("This instrument", "Only rows of the chosen instrument", this.#settings.values.linked, (linked) => {
      this.#settings.set({ linked });
      this.#linked.show(linked);
      this.#restart();
    });
    this.#note = make("span.pane-note");
    const csv = saving("CSV", "Save the rows shown as CSV", () => `${this.#settings.values.view}.csv`, () => this.#table.csv(), "view-csv");
    this.bar.append(this.#view, this.#column, this.#linked.element, csv, this.#note);
    this.body.classList.add("split");
    this.body.append(make("div.table-box", {}, this.#table.element), this.#series.element);
    store.on("status", () => this.#showViews());
    store.on("select", () => this.#settings.values.linked && this.#restart());
  }

  /** The chart's points: names, and of each the values by time. */
  get charted() {
    return this.#series.points;
  }

  /** Seconds between its oldest and its newest point. */
  get reach() {
    return this.#series.reach;
  }

  /** Shows another view. */
  choose(view) {
    this.#settings.set({ view });
    this.#charted = "";
    this.#chosenAt = performance.now();
    fillChoice(this.#view, this.#names(), view);
    this.#restart();
  }

  shown(visible) {
    if (visible) this.#showViews();
    this.#follow();
    this.#lines.pause(!visible);
  }

  draw(now) {
    const frame = this.#frame;
    if (!frame) return;
    const fresh = frame !== this.#drawn;
    // Once more after the last frame, when marks of changed values are over.
    if (!fresh && now - this.#tableAt > 10 * TABLE_EVERY) return;
    if (now - this.#tableAt >= (fresh ? TABLE_EVERY : 5 * TABLE_EVERY)) {
      this.#tableAt = now;
      this.#drawn = frame;
      const keys = frame.columns.flatMap(([name], at) => (frame.keys.includes(name) ? [at] : []));
      this.#table.set(frame.columns, this.#rows(), keys);
      const all = `${count(frame.count)} ${frame.count === 1 ? "row" : "rows"}`;
      setText(this.#note, frame.rows.length < frame.count ? `cut: the first ${count(frame.rows.length)} of ${all}` : all);
    }
    if (now - this.#seriesAt >= SERIES_EVERY) {
      this.#seriesAt = now;
      this.#series.draw();
    }
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.changed(), TABLE_EVERY);
  }

  #chosenAt = performance.now();

  #names() {
    const { views } = this.#store;
    const { view } = this.#settings.values;
    const awaited = view && !views.includes(view) && performance.now() - this.#chosenAt < AWAITED;
    return awaited ? [...views, view] : views;
  }

  #showViews() {
    const names = this.#names();
    if (typeof this.#store.status?.preparing === "string") {
      setText(this.#note, "views are being compiled");
      return;
    }
    if (!names.length) return;
    const { view } = this.#settings.values;
    if (!names.includes(view)) this.choose(names[names.length - 1]);
    else {
      fillChoice(this.#view, names, view);
      this.#follow();
    }
  }

  #follow() {
    const { view } = this.#settings.values;
    const wanted = this.visible && view ? view : null;
    if (wanted === this.#subscribed) return;
    this.#subscription?.cancel();
    this.#subscribed = wanted;
    this.#subscription = wanted
      ? this.#connection.subscribe({ topic: "view", view: wanted, limit: LIMIT }, (frame) => this.#take(frame), (problem) => {
          setText(this.#note, problem);
          this.#subscribed = null;
        })
      : null;
  }

  #restart() {
    this.#frame = this.#drawn = null;
    this.#follow();
    this.#redrawLines();
  }

  /** The chart anew, from the past on. */
  #redrawLines() {
    this.#series.clear();
    const { view } = this.#settings.values;
    this.#lines.follow(view && this.#charted ? `view ${view}` : null);
  }

  #take(frame) {
    this.#frame = frame;
    const numeric = frame.columns.filter(([name, type]) => NUMERIC.test(type) && !frame.keys.includes(name)).map(([name]) => name);
    const chosen = this.#settings.values.columns[frame.view];
    const column = numeric.includes(chosen) ? chosen : (numeric[numeric.length - 1] ?? "");
    fillChoice(this.#column, numeric, column);
    if (column !== this.#charted) {
      this.#charted = column;
      this.#redrawLines();
    }
    this.changed();
  }

  /** The column whose chart is shown. */
  #charted = "";

  #addLine({ at, keys, columns, rows }) {
    const column = columns.indexOf(this.#charted);
    if (column < 0) return;
    const symbol = this.#settings.values.linked && this.#store.book ? keys.indexOf("symbol") : -1;
    const values = new Map();
    for (const [named, numbers] of rows) {
      if (values.size >= LINES) break;
      if (symbol >= 0 && named[symbol] !== this.#store.book.symbol) continue;
      values.set(named.join(" ") || this.#settings.values.view, numbers[column] === null ? null : Number(numbers[column]));
    }
    this.#series.add(1000 * at, values);
    this.changed();
  }

  #rows() {
    const { columns, rows } = this.#frame;
    if (!this.#settings.values.linked || !this.#store.book) return rows;
    const at = columns.findIndex(([name]) => name === "symbol");
    return at < 0 ? rows : rows.filter((row) => row[at] === this.#store.book.symbol);
  }

  #chooseColumn(column) {
    const frame = this.#frame;
    const type = frame?.columns.find(([name]) => name === column)?.[1];
    if (!frame || !NUMERIC.test(type ?? "") || frame.keys.includes(column)) return;
    this.#settings.set({ columns: { ...this.#settings.values.columns, [frame.view]: column } });
    this.#column.value = this.#charted = column;
    this.#redrawLines();
    this.changed();
  }
}
