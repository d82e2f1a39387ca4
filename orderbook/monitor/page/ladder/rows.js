/** Which price stands on which row of the ladder, and what of the book is on it. */

/** Prices that a trader groups by, in ticks. */
export const GROUPS = [1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000];

/** Bids are grouped downwards and asks upwards, so that no row shows a better price than there is. */
export const groupOf = (side, ticks, group) => (side === "bid" ? Math.floor(ticks / group) : Math.ceil(ticks / group));

/** The rows' numbers stand still until they are moved; a row's number is its price in ticks over `group`. */
export class Rows {
  constructor() {
    this.group = 1;
    this.hideEmpty = false;
    /** The number of the row in the middle of the ladder, null before the first book. */
    this.centre = null;
    this.numbers = [];
  }

  /** Puts the middle of the market in the middle of the ladder. */
  recentre(book) {
    const middle = book.middle;
    if (middle !== null) this.centre = Math.floor(middle / this.group);
  }

  /** Moves by `rows`; up, to higher prices, where positive. */
  scroll(rows) {
    if (this.centre === null) return;
    if (!this.hideEmpty || !this.numbers.length) this.centre += rows;
    else {
      const place = Math.floor(this.numbers.length / 2) - rows;
      const first = this.numbers[0];
      const last = this.numbers[this.numbers.length - 1];
      if (place >= 0 && place < this.numbers.length) this.centre = this.numbers[place];
      else this.centre = place < 0 ? first - place : last - (place - this.numbers.length + 1);
    }
  }

  regroup(group) {
    if (this.centre !== null) this.centre = Math.floor((this.centre * this.group) / group);
    this.group = group;
  }

  /** Lays `count` rows out, the highest price first; levels: sums of both sides by row number. */
  lay(count, levels) {
    const above = Math.floor(count / 2);
    if (!this.hideEmpty) {
      this.numbers = Array.from({ length: count }, (_, row) => this.centre + above - row);
      return this.numbers;
    }
    const filled = [...new Set([...levels.bid.keys(), ...levels.ask.keys(), ...levels.kept])].sort((a, b) => b - a);
    let middle = filled.findIndex((number) => number <= this.centre);
    if (middle < 0) middle = filled.length;
    const numbers = filled.slice(Math.max(0, middle - above), middle - above + count);
    const missing = above - Math.min(middle, above);
    this.numbers = [...new Array(missing).fill(null), ...numbers];
    while (this.numbers.length < count) this.numbers.push(null);
    this.numbers.length = count;
    return this.numbers;
  }
}

/** Sums by row number of one side: Map of {lots, orders, total, changed}; total: with all better levels. */
export function sums(book, side, group) {
  const rows = new Map();
  let total = 0;
  for (const [ticks, lots, orders] of side === "bid" ? book.bids : book.asks) {
    total += lots;
    const number = groupOf(side, ticks, group);
    const row = rows.get(number);
    if (row) {
      row.lots += lots;
      row.total = total;
      row.orders = orders === null || row.orders === null ? null : row.orders + orders;
    } else rows.set(number, { lots, orders: orders ?? null, total });
  }
  return rows;
}

/** Pulled and stacked lots by row number: Map of {lots, at}, `at` the time of the last change. */
export function changes(book, side, group) {
  const rows = new Map();
  const changedAt = book.changedAt[side];
  for (const [ticks, lots] of book.changes(side)) {
    if (!lots) continue;
    const number = groupOf(side, ticks, group);
    const at = changedAt.get(ticks) ?? 0;
    const row = rows.get(number);
    if (row) {
      row.lots += lots;
      row.at = Math.max(row.at, at);
    } else rows.set(number, { lots, at });
  }
  return rows;
}

/** The newest trade of each row: Map of {lots, at}. side: "buy" lifted the asks, "sell" hit the bids. */
export function lastTrades(book, side, group, now, fade) {
  const rows = new Map();
  const trades = book.lastTrade[side];
  for (const [ticks, { lots, at }] of trades) {
    if (now - at > fade) {
      trades.delete(ticks);
      continue;
    }
    const number = groupOf(side === "buy" ? "ask" : "bid", ticks, group);
    const row = rows.get(number);
    if (!row || row.at < at) rows.set(number, { lots, at });
  }
  return rows;
}
