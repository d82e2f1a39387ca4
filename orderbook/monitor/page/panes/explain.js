/** How a view is kept fresh: its SQL, the triggers it became, and what they cost. */
import { choice, fillChoice, make, toggle } from "../core/dom.js";
import { Pane } from "../core/pane.js";
import { load, save } from "../core/storage.js";

const STAGES = [["overview", "Overview"], ["sql", "SQL"], ["m3", "M3"], ["plan", "Plan"], ["maps", "Maps"]];

export class ExplainPane extends Pane {
  #store;
  #connection;
  #stage = load("explain", "overview");
  #answer = null;
  #wanted = "";
  #asked = "";
  #text = make("pre.text", { tabIndex: 0, "data-testid": "explain-text" });
  #view = choice("View", [], "", (view) => this.#ask(view), "explain-view");
  #buttons = new Map();

  constructor(store, connection) {
    super("explain", "Explain");
    this.#store = store;
    this.#connection = connection;
    this.bar.append(this.#view);
    for (const [stage, label] of STAGES) {
      const button = toggle(label, `Show ${label}`, stage === this.#stage, () => {
        this.#stage = stage;
        save("explain", stage);
        this.changed();
      }, `explain-${stage}`);
      this.#buttons.set(stage, button);
      this.bar.append(button.element);
    }
    this.body.classList.add("scroll");
    this.body.append(this.#text);
    store.on("status", () => this.visible && this.#offer());
  }

  shown(visible) {
    if (visible) this.#offer();
  }

  draw() {
    const known = this.#answer ?? {};
    const stage = this.#answer && !this.#textOf(known, this.#stage) ? "sql" : this.#stage;
    for (const [name, button] of this.#buttons) {
      button.show(name === stage);
      button.element.hidden = Boolean(this.#answer) && !this.#textOf(known, name);
    }
    const text = this.#answer ? this.#textOf(known, stage) : this.#asked;
    if (this.#text.textContent !== text) this.#text.textContent = text;
  }

  #textOf(answer, stage) {
    const value = answer[stage];
    return Array.isArray(value) ? value.map((part) => (typeof part === "string" ? part : JSON.stringify(part))).join("\n") : (value ?? "");
  }

  #offer() {
    const { views } = this.#store;
    if (!views.length) return;
    const view = views.includes(this.#wanted) ? this.#wanted : views[views.length - 1];
    fillChoice(this.#view, views, view);
    if (view !== this.#wanted) this.#ask(view);
  }

  async #ask(view) {
    this.#wanted = view;
    this.#answer = null;
    this.#asked = `explaining ${view} …`;
    this.changed();
    try {
      const answer = await this.#connection.request({ op: "explain", view });
      if (view === this.#wanted) this.#answer = answer;
    } catch (error) {
      if (view === this.#wanted) this.#asked = error.message;
    }
    this.changed();
  }
}
