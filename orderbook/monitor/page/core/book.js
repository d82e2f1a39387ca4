/** One instrument's book as its frames tell it, with what of the past the panes show. */
import { milliseconds, Scale } from "./format.js";
import { Bars } from "./bars.js";
import { COLUMN, History } from "./history.js";

const TRADES = 20_000;
const FILLS = 200;
/** Prices of which is known what was traded there. */
const PRICES = 20_000;
/** Seconds and minutes of which is known what was traded. */
const SECONDS = 2048;
const MINUTES = 1440;
/** Milliseconds over which a level's change is counted. */
export const WINDOW = 5000;

/** ticks and lots are integers. Levels are [ticks, lots, orders or null], best first. */
export class Book {
  constructor(instrument) {
    this.venue = instrument.venue;
    this.symbol = instrument.symbol;
    this.scale = new Scale(instrument.tick, instrument.lot);
    this.bids = [];
    this.asks = [];
    this.sizes = { bid: new Map(), ask: new Map() };
    this.changedAt = { bid: new Map(), ask: new Map() };
    this.#begin();
    this.fills = [];
    this.orders = [];
    this.hadOrders = false;
    this.marks = [];
    this.state = "syncing";
    this.reason = "no frame yet";
    this.time = 0;
    this.timeText = "";
    this.frames = 0;
    this.history = new History();
  }

