/** What happens, newest first: callbacks, orders, fills, alerts and warnings. */
import { make, toggle } from "../core/dom.js";
import { clock, milliseconds } from "../core/format.js";
import { Pane } from "../core/pane.js";
import { settings } from "../core/storage.js";

const KINDS = ["callback", "order", "fill", "alert", "warning"];
const SHOWN = 150;

export class LogPane extends Pane {
  #store;
  #settings = settings("log", { hidden: [], linked: false }, () => this.changed());
  #list = make("ol.log", { "data-testid": "log" });

  constructor(store) {
    super("log", "Log");
    this.#store = store;
    this.body.classList.add("scroll");
    this.body.append(this.#list);
    for (const kind of KINDS) {
      const button = toggle(`${kind}s`, `Show ${kind}s`, !this.#settings.values.hidden.includes(kind), (shown) => {
        const hidden = this.#settings.values.hidden.filter((given) => given !== kind);
        this.#settings.set({ hidden: shown ? hidden : [...hidden, kind] });
        button.show(shown);
      });
      this.bar.append(button.element);
    }
    const linked = toggle("This instrument", "Only of the chosen instrument", this.#settings.values.linked, (on) => {
      this.#settings.set({ linked: on });
      linked.show(on);
    });
    this.bar.append(linked.element);
    store.on("notes", () => this.changed());
    store.on("select", () => this.changed());
  }

  draw() {
    const { hidden, linked } = this.#settings.values;
    const symbol = this.#store.book?.symbol;
    const chosen = [];
    for (let k = this.#store.notes.length - 1; k >= 0 && chosen.length < SHOWN; k--) {
      const note = this.#store.notes[k];
      if (!hidden.includes(note.kind) && (!linked || note.symbol === symbol)) chosen.push(note);
    }
    if (!chosen.length) this.#list.replaceChildren(make("li.empty", {}, "Nothing has happened yet."));
    else this.#list.replaceChildren(...chosen.map(({ time, kind, text }) => make(`li.${kind}`, {}, make("time", {}, clock(milliseconds(time), 3)), make("span.kind", {}, kind), make("span", {}, text))));
  }
}
