/** One instrument that panes look at: its book, and whether that is to be trusted. */
import { keyOf } from "./books.js";
import { Emitter } from "./emitter.js";
import { load, save } from "./storage.js";

/** Emits "instruments", "select", "book". */
export class Market extends Emitter {
  #connection;
  #books;
  #setting;
  #watch = null;
  #paused = false;
  #wanted;

  /** setting: under which the chosen instrument is kept. */
  constructor(connection, books, setting) {
    super();
    this.#connection = connection;
    this.#books = books;
    this.#setting = setting;
    this.#wanted = load(setting, null);
    this.instruments = [];
    this.selected = null;
    this.book = null;
  }

  /** Takes in the instruments of the run, and chooses the one of before, else the first. */
  know(instruments) {
    this.instruments = instruments;
    this.emit("instruments", instruments);
    const known = instruments.some((given) => keyOf(given) === this.selected);
    if (known || !instruments.length) return;
    const wanted = instruments.find((given) => keyOf(given) === this.#wanted) ?? instruments[0];
    this.select(keyOf(wanted));
  }

  /** Shows the instrument of this key in every pane of the market. */
  select(key) {
    const instrument = this.instruments.find((given) => keyOf(given) === key);
    if (!instrument || key === this.selected) return;
    this.selected = key;
    this.#wanted = key;
    save(this.#setting, key);
    this.book = null;
    this.#follow();
    this.emit("select", instrument);
    this.emit("book", this.book);
  }

  /** Receives nothing meanwhile, or goes on. */
  pause(paused) {
    if (paused === this.#paused) return;
    this.#paused = paused;
    this.#follow();
  }

  #follow() {
    this.#watch?.cancel();
    this.#watch = null;
    const instrument = this.instruments.find((given) => keyOf(given) === this.selected);
    if (this.#paused || !instrument) return;
    this.#watch = this.#books.watch(instrument, () => this.emit("book", this.book));
    this.book = this.#watch.book;
  }

  /** Why nothing that is shown is of now, or "" while frames arrive. */
  get notLive() {
    const { state, silence } = this.#connection;
    const seconds = `${(silence / 1000).toFixed(1)} s`;
    return { live: "", connecting: "connecting", disconnected: `disconnected ${seconds}`, stale: `no frames for ${seconds}` }[state];
  }

  /** The best reason why prices are not to be trusted now, or "" where they are. */
  get doubt() {
    if (this.notLive) return this.notLive;
    if (this.#watch?.problem) return this.#watch.problem;
    if (!this.book) return this.instruments.length ? "no instrument" : "no instruments yet";
    if (this.book.state !== "valid") return `${this.book.state}${this.book.reason ? `: ${this.book.reason}` : ""}`;
    return "";
  }
}