  /** Nothing was traded yet. */
  #begin() {
    this.trades = [];
    /** The number of the newest trade that was told. */
    this.traded = 0;
    this.lastTrade = { buy: new Map(), sell: new Map() };
    this.volume = new Map();
    this.seconds = new Bars(SECONDS);
    this.minutes = new Bars(MINUTES);
  }

  get bestBid() {
    return this.bids.length ? this.bids[0][0] : null;
  }

  get bestAsk() {
    return this.asks.length ? this.asks[0][0] : null;
  }

  /** The middle in ticks, with a half; the only side's best where there is one side; else null. */
  get middle() {
    if (this.bestBid === null || this.bestAsk === null) return this.bestBid ?? this.bestAsk;
    return (this.bestBid + this.bestAsk) / 2;
  }

  /** Takes in a frame of the topic "book"; first: its trades and fills may be known already. */
  take(frame, now, first = false) {
    this.time = milliseconds(frame.time);
    this.timeText = frame.time;
    this.frames++;
    this.state = frame.state;
    this.reason = frame.reason;
    this.sizes.bid = this.#levels(frame.bids, this.sizes.bid, this.changedAt.bid, now);
    this.sizes.ask = this.#levels(frame.asks, this.sizes.ask, this.changedAt.ask, now);
    this.bids = frame.bids;
    this.asks = frame.asks;
    this.orders = frame.orders ?? [];
    this.hadOrders ||= this.orders.length > 0;
    this.marks = frame.marks ?? [];
    // Another run counts from the beginning.
    if (frame.traded < this.traded) this.#begin();
    const trades = frame.trades ?? [];
    trades.forEach((trade, k) => {
      const number = frame.traded - trades.length + 1 + k;
      if (number > this.traded) this.#trade(trade, now, number);
    });
    this.traded = frame.traded;
    for (const [time, strategy, side, ticks, lots] of unknown(frame.fills, first, this.fills)) {
      this.fills.push({ time: milliseconds(time), strategy, side, ticks, lots, shown: this.#shownAt(time, now) });
    }
    if (this.trades.length > TRADES * 1.25) this.trades.splice(0, this.trades.length - TRADES);
    if (this.fills.length > FILLS * 1.25) this.fills.splice(0, this.fills.length - FILLS);
    this.history.add(this.time, frame.bids, frame.asks, frame.state);
  }

  /** Takes over the past as the server has it; what came meanwhile goes on from there. */
  restore(past) {
    this.history = History.of(past, this.history);
    const newer = this.trades.filter(({ number }) => number > past.traded);
    const { lastTrade } = this;
    this.trades = past.trades.slice(-TRADES);
    this.volume = new Map(past.volume);
    this.seconds = new Bars(SECONDS, past.seconds);
    this.minutes = new Bars(MINUTES, past.minutes);
    for (const trade of newer) this.#count(trade);
    this.lastTrade = lastTrade;
    const fills = past.fills.map(([time, strategy, side, ticks, lots]) => ({ time: milliseconds(time), strategy, side, ticks, lots, shown: 0 }));
    const last = fills.length ? fills[fills.length - 1].time : -Infinity;
    this.fills = [...fills, ...this.fills.filter(({ time }) => time > last)].slice(-FILLS);
  }

  #levels(levels, before, changedAt, now) {
    const sizes = new Map();
    for (const level of levels) {
      sizes.set(level[0], level);
      this.scale.see(level[1]);
      if (before.get(level[0])?.[1] !== level[1]) changedAt.set(level[0], now);
    }
    for (const ticks of before.keys()) if (!sizes.has(ticks)) changedAt.set(ticks, now);
    if (changedAt.size > 4 * sizes.size + 256) {
      for (const [ticks, at] of changedAt) if (now - at > WINDOW) changedAt.delete(ticks);
    }
    return sizes;
  }

  /** When what happened at `time` would have been seen: now, but for what happened before the page was opened. */
  #shownAt(time, now) {
    const age = this.time - milliseconds(time);
    return age > 500 ? now - age : now;
  }

  #count(trade) {
    const { time, ticks, lots, side } = trade;
    this.trades.push(trade);
    keep(this.volume, ticks, (this.volume.get(ticks) ?? 0) + lots);
    this.seconds.add(Math.floor(time / 1000), ticks, lots, side);
    this.minutes.add(Math.floor(time / 60_000), ticks, lots, side);
  }

  #trade([time, ticks, lots, side], now, number) {
    const at = this.#shownAt(time, now);
    this.#count({ time: milliseconds(time), ticks, lots, side, number, shown: at });
    const last = this.lastTrade[side === "sell" ? "sell" : "buy"];
    const before = last.get(ticks);
    // Trades at one price in one breath are one sweep to the eye.
    if (before && at - before.at < 300) {
      before.lots += lots;
      before.at = at;
    } else keep(last, ticks, { lots, at, side });
  }

  /** Lots by which each level of `side` changed within WINDOW other than by trades: stacked above 0, pulled below. */
  changes(side) {
    const column = this.history.before(Math.floor((this.time - WINDOW) / COLUMN));
    const found = new Map();
    if (!column) return found;
    const then = side === "bid" ? column.bids : column.asks;
    const levels = side === "bid" ? this.bids : this.asks;
    for (const [ticks, lots] of levels) found.set(ticks, lots);
    for (let k = 0; k < then.length; k += 2) found.set(then[k], (found.get(then[k]) ?? 0) - then[k + 1]);
    const since = (column.number + 1) * COLUMN;
    for (let k = this.trades.length - 1; k >= 0 && this.trades[k].time >= since; k--) {
      const { ticks, lots, side: aggressor } = this.trades[k];
      if ((aggressor === "buy") === (side === "ask") && found.has(ticks)) found.set(ticks, found.get(ticks) + lots);
    }
    return this.#seenAtBothTimes(found, then, levels, side === "bid" ? -1 : 1);
  }

  /** Without levels that one of the two looks did not reach, as frames have so many levels at most. */
  #seenAtBothTimes(found, then, levels, outward) {
    if (!then.length || !levels.length) return new Map();
    const reach = outward * Math.min(outward * then[then.length - 2], outward * levels[levels.length - 1][0]);
    for (const ticks of found.keys()) if (outward * (ticks - reach) > 0) found.delete(ticks);
    return found;
  }
}

/** Puts a price where it is the last to be forgotten. */
function keep(prices, ticks, value) {
  prices.delete(ticks);
  prices.set(ticks, value);
  if (prices.size > PRICES) prices.delete(prices.keys().next().value);
}

/** What is newer than all of `known`, where only that is wanted. */
function unknown(given, first, known) {
  if (!given || !first || !known.length) return given ?? [];
  const last = known[known.length - 1].time;
  return given.filter(([time]) => milliseconds(time) > last);
}
