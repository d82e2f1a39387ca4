/** What is marked on rows of the ladder besides the book: own orders, volumes, the last trade, and where the market is. */
import { groupOf } from "./rows.js";

/** Own orders by side and row number: Map of {left, ahead, count}, `ahead` of the first in the queue. */
export function own(book, group) {
  const found = { bid: new Map(), ask: new Map() };
  for (const { side, price, left, ahead } of book.orders) {
    if (price === null || price === undefined) continue;
    const kind = side === "buy" ? "bid" : "ask";
    const number = groupOf(kind, price, group);
    const row = found[kind].get(number) ?? { left: 0, ahead: null, count: 0 };
    row.left += left;
    row.count++;
    if (ahead !== null && ahead !== undefined) row.ahead = row.ahead === null ? ahead : Math.min(row.ahead, ahead);
    found[kind].set(number, row);
  }
  return found;
}

/** What was traded at each row. */
export function volumes(book, group, numbers) {
  const shown = new Set(numbers);
  const found = new Map();
  for (const [ticks, lots] of book.volume) {
    const number = Math.round(ticks / group);
    if (shown.has(number)) found.set(number, (found.get(number) ?? 0) + lots);
  }
  return found;
}

/** The row of the newest trade. */
export function lastTraded(book, group) {
  const trade = book.trades[book.trades.length - 1];
  if (!trade) return null;
  const number = groupOf(trade.side === "sell" ? "bid" : "ask", trade.ticks, group);
  return { number, side: trade.side, at: trade.shown };
}

/** 1 where the market is above the ladder, -1 below it, 0 on it. */
export function away(book, rows, numbers) {
  if (book.middle === null) return 0;
  const shown = numbers.filter((number) => number !== null);
  if (!shown.length) return 0;
  const middle = book.middle / rows.group;
  if (middle > shown[0] + 0.5) return 1;
  return middle < shown[shown.length - 1] - 0.5 ? -1 : 0;
}
