/** Rules on values of views, the server's and the page's own, and what is done when one comes to hold. */
import { condition, rowOf } from "./condition.js";
import { Emitter } from "./emitter.js";
import { milliseconds } from "./format.js";
import { load, save } from "./storage.js";

const LIMIT = 1000;
const KEPT = 500;

/** Emits "alert" for each and "rules" when the rules change. A rule is {name, view, when, from: "page" or "server",
 *  problem: why it cannot be evaluated}. */
export class Alerts extends Emitter {
  #connection;
  #own = new Map();
  #server = [];
  #told = new Set();
  #first = true;

  constructor(connection, store) {
    super();
    this.#connection = connection;
    this.log = [];
    this.sound = load("sound", false);
    for (const rule of load("rules", [])) {
      try {
        this.#start(rule);
      } catch {
        // A rule of an older page that cannot be read is gone.
      }
    }
    store.on("status", (status) => this.#fromServer(status.alerts ?? []));
    connection.on("state", (state) => state === "live" && this.refresh());
  }

  get rules() {
    return [...this.#server, ...[...this.#own.values()].map(({ rule, problem }) => ({ ...rule, problem, from: "page" }))];
  }

  /** Adds a rule of the page, or replaces that of the same name; throws where `when` cannot be read. */
  add(rule) {
    condition(rule.when);
    this.remove(rule.name);
    this.#start(rule);
    this.#keep();
  }

  remove(name) {
    this.#own.get(name)?.subscription.cancel();
    this.#own.delete(name);
    this.#keep();
  }

  /** Asks the server for its rules; one that knows none is no problem. */
  async refresh() {
    try {
      const { rules } = await this.#connection.request({ op: "rules" });
      this.#server = rules.map((rule) => ({ ...rule, from: "server" }));
    } catch {
      this.#server = [];
    }
    this.emit("rules");
  }

  /** Lets a sound be heard, from a click on: browsers allow none before. */
  hear(sound) {
    this.sound = sound;
    save("sound", sound);
    if (sound) beep();
  }

  #keep() {
    save("rules", [...this.#own.values()].map(({ rule }) => rule));
    this.emit("rules");
  }

  #start(rule) {
    const state = { rule, held: null, problem: "", ...condition(rule.when) };
    state.subscription = this.#connection.subscribe(
      { topic: "view", view: rule.view, limit: LIMIT },
      (frame) => this.#evaluate(state, frame),
      (problem) => this.#doubt(state, problem),
    );
    this.#own.set(rule.name, state);
  }

  /** A rule alerts when it comes to hold of a row, not while it goes on to hold, and not of what was so before. */
  #evaluate(state, frame) {
    const missing = state.columns.find((name) => !frame.columns.some(([column]) => column.toLowerCase() === name));
    const cut = frame.rows.length < frame.count ? `looks at the first ${frame.rows.length} of ${frame.count} rows; let the server evaluate it` : "";
    this.#doubt(state, missing ? `${frame.view} has no column ${missing}` : cut);
    if (missing) return;
    const held = new Set();
    const keys = frame.columns.flatMap(([name], at) => (frame.keys.includes(name) ? [at] : []));
    for (const values of frame.rows) {
      const row = rowOf(frame.columns, values);
      if (!state.holds(row)) continue;
      const key = keys.map((at) => values[at]);
      const text = JSON.stringify(key);
      held.add(text);
      if (state.held && !state.held.has(text)) {
        this.#raise({ name: state.rule.name, view: frame.view, key, time: frame.version ? milliseconds(frame.version[0]) : Date.now(), text: state.rule.when });
      }
    }
    state.held = held;
  }

  #doubt(state, problem) {
    if (problem === state.problem) return;
    state.problem = problem;
    this.emit("rules");
  }

  #fromServer(alerts) {
    for (const alert of alerts) {
      const id = JSON.stringify([alert.name, alert.view, alert.key, alert.time]);
      if (this.#told.has(id)) continue;
      this.#told.add(id);
      this.#raise({ ...alert, time: milliseconds(alert.time) }, this.#first);
    }
    this.#first = false;
    if (this.#told.size > 4 * KEPT) this.#told = new Set([...this.#told].slice(-KEPT));
  }

  #raise(alert, old = false) {
    this.log.push(alert);
    if (this.log.length > KEPT) this.log.shift();
    if (this.sound && !old) beep();
    this.emit("alert", { ...alert, old });
  }
}

let audio = null;
let beeped = 0;

/** Two short tones, at most one pair a second. */
function beep() {
  const now = performance.now();
  if (now - beeped < 1000) return;
  beeped = now;
  audio ??= new AudioContext();
  audio.resume();
  [880, 1174].forEach((pitch, k) => {
    const tone = audio.createOscillator();
    const volume = audio.createGain();
    const start = audio.currentTime + k * 0.12;
    tone.frequency.value = pitch;
    volume.gain.setValueAtTime(0.08, start);
    volume.gain.exponentialRampToValueAtTime(0.001, start + 0.1);
    tone.connect(volume).connect(audio.destination);
    tone.start(start);
    tone.stop(start + 0.11);
  });
}
