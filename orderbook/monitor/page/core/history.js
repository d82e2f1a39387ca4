/** What a book looked like, a column each 100 ms, of which the newest are kept. */

/** Milliseconds of a column, and columns kept: a little under seven minutes. */
export const COLUMN = 100;
const KEPT = 4096;

/** Columns by number: the time in milliseconds since 1970 divided by COLUMN. */
export class History {
  #columns = new Array(KEPT);

  constructor() {
    this.first = this.last = -1;
  }

  /** The column of `number`, {number, bids, asks, state} with [ticks, lots] side by side, best first; or undefined. */
  at(number) {
    const column = this.#columns[number % KEPT];
    return column?.number === number ? column : undefined;
  }

  /** The newest column not after `number`, within `reach` columns. */
  before(number, reach = 20) {
    for (let k = Math.min(number, this.last); k >= Math.max(this.first, number - reach); k--) {
      const column = this.at(k);
      if (column) return column;
    }
    return undefined;
  }

  /** Takes a frame in: its book is that of its column until a later frame of the same column. */
  add(time, bids, asks, state) {
    const number = Math.floor(time / COLUMN);
    if (number < this.last) return;
    if (this.first < 0) this.first = number;
    this.last = number;
    this.first = Math.max(this.first, number - KEPT + 1);
    this.#columns[number % KEPT] = { number, bids: flat(bids), asks: flat(asks), state };
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
