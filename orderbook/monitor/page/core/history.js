/** What a book looked like: a column each 100 ms, and one a second for longer, of which the newest are kept. */

/** Milliseconds of a column; columns kept: a little under seven minutes; and seconds: a little over half an hour. */
export const COLUMN = 100;
const KEPT = 4096;
const SECONDS = 2048;
const A_SECOND = 1000 / COLUMN;
/** Columns by which time may go back before another past begins, as that of another run does. */
const BACK = 50;

const secondOf = (number) => Math.floor(number / A_SECOND);

/** Columns by number: the time in milliseconds since 1970 divided by COLUMN. */
export class History {
  #columns = new Array(KEPT);
  #seconds = new Array(SECONDS);
  #begin = -1;
  #every = 1;

  constructor() {
    this.first = this.last = -1;
  }

  /** The server's columns, {coarse, fine, every}, and after them those of `own`. */
  static of({ coarse, fine, every }, own) {
    const made = new History();
    made.#every = every;
    for (const column of coarse) made.#keep(column);
    for (const column of fine) made.#put(column);
    if (coarse.length) made.first = Math.min(coarse[0].number, fine[0]?.number ?? Infinity);
    const end = made.last;
    for (let k = Math.max(own.first, own.last - KEPT + 1, end); k <= own.last; k++) {
      const column = own.at(k);
      if (column) made.#put(column);
    }
    return made;
  }

  /** The column of `number`, {number, bids, asks, state} with [ticks, lots] side by side, best first; or undefined. */
  at(number) {
    const column = this.#columns[number % KEPT];
    return column?.number === number ? column : undefined;
  }

  /** The newest column not after `number`, within `reach` columns, or seconds where columns are forgotten. */
  before(number, reach = 20) {
    for (let k = Math.min(number, this.last); k >= Math.max(this.first, number - reach); k--) {
      const column = this.at(k);
      if (column) return column;
    }
    if (number >= Math.max(this.#begin, this.last - KEPT + 1) + reach) return undefined;
    const second = secondOf(number);
    for (let k = second; k > second - 2 - Math.max(this.#every, reach / A_SECOND); k--) {
      const column = this.#seconds[k % SECONDS];
      if (column && secondOf(column.number) === k && column.number <= number) return column;
    }
    return undefined;
  }

  /** Takes a frame in: its book is that of its column until a later frame of the same column. */
  add(time, bids, asks, state) {
    this.#put({ number: Math.floor(time / COLUMN), bids: flat(bids), asks: flat(asks), state });
  }

  #put(column) {
    const { number } = column;
    if (number < this.last - BACK) this.#forget();
    if (number < this.last) return;
    if (this.first < 0) this.first = number;
    if (this.#begin < 0) this.#begin = number;
    if (this.last >= 0 && secondOf(number) > secondOf(this.last)) this.#keep(this.at(this.last));
    this.last = number;
    this.first = Math.max(this.first, number - SECONDS * A_SECOND);
    this.#columns[number % KEPT] = column;
  }

  /** A column is the last of its second. */
  #keep(column) {
    if (column) this.#seconds[secondOf(column.number) % SECONDS] = column;
  }

  #forget() {
    this.#columns.fill(undefined);
    this.#seconds.fill(undefined);
    this.first = this.last = this.#begin = -1;
    this.#every = 1;
  }
}

function flat(levels) {
  const flattened = new Float64Array(levels.length * 2);
  for (let k = 0; k < levels.length; k++) {
    flattened[2 * k] = levels[k][0];
    flattened[2 * k + 1] = levels[k][1];
  }
  return flattened;
}
