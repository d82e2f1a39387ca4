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

  #why;
  /** Whether the pointer is on the list, which then stands still. */
  #held = false;

  /** why: called with the view and version of a note whose event is to be explained. */
  constructor(store, why) {
    super("log", "Log");
    this.#store = store;
    this.#why = why;
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
    const hold = (held) => {
      this.#held = held;
      this.changed();
    };
    this.#list.addEventListener("pointerenter", (event) => hold(event.pointerType === "mouse"));
    this.#list.addEventListener("pointerleave", () => hold(false));
    store.on("notes", () => this.changed());
    store.on("select", () => this.changed());
  }

  draw() {
    if (this.#held && !this.#list.querySelector(".empty")) return;
    const { hidden, linked } = this.#settings.values;
    const symbol = this.#store.book?.symbol;
    const chosen = [];
    for (let k = this.#store.notes.length - 1; k >= 0 && chosen.length < SHOWN; k--) {
      const note = this.#store.notes[k];
      if (!hidden.includes(note.kind) && (!linked || note.symbol === symbol)) chosen.push(note);
    }
    if (!chosen.length) this.#list.replaceChildren(make("li.empty", {}, "Nothing has happened yet."));
    else this.#list.replaceChildren(...chosen.map((note) => this.#entry(note)));
  }

  #entry({ time, kind, text, view, version }) {
    const why = version && make("button.plain.why", { type: "button", title: `What this event did to ${view}`, onclick: () => this.#why(view, version) }, "Why");
    return make(`li.${kind}`, {}, make("time", {}, clock(milliseconds(time), 3)), make("span.kind", {}, kind), make("span.grow", {}, text), why);
  }
}
