/** How a view is kept fresh: its SQL, the triggers it became and what they cost; and what one event did to it. */
import { choice, fillChoice, make, toggle } from "../core/dom.js";
import { count, duration } from "../core/format.js";
import { Pane } from "../core/pane.js";
import { load, save } from "../core/storage.js";

const STAGES = [["overview", "Overview"], ["lineage", "Lineage"], ["sql", "SQL"], ["m3", "M3"], ["plan", "Plan"], ["maps", "Maps"], ["why", "Why"], ["costs", "Costs"]];
/** A version as `orderbook why --at` takes it. */
const VERSION = /^\s*(-?\d{1,19})\s*,\s*(\d+)\s*,\s*(\d+)\s*$/;
const LONG_PATIENCE = 120_000;
const COSTS = "Measure has a process beside the run apply the last half minute or more of its log again, with every statement timed.";
const WHY = "Choose an event: press Why beside a callback or alert in the log, or enter its version.";

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
  #why = WHY;
  #costs = COSTS;
  #version = make("input.grow", { type: "text", placeholder: "stamp,switch,sequence", "aria-label": "Version of the event", spellcheck: false, "data-testid": "why-version" });
  #form = make("form.line", { hidden: true },
    this.#version,
    make("button", { type: "button", title: "The last event that was applied", onclick: () => this.#newest(), "data-testid": "why-newest" }, "Newest"),
    make("button.primary", { type: "submit", "data-testid": "why-ask" }, "Why"));
  #measure = make("div.line", { hidden: true },
    make("button.primary", { type: "button", onclick: () => this.#askCosts(), "data-testid": "costs-ask" }, "Measure"));

  constructor(store, connection) {
    super("explain", "Explain", { live: false });
    this.#store = store;
    this.#connection = connection;
    this.bar.append(this.#view);
    for (const [stage, label] of STAGES) {
      const button = toggle(label, `Show ${label}`, stage === this.#stage, () => {
        this.#show(stage);
      }, `explain-${stage}`);
      this.#buttons.set(stage, button);
      this.bar.append(button.element);
    }
    this.body.classList.add("scroll");
    this.body.append(this.#form, this.#measure, this.#text);
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#askWhy();
    });
    store.on("status", () => this.visible && this.#offer());
  }

  shown(visible) {
    if (visible) this.#offer();
  }

  /** Explains what the event of a version did to a view. */
  why(view, version) {
    this.#wanted = view;
    fillChoice(this.#view, this.#store.views, view);
    this.#ask(view);
    this.#version.value = version.join(",");
    this.#show("why");
    this.#askWhy();
  }

  draw() {
    const known = { ...this.#answer, why: this.#why, costs: this.#costs };
    const stage = this.#answer && !this.#textOf(known, this.#stage) ? "sql" : this.#stage;
    this.#form.hidden = stage !== "why";
    this.#measure.hidden = stage !== "costs";
    for (const [name, button] of this.#buttons) {
      button.show(name === stage);
      button.element.hidden = Boolean(this.#answer) && !this.#textOf(known, name);
    }
    const text = this.#answer || stage === "why" || stage === "costs" ? this.#textOf(known, stage) : this.#asked;
    if (this.#text.textContent !== text) this.#text.textContent = text;
  }

  #show(stage) {
    this.#stage = stage;
    save("explain", stage);
    this.changed();
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

  /** Puts the version of the last event into the field. */
  #newest() {
    const subscription = this.#connection.subscribe({ topic: "view", view: this.#wanted, limit: 1 }, ({ version }) => {
      this.#version.value = version.join(",");
      subscription.cancel();
    });
  }

  async #askWhy() {
    const view = this.#wanted;
    const found = VERSION.exec(this.#version.value);
    this.#why = found ? `looking up what ${this.#version.value} did to ${view} …` : "A version is a stamp, a switch and a sequence, as 1767623400000000000,0,17.";
    this.changed();
    if (!found) return;
    const [, stamp, switched, sequence] = found;
    try {
      const { text } = await this.#connection.request({ op: "why", view, at: [stamp, Number(switched), Number(sequence)] }, LONG_PATIENCE);
      this.#why = text;
    } catch (error) {
      this.#why = error.message;
    }
    this.changed();
  }

  async #askCosts() {
    this.#costs = "measuring …";
    this.changed();
    try {
      const { events, views, text } = await this.#connection.request({ op: "costs" }, LONG_PATIENCE);
      this.#store.costs = new Map(Object.entries(views));
      const each = Object.entries(views).map(([view, nanoseconds]) => `  ${view}: ${duration(nanoseconds)}`);
      this.#costs = [`time for an event, the mean of ${count(events)}, with all statements timed:`, "", ...each, "", text].join("\n");
    } catch (error) {
      this.#costs = error.message;
    }
    this.changed();
  }

  async #ask(view) {
    if (view !== this.#wanted) this.#why = WHY;
    this.#wanted = view;
    this.#answer = null;
    this.#asked = `explaining ${view} …`;
    this.changed();
    try {
      const answer = await this.#connection.request({ op: "explain", view }, LONG_PATIENCE);
      if (view === this.#wanted) this.#answer = answer;
    } catch (error) {
      if (view === this.#wanted) this.#asked = error.message;
    }
    this.changed();
  }
}
