/** Between which sizes the heat map's colours run: percentiles of what rests in sight, or sizes as given. */

const EVERY = 1000;
/** Columns looked at, spread over the window's times. */
const LOOKS = 12;
/** Sizes may differ so much from what is used before the whole map is painted again. */
const STEADY = 0.2;

export class Cutoffs {
  #at = 0;
  #key = "";
  #found = { from: 0, to: 1 };

  /** {from, to} in lots. mode: "percentile" or "size"; low, high: percentiles, or sizes in units of the instrument. */
  of(history, last, shape, { mode, low, high }, scale, now) {
    if (mode === "size") {
      const from = Math.max(0, low / scale.lot);
      return { from, to: Math.max(from + 1, high / scale.lot) };
    }
    const key = [shape.group, low, high, scale.tick, shape.high, shape.rows].join();
    if (key === this.#key && now - this.#at < EVERY) return this.#found;
    const [from, to] = percentiles(sizes(history, last, shape), low, high);
    const differs = (a, b) => Math.abs(a - b) > STEADY * Math.max(a, b);
    if (key !== this.#key || differs(from, this.#found.from) || differs(to, this.#found.to)) {
      this.#found = { from: Math.round(from), to: Math.max(Math.round(from) + 1, Math.round(to)) };
    }
    this.#at = now;
    this.#key = key;
    return this.#found;
  }
}

function sizes(history, last, { columns, rows, group, high, stride }) {
  const found = [];
  for (let look = 0; look < LOOKS; look++) {
    const bucket = last - Math.floor((look * columns) / LOOKS);
    const column = history.before(bucket * stride + stride - 1);
    if (!column) continue;
    const sums = new Map();
    for (const levels of [column.bids, column.asks]) {
      for (let k = 0; k < levels.length; k += 2) {
        const row = high - Math.floor(levels[k] / group);
        if (row >= 0 && row < rows) sums.set(row, (sums.get(row) ?? 0) + levels[k + 1]);
      }
    }
    found.push(...sums.values());
  }
  return found.sort((a, b) => a - b);
}

function percentiles(sorted, low, high) {
  if (!sorted.length) return [0, 1];
  const at = (percent) => sorted[Math.min(sorted.length - 1, Math.floor((percent / 100) * sorted.length))];
  return [low <= 0 ? 0 : at(low), at(high)];
}
