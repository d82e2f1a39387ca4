/** Numbers and times as text. Prices and sizes are exact: integers of ticks and lots, never floats, until they are text. */

/** How ticks and lots of one instrument are written. tick, lot: decimal text. */
export class Scale {
  constructor(tick, lot) {
    this.tick = Number(tick);
    this.lot = Number(lot);
    [this.tickUnits, this.priceDecimals] = parts(tick);
    [this.lotUnits, this.sizeDecimals] = parts(lot);
    this.#unit = 10 ** this.sizeDecimals;
    this.#shownDecimals = 0;
  }

  #unit;
  #shownDecimals;

  /** Takes note of a size, since many venues quote lots that are far finer than any order. */
  see(lots) {
    while (this.#unit > 1 && (lots * this.lotUnits) % this.#unit) {
      this.#unit /= 10;
      this.#shownDecimals++;
    }
  }

  /** The exact price of `ticks`. */
  price(ticks) {
    return fixed(ticks * this.tickUnits, this.priceDecimals);
  }

  /** The exact size of `lots`, without zeros at its end. */
  size(lots) {
    const text = fixed(lots * this.lotUnits, this.sizeDecimals);
    return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  }

  /** The size in at most five characters and a sign, with as many decimals as sizes had so far. */
  short(lots) {
    return short(lots * this.lot, this.#shownDecimals);
  }

  /** A price in text or number as ticks, with a fraction. */
  ticks(price) {
    return Number(price) / this.tick;
  }
}

function parts(decimal) {
  const [whole, fraction = ""] = String(decimal).split(".");
  return [Number(whole + fraction), fraction.length];
}

function fixed(units, decimals) {
  if (!decimals) return String(units);
  const sign = units < 0 ? "-" : "";
  const digits = String(Math.abs(units)).padStart(decimals + 1, "0");
  return `${sign}${digits.slice(0, -decimals)}.${digits.slice(-decimals)}`;
}

/** Four significant digits at most, and so many decimals: 0.05, 1.234, 12.34, 123.4, 1234, 12.3k, 1.2M. */
export function short(value, decimals = 3) {
  const size = Math.abs(value);
  if (size >= 9.995e8) return `${(value / 1e9).toFixed(size < 9.995e9 ? 2 : 1)}G`;
  if (size >= 9.995e5) return `${(value / 1e6).toFixed(size < 9.995e6 ? 2 : size < 9.995e7 ? 1 : 0)}M`;
  if (size >= 9999.5) return `${(value / 1e3).toFixed(size < 99_950 ? 1 : 0)}k`;
  if (size === 0) return "0";
  if (size < 0.0005 && decimals > 3) return value.toPrecision(1);
  const fitting = size >= 999.5 ? 0 : size >= 99.95 ? 1 : size >= 9.995 ? 2 : 3;
  return value.toFixed(Math.min(decimals, fitting));
}

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** 1,234,567 */
export const count = (value) => (value === null || value === undefined ? "–" : grouped.format(value));

/** Nanoseconds as 812 ns, 1.3 ms, 2.5 s. */
export function duration(nanoseconds) {
  if (nanoseconds === null || nanoseconds === undefined) return "–";
  const size = Math.abs(nanoseconds);
  const [divisor, unit] = size < 1e3 ? [1, "ns"] : size < 1e6 ? [1e3, "µs"] : size < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  const value = nanoseconds / divisor;
  return `${Math.abs(value) < 10 && divisor > 1 ? value.toFixed(1) : value.toFixed(0)} ${unit}`;
}

/** Bytes as 512 B, 1.2 kB, 18.7 MB. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const [divisor, unit] = value < 1e3 ? [1, "B"] : value < 1e6 ? [1e3, "kB"] : value < 1e9 ? [1e6, "MB"] : [1e9, "GB"];
  const scaled = value / divisor;
  return `${divisor > 1 && scaled < 100 ? scaled.toFixed(1) : scaled.toFixed(0)} ${unit}`;
}

/** Milliseconds since 1970 of text of nanoseconds. */
export const milliseconds = (time) => Number(time) / 1e6;

const pad = (value, width = 2) => String(value).padStart(width, "0");

/** Local time of day of milliseconds since 1970; digits: of the second's fraction. */
export function clock(time, digits = 0) {
  const date = new Date(time);
  const text = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  return digits ? `${text}.${pad(date.getMilliseconds(), 3).slice(0, digits)}` : text;
}

/** A view's value: exact text stays, floats have six digits, null is a dash. */
export function cell(value, type) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "true" : "false";
  if (typeof value !== "number") {
    return /^-?\d+\.\d*0+$/.test(value) && type !== "text" ? value.replace(/0+$/, "").replace(/\.$/, "") : String(value);
  }
  if (Number.isInteger(value)) return grouped.format(value);
  const size = Math.abs(value);
  if (size < 1e-9) return value.toPrecision(3);
  // Six digits after the zeros, never an exponent.
  if (size < 1) return value.toFixed(Math.min(14, 5 - Math.floor(Math.log10(size)))).replace(/0+$/, "");
  return size < 1e6 ? String(Number(value.toPrecision(6))) : grouped.format(value);
}
