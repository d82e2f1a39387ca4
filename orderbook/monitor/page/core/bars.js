/** What was traded in each second or minute, of which the newest are kept. */
export class Bars {
  #most;
  #bars = new Map();

  /** rows: as the server has them, [number, open, high, low, close, bought, sold, of no side]. */
  constructor(most, rows = []) {
    this.#most = most;
    for (const [number, ...bar] of rows) this.#bars.set(number, bar);
  }

  add(number, ticks, lots, side) {
    let bar = this.#bars.get(number);
    if (!bar) {
      bar = [ticks, ticks, ticks, ticks, 0, 0, 0];
      this.#bars.set(number, bar);
      if (this.#bars.size > this.#most) this.#bars.delete(this.#bars.keys().next().value);
    }
    bar[1] = Math.max(bar[1], ticks);
    bar[2] = Math.min(bar[2], ticks);
    bar[3] = ticks;
    bar[side === "buy" ? 4 : side === "sell" ? 5 : 6] += lots;
  }

  /** [number, open, high, low, close, bought, sold, of no side], by number. */
  rows() {
    return [...this.#bars].map(([number, bar]) => [number, ...bar]).sort(([a], [b]) => a - b);
  }
}
