/** A table of any number of rows, sorted by a click on a head; only what is seen is in the document. */
import "../vendor/regular-table.js";
import { cell } from "./format.js";

const NUMBERS = /int|decimal|double|float|numeric|real|number/i;
/** Milliseconds for which a changed value is marked. */
const FLASH = 300;

/** A value as RFC 4180 has it; what a spreadsheet would take for a formula stays a text. */
function csvField(value) {
  if (value === null || value === undefined) return "";
  const text = typeof value === "string" && /^[=+@\t\r]|^-(?![\d.])/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export class Table {
  #columns = [];
  #rows = [];
  #order = [];
  #sort = null;
  #drawing = false;
  #again = false;
  #before = new Map();
  #flashes = new Map();
  #keys = [];
  #picked = null;

  /** picked: called with a column's name at a click into it, or undefined. */
  constructor(label, testId, picked) {
    this.element = document.createElement("regular-table");
    this.element.setAttribute("aria-label", label);
    this.element.dataset.testid = testId;
    this.#picked = picked;
    this.element.setDataListener((...window) => Promise.resolve(this.#window(...window)), { virtual_mode: "both" });
    this.element.addStyleListener(() => this.#style());
    this.element.addEventListener("click", (event) => this.#clicked(event));
  }

  /** columns: [name, type] each; rows: arrays; keys: numbers of the columns that tell
   *  rows apart, by which changed values are shown for a moment. */
  set(columns, rows, keys = []) {
    const changed = JSON.stringify(columns) !== JSON.stringify(this.#columns);
    this.#columns = columns;
    this.#rows = rows;
    this.#keys = keys;
    if (changed) {
      this.#sort = null;
      this.#before.clear();
      this.#flashes.clear();
      this.element.resetAutoSize?.();
    }
    if (keys.length) this.#compare(performance.now());
    this.#arrange();
    this.draw();
  }

  /** What is shown as CSV: heads, then every row in its order, with values as they came. */
  csv() {
    const rows = this.#order.map((row) => this.#rows[row]);
    return [this.#columns.map(([name]) => name), ...rows].map((row) => row.map(csvField).join(",")).join("\r\n") + "\r\n";
  }

  /** Draws again; while a drawing is under way, once after it. */
  async draw() {
    if (!this.element.isConnected) return;
    if (this.#drawing) {
      this.#again = true;
      return;
    }
    this.#drawing = true;
    try {
      await this.element.draw();
    } finally {
      this.#drawing = false;
    }
    if (this.#again) {
      this.#again = false;
      this.draw();
    }
  }

  #arrange() {
    this.#order = this.#rows.map((_, row) => row);
    if (!this.#sort) return;
    const { column, down } = this.#sort;
    const numeric = NUMBERS.test(this.#columns[column]?.[1] ?? "");
    const value = (row) => (numeric ? Number(this.#rows[row][column] ?? Number.NaN) : String(this.#rows[row][column] ?? ""));
    this.#order.sort((a, b) => {
      const [first, second] = [value(a), value(b)];
      const way = numeric ? (Number.isNaN(first) ? 1 : Number.isNaN(second) ? -1 : first - second) : first.localeCompare(second);
      return down ? -way : way;
    });
  }

  #keyOf(row) {
    return JSON.stringify(this.#keys.map((at) => row[at]));
  }

  #compare(now) {
    const seen = new Map();
    for (const row of this.#rows) {
      const key = this.#keyOf(row);
      seen.set(key, row);
      const before = this.#before.get(key);
      if (!before) continue;
      for (let x = 0; x < row.length; x++) if (row[x] !== before[x]) this.#flashes.set(`${key} ${x}`, now);
    }
    this.#before = seen;
    for (const [key, at] of this.#flashes) if (now - at > FLASH) this.#flashes.delete(key);
  }

  #window(x0, y0, x1, y1) {
    const data = [];
    for (let x = x0; x < Math.min(x1, this.#columns.length); x++) {
      const type = this.#columns[x][1];
      data.push(this.#order.slice(y0, y1).map((row) => cell(this.#rows[row][x], type)));
    }
    const heads = this.#columns.slice(x0, x1).map(([name], k) => {
      const sorted = this.#sort?.column === x0 + k;
      return [sorted ? `${name} ${this.#sort.down ? "↓" : "↑"}` : name];
    });
    return { num_rows: this.#order.length, num_columns: this.#columns.length, data, column_headers: heads };
  }

  #style() {
    const now = performance.now();
    for (const element of this.element.querySelectorAll("tbody td, thead tr:last-child th")) {
      const meta = this.element.getMeta(element);
      if (!meta || meta.x === undefined) continue;
      element.classList.toggle("numeric", NUMBERS.test(this.#columns[meta.x]?.[1] ?? ""));
      if (element.tagName !== "TD") continue;
      const row = this.#rows[this.#order[meta.y]];
      const flash = row && this.#keys.length ? this.#flashes.get(`${this.#keyOf(row)} ${meta.x}`) : undefined;
      element.classList.toggle("fresh", flash !== undefined && now - flash < FLASH);
    }
  }

  #clicked(event) {
    const target = event.target.closest("th, td");
    const meta = target && this.element.getMeta(target);
    if (!meta || meta.x === undefined) return;
    if (target.tagName === "TH") {
      const same = this.#sort?.column === meta.x;
      this.#sort = same && this.#sort.down ? null : { column: meta.x, down: same };
      this.#arrange();
      this.draw();
    } else this.#picked?.(this.#columns[meta.x][0], this.#rows[this.#order[meta.y]]);
  }
}
