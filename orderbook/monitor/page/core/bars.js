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

  /** The same of longer times, `size` of these each; those from number `from` of them on. */
  grouped(size, from) {
    const found = [];
    let last = null;
    for (const [number, ...bar] of this.rows()) {
      const whole = Math.floor(number / size);
      if (whole < from) continue;
      if (last?.[0] !== whole) {
        found.push((last = [whole, ...bar]));
        continue;
      }
      last[2] = Math.max(last[2], bar[1]);
      last[3] = Math.min(last[3], bar[2]);
      last[4] = bar[3];
      for (let k = 5; k < 8; k++) last[k] += bar[k - 1];
    }
    return found;
  }

  /** [number, open, high, low, close, bought, sold, of no side], by number. */
  rows() {
    return [...this.#bars].map(([number, bar]) => [number, ...bar]).sort(([a], [b]) => a - b);
  }
}
