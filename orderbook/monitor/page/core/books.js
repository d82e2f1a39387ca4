/** Books by instrument: one subscription of each that is looked at, however many panes do. */
import { Book } from "./book.js";
import { pastOf } from "./past.js";

const DEPTH = 200;
/** Books that are kept, those that nobody looks at now with their past. */
const KEPT = 4;

export const keyOf = ({ venue, symbol }) => `${venue}\u0000${symbol}`;

export class Books {
  #connection;
  #kept = new Map();

  constructor(connection) {
    this.#connection = connection;
  }

  /** Calls `changed()` at each frame of an instrument's book until `cancel()` of what it returns: {book, problem, cancel}. */
  watch(instrument, changed) {
    const key = keyOf(instrument);
    const entry = this.#kept.get(key) ?? { book: new Book(instrument), watching: new Set(), subscription: null, problem: "" };
    this.#kept.delete(key);
    this.#kept.set(key, entry);
    entry.watching.add(changed);
    this.#forget();
    if (!entry.subscription) this.#subscribe(entry, instrument);
    return {
      book: entry.book,
      get problem() {
        return entry.problem;
      },
      cancel: () => {
        entry.watching.delete(changed);
        if (entry.watching.size) return;
        entry.subscription?.cancel();
        entry.subscription = null;
      },
    };
  }

  #subscribe(entry, { venue, symbol }) {
    const tell = () => entry.watching.forEach((changed) => changed());
    entry.problem = "";
    entry.subscription = this.#connection.subscribe(
      { topic: "book", venue, symbol, depth: DEPTH },
      (frame, first) => {
        entry.book.take(frame, performance.now(), first);
        if (first) recall(entry.book, tell);
        tell();
      },
      (problem) => {
        entry.problem = problem;
        tell();
      },
    );
  }

  #forget() {
    for (const [key, { watching }] of this.#kept) {
      if (this.#kept.size <= KEPT) return;
      if (!watching.size) this.#kept.delete(key);
    }
  }
}

/** What happened before the first frame, and while there was no connection, as the server knows it. */
async function recall(book, tell) {
  try {
    const past = await pastOf(book);
    if (!past) return;
    book.restore(past);
    tell();
  } catch {
    // Without a past the page begins with what comes.
  }
}
