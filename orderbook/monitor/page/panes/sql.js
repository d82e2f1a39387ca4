/** Ad-hoc SQL on a consistent snapshot, and adding what it says as a view. */
import { make, setText } from "../core/dom.js";
import { count, duration } from "../core/format.js";
import { Pane } from "../core/pane.js";
import { load, save } from "../core/storage.js";
import { Table } from "../core/table.js";
import { changing } from "../core/token.js";

const PAST = 30;

export class SqlPane extends Pane {
  #connection;
  #added;
  #text;
  #name;
  #outcome = make("p.outcome", { role: "status", "data-testid": "sql-outcome" });
  #table = new Table("Result", "sql-result");
  #past = load("sql", []);
  #place = null;

  /** added: called with the name of a view that was added. */
  constructor(store, connection, added) {
    super("sql", "SQL", { live: false });
    store.on("status", () => {
      // Something that works here, as long as nothing was ever written.
      if (!this.#text.value && !this.#past.length && store.views.length && document.activeElement !== this.#text) {
        this.#text.value = `SELECT * FROM ${store.views[store.views.length - 1]}`;
      }
    });
    this.#connection = connection;
    this.#added = added;
    this.#text = make("textarea", { value: this.#past[0] ?? "", spellcheck: false, rows: 4, "aria-label": "SQL", "data-testid": "sql-text" });
    this.#text.addEventListener("keydown", (event) => this.#key(event));
    this.#name = make("input", { type: "text", placeholder: "view name", "aria-label": "Name of the view", size: 14, "data-testid": "view-name" });
    const run = make("button.primary", { type: "button", title: "Run (Ctrl Enter)", onclick: () => this.#run(), "data-testid": "sql-run" }, "Run");
    const add = make("button", { type: "button", title: "Keep the result fresh, as a view", onclick: () => this.#add(), "data-testid": "sql-add" }, "Add as view");
    this.bar.append(run, this.#name, add);
    this.body.classList.add("stack");
    this.body.append(this.#text, this.#outcome, make("div.table-box", {}, this.#table.element));
  }

  draw() {
    this.#table.draw();
  }

  #key(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.#run();
    else if (event.key === "ArrowUp" && event.altKey) this.#recall(1);
    else if (event.key === "ArrowDown" && event.altKey) this.#recall(-1);
    else return;
    event.preventDefault();
  }

  #recall(step) {
    const place = (this.#place ?? 0) + step;
    if (this.#past[place] === undefined) return;
    this.#place = place;
    this.#text.value = this.#past[place];
  }

  async #run() {
    const sql = this.#text.value.trim();
    if (!sql) return;
    this.#remember(sql);
    this.#say("running …");
    try {
      const { columns, rows, count: all, truncated, seconds } = await this.#connection.request({ op: "sql", sql });
      this.#table.set(columns, rows);
      this.#say(`${count(all)} ${all === 1 ? "row" : "rows"}${truncated ? `, the first ${count(rows.length)} shown` : ""} in ${duration(seconds * 1e9)}`);
    } catch (error) {
      this.#say(error.message, true);
    }
  }

  async #add() {
    const sql = this.#text.value.trim().replace(/;\s*$/, "");
    const written = /^\s*CREATE\s+(?:MATERIALIZED\s+)?VIEW\s+("[^"]+"|\w+)/i.exec(sql);
    const shipped = /^[a-z_]+\/([a-z_]+)$/.exec(sql);
    const name = shipped ? shipped[1] : written ? written[1].replaceAll('"', "") : this.#name.value.trim();
    if (!/^[A-Za-z_]\w*$/.test(name)) {
      this.#say("a view needs a name: letters, digits and _", true);
      this.#name.focus();
      return;
    }
    this.#remember(this.#text.value.trim());
    this.#say("compiling …");
    try {
      await changing(this.#connection, { op: "add_view", sql: written || shipped ? sql : `CREATE VIEW ${name} AS\n${sql}` });
      this.#say(`${name} is a view now`);
      this.#added(name);
    } catch (error) {
      this.#say(error.message, true);
    }
  }

  #remember(sql) {
    this.#past = [sql, ...this.#past.filter((given) => given !== sql)].slice(0, PAST);
    this.#place = null;
    save("sql", this.#past);
  }

  #say(text, bad = false) {
    setText(this.#outcome, text);
    this.#outcome.classList.toggle("problem", bad);
  }
}
