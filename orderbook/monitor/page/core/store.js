/** What the page knows: instruments, the chosen one's book, the latest status, notes and alerts. */
import { Book } from "./book.js";
import { Emitter } from "./emitter.js";
import { pastOf } from "./past.js";
import { load, save } from "./storage.js";

const DEPTH = 200;
const NOTES = 1000;
/** Books whose past is kept while another is shown. */
const BOOKS = 4;

export const keyOf = ({ venue, symbol }) => `${venue}\u0000${symbol}`;

/** Emits "instruments", "select", "book", "status", "notes". */
export class Store extends Emitter {
  #connection;
  #subscription = null;
  #books = new Map();
  #wanted = load("instrument", null);

  constructor(connection) {
    super();
    this.#connection = connection;
    this.instruments = [];
    this.selected = null;
    this.book = null;
    this.status = null;
    this.notes = [];
    this.problem = "";
    /** ns that each view takes for an event, once that was measured. */
    this.costs = null;
    connection.subscribe({ topic: "instruments" }, (frame) => this.#instruments(frame.instruments));
    connection.subscribe({ topic: "status" }, (frame) => {
      this.status = frame;
      this.emit("status", frame);
    });
    connection.subscribe({ topic: "notes" }, (frame, first) => this.#notes(frame.notes, first));
  }

  /** The state of the book of a venue's symbol; "" for one that the run does not have. */
  stateOf(named) {
    const key = keyOf(named);
    return this.instruments.find((given) => keyOf(given) === key)?.state ?? "";
  }

  /** The names of all views, as the engine tells them. */
  get views() {
    return (this.status?.engine.views ?? []).map(({ view }) => view);
  }

  /** Shows the instrument of this key in every pane. */
  select(key) {
    const instrument = this.instruments.find((given) => keyOf(given) === key);
    if (!instrument || key === this.selected) return;
    this.selected = key;
    this.#wanted = key;
    save("instrument", key);
    this.#subscription?.cancel();
    this.book = this.#bookOf(instrument, key);
    const book = this.book;
    const { venue, symbol } = instrument;
    this.problem = "";
    this.#subscription = this.#connection.subscribe(
      { topic: "book", venue, symbol, depth: DEPTH },
      (frame, first) => {
        book.take(frame, performance.now(), first);
        if (first) this.#recall(book);
        this.emit("book", book);
      },
      (problem) => {
        this.problem = problem;
        this.emit("book", book);
      },
    );
    this.emit("select", instrument);
    this.emit("book", book);
  }

  /** What happened before the first frame, and while there was no connection, as the server knows it. */
  async #recall(book) {
    try {
      const past = await pastOf(book);
      if (!past) return;
      book.restore(past);
      this.emit("book", book);
    } catch {
      // Without a past the page begins with what comes.
    }
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
    if (this.problem) return this.problem;
    if (!this.book) return this.instruments.length ? "no instrument" : "no instruments yet";
    if (this.book.state !== "valid") return `${this.book.state}${this.book.reason ? `: ${this.book.reason}` : ""}`;
    return "";
  }

  #instruments(instruments) {
    this.instruments = instruments;
    this.emit("instruments", instruments);
    const known = instruments.some((given) => keyOf(given) === this.selected);
    if (known || !instruments.length) return;
    const wanted = instruments.find((given) => keyOf(given) === this.#wanted) ?? instruments[0];
    this.select(keyOf(wanted));
  }

  #bookOf(instrument, key) {
    const book = this.#books.get(key) ?? new Book(instrument);
    this.#books.delete(key);
    this.#books.set(key, book);
    if (this.#books.size > BOOKS) this.#books.delete(this.#books.keys().next().value);
    return book;
  }

  #notes(given, first) {
    // A new connection begins with all notes that the server kept, of which some are here already.
    const known = new Set(first ? this.notes.map((note) => JSON.stringify(note)) : []);
    const notes = known.size ? given.filter((note) => !known.has(JSON.stringify(note))) : given;
    if (!notes.length) return;
    this.notes.push(...notes);
    if (this.notes.length > NOTES) this.notes.splice(0, this.notes.length - NOTES);
    this.emit("notes", notes);
  }
}
