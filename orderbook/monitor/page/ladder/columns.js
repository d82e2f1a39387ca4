/** The ladder's columns: which fit, and where they stand. From the price outwards, the same on both sides. */

/** name, what its head says, its width in characters, and its place when room is short: the highest goes first. */
export const COLUMNS = [
  { name: "traded", head: ["Sells", "Buys"], width: 6, leaves: 3, title: "Last traded" },
  { name: "size", head: ["Bids", "Asks"], width: 6.6, leaves: 0, title: "Size" },
  { name: "change", head: ["±5s", "±5s"], width: 6.7, leaves: 4, title: "Pulled and stacked" },
  { name: "total", head: ["Σ", "Σ"], width: 5.8, leaves: 5, title: "Cumulative depth" },
  { name: "orders", head: ["#", "#"], width: 3.2, leaves: 6, title: "Orders" },
  { name: "own", head: ["ahead·Own", "Own·ahead"], width: 10, leaves: 2, title: "Own orders and queue" },
];

/** Whether every column that is not hidden fits. */
export function allFit(width, character, priceCharacters, hidden) {
  const wanted = COLUMNS.filter(({ name }) => name === "size" || !hidden.includes(name));
  const needed = wanted.reduce((sum, column) => sum + column.width, 0);
  return (2 * needed + priceCharacters + 2) * character <= width;
}

/** Places in CSS pixels: {price: {x, width}, bid: {name: {x, width}}, ask: …}; the size columns take what is left.
 *  Where room is short, the column of own orders is the first to go until there was one: `owns`. */
export function place(width, character, priceCharacters, hidden, owns) {
  const price = Math.ceil((priceCharacters + 2) * character);
  const side = (width - price) / 2;
  let shown = COLUMNS.filter(({ name }) => name === "size" || !hidden.includes(name));
  const needed = () => shown.reduce((sum, column) => sum + column.width * character, 0);
  while (needed() > side && shown.length > 1) {
    const rank = ({ name, leaves }) => (name === "own" && !owns ? COLUMNS.length + 1 : leaves);
    const leaving = Math.max(...shown.map(rank));
    shown = shown.filter((column) => rank(column) !== leaving);
  }
  const spare = Math.max(0, side - needed());
  const places = { price: { x: side, width: price }, bid: {}, ask: {}, shown };
  let offset = 0;
  for (const { name, width: characters } of shown) {
    const room = characters * character + (name === "size" ? spare : 0);
    places.bid[name] = { x: side - offset - room, width: room };
    places.ask[name] = { x: side + price + offset, width: room };
    offset += room;
  }
  return places;
}
