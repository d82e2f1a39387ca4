/** What the page knows: instruments, the chosen one's book, the latest status, notes and alerts. */
import { keyOf } from "./books.js";
import { Market } from "./market.js";

const NOTES = 1000;

/** The market that all panes follow, and what is of the whole run. Emits "status" and "notes", too. */
export class Store extends Market {
  constructor(connection, books) {
    super(connection, books, "instrument");
    this.status = null;
    this.notes = [];
    /** ns that each view takes for an event, once that was measured. */
    this.costs = null;
    connection.subscribe({ topic: "instruments" }, (frame) => this.know(frame.instruments));
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
