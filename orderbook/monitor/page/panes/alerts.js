/** Rules on values of views, and the alerts they raised; of the configuration's, what is open and silenced. */
import { choice, fillChoice, make, setText, toggle } from "../core/dom.js";
import { cell, clock, milliseconds } from "../core/format.js";
import { Pane } from "../core/pane.js";
import { changing, knownToken } from "../core/token.js";

// Milliseconds between two looks at what is open, and for which Silence keeps an alert quiet.
const LOOK = 2000;
const SILENCE_SECONDS = 3600;
const SHOWN_OPEN = 50;

export class AlertsPane extends Pane {
  #alerts;
  #store;
  #connection;
  #list = make("ul.rules", { "data-testid": "rules" });
  #log = make("ol.log", { "aria-label": "Alerts", "data-testid": "alert-log" });
  #open = make("ul.rules", { "aria-label": "Open alerts", "data-testid": "open-alerts", hidden: true });
  #looked = 0;
  #problem = make("p.problem", { role: "alert", hidden: true });
  #shownCount = -1;

  constructor(store, connection, alerts) {
    super("alerts", "Alerts");
    this.#alerts = alerts;
    this.#store = store;
    this.#connection = connection;
    this.body.classList.add("scroll");
    this.body.append(this.#form(), this.#problem, this.#open, this.#list, this.#log);
    const sound = toggle("Sound", "A sound at each alert", alerts.sound, (on) => {
      alerts.hear(on);
      sound.show(on);
    });
    this.bar.append(sound.element);
    alerts.on("rules", () => this.changed());
    alerts.on("alert", () => this.changed());
    store.on("status", () => {
      this.#offer();
      this.#look();
    });
  }

  /** Asks now and then for what is open, as long as the run has alerts in its configuration. */
  async #look(now = false) {
    if (!now && (performance.now() - this.#looked < LOOK || !this.#alerts.rules.some(({ from }) => from === "server"))) return;
    this.#looked = performance.now();
    try {
      const { alerts, silences } = await this.#connection.request({ op: "alerts" });
      const open = alerts.filter(({ over }) => over === null).slice(0, SHOWN_OPEN);
      this.#open.replaceChildren(...open.map((one) => this.#openAlert(one)), ...silences.map((one) => this.#silence(one)));
      this.#open.hidden = !this.#open.childElementCount;
    } catch {
      this.#open.hidden = true;
    }
  }

  #openAlert({ alert, name, severity, message, raised, acknowledged, acknowledged_by: by }) {
    const done = acknowledged !== null;
    const button = (text, title, request) => make("button.plain", { type: "button", title, "aria-label": `${title}: ${message}`, onclick: () => this.#change(request) }, text);
    return make("li", {}, make("time", {}, clock(milliseconds(raised), 0)), make("strong", {}, severity), make("code", {}, message),
      done ? make("span.faint", {}, `acknowledged${by ? ` by ${by}` : ""}`) : button("Acknowledge", "Nobody else is told of it", { op: "acknowledge", alert }),
      button("Silence 1 h", `${name} is told to nobody for an hour`, { op: "silence", alert: name, seconds: SILENCE_SECONDS }));
  }

  #silence({ silence, alert, match, until }) {
    const which = [alert === "*" ? "all alerts" : alert, ...Object.entries(match).map(([column, value]) => `${column} ${value}`)].join(", ");
    const end = make("button.plain", { type: "button", title: "End this silence", "aria-label": `End the silence of ${which}`, onclick: () => this.#change({ op: "end_silence", silence }) }, "×");
    return make("li", {}, make("span", {}, `Silent until ${clock(milliseconds(until), 0)}`), make("code", {}, which), end);
  }

  /** On this machine a run may need no token for it. */
  #change(request) {
    this.#try(async () => {
      try {
        await this.#connection.request({ ...request, token: knownToken() });
      } catch (error) {
        if (!/token/i.test(error.message)) throw error;
        await changing(this.#connection, request);
      }
      await this.#look(true);
    });
  }

  #offer() {
    const { views } = this.#store;
    fillChoice(this.#view, views, views.includes(this.#view.value) && this.#chosen ? this.#view.value : views[views.length - 1]);
  }

  #chosen = false;

  #view = choice("View of the rule", [], "", () => { this.#chosen = true; }, "rule-view");

  draw() {
    const rules = this.#alerts.rules;
    this.#list.replaceChildren(...rules.map((rule) => this.#rule(rule)));
    const { log } = this.#alerts;
    if (log.length === this.#shownCount && log[log.length - 1] === this.#shownLast) return;
    this.#shownCount = log.length;
    this.#shownLast = log[log.length - 1];
    this.#log.replaceChildren(...log.slice(-200).reverse().map(entry));
    if (!log.length) this.#log.append(make("li.empty", {}, rules.length ? "No rule has come to hold yet." : "Alert when a value of a view crosses a line: choose a view and write a condition over its columns."));
  }

  #shownLast = undefined;

  #rule({ name, view, when, from, problem }) {
    const remove = make("button.plain", { type: "button", title: `Remove ${name}`, "aria-label": `Remove ${name}`, onclick: () => this.#remove(name, view, from) }, "×");
    return make("li", {}, make("strong", {}, name), make("code", {}, `${view}: ${when}`), problem ? make("span.problem", {}, problem) : make("span.faint", {}, from), remove);
  }

  #form() {
    const when = make("input.grow", { type: "text", placeholder: "pressure > 2.6", "aria-label": "Condition", required: true, spellcheck: false, "data-testid": "rule-when" });
    const name = make("input", { type: "text", placeholder: "name", "aria-label": "Name of the rule", size: 10 });
    const where = choice("Where the rule is evaluated", [["page", "in this page"], ["server", "on the server"]], "page", () => {});
    const form = make("form.line", {}, this.#view, when, name, where, make("button.primary", { type: "submit", "data-testid": "rule-add" }, "Add rule"));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const rule = { name: name.value.trim() || this.#freeName(), view: this.#view.value, when: when.value };
      const added = await this.#try(async () => {
        if (where.value === "page") this.#alerts.add(rule);
        else {
          await changing(this.#connection, { op: "set_rule", rule });
          await this.#alerts.refresh();
        }
      });
      if (added) when.value = name.value = "";
    });
    return form;
  }

  #freeName() {
    const names = new Set(this.#alerts.rules.map(({ name }) => name));
    let number = 1;
    while (names.has(`rule ${number}`)) number++;
    return `rule ${number}`;
  }

  #remove(name, view, from) {
    this.#try(async () => {
      if (from === "page") this.#alerts.remove(name);
      else {
        await changing(this.#connection, { op: "set_rule", rule: { name, view, when: null } });
        await this.#alerts.refresh();
      }
    });
  }

  async #try(act) {
    let problem = "";
    try {
      await act();
    } catch (error) {
      problem = error.message;
    }
    this.#problem.hidden = !problem;
    setText(this.#problem, problem);
    return !problem;
  }
}

function entry({ time, name, view, key, text }) {
  const where = (key ?? []).map((part) => cell(part, "text")).join(" ");
  return make("li.alert", {}, make("time", {}, clock(time, 1)), make("strong", {}, name), make("span", {}, `${view} ${where}`), make("code", {}, text ?? ""));
}
