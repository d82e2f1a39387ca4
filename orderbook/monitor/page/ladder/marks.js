/** What stands at a price without being of the book: view values, own orders, fills, and where the market went. */
import { WINDOW } from "../core/book.js";
import { TRADE_FADE, headHeight as HEAD } from "./draw.js";

const FILL_FADE = 120_000;
/** Pixels that a label goes from its price to where it covers nothing. */
const DODGE = 120;

export function drawMarks(canvas, scene, colours) {
  drawOwn(canvas, scene, colours);
  drawFills(canvas, scene, colours);
  drawViewValues(canvas, scene, colours);
  drawAway(canvas, scene, colours);
}

/** The height of a price in ticks, between rows where it has a fraction; null beyond the ladder. */
export function heightOf(ticks, { numbers, rowHeight, group, rows }) {
  const exact = ticks / group;
  if (!rows.hideEmpty) {
    const row = numbers[0] - exact;
    return row < -0.5 || row > numbers.length - 0.5 ? null : HEAD + (row + 0.5) * rowHeight;
  }
  const row = numbers.findIndex((number) => number !== null && number <= exact);
  if (row < 0) return null;
  if (numbers[row] === exact) return HEAD + (row + 0.5) * rowHeight;
  if (!row || numbers[row - 1] === null) return null;
  const share = (exact - numbers[row]) / (numbers[row - 1] - numbers[row]);
  return HEAD + (row + 0.5 - share) * rowHeight;
}

function drawOwn(canvas, { numbers, places, rowHeight, levels, scale, font, bold }, colours) {
  const { context } = canvas;
  numbers.forEach((number, row) => {
    for (const side of ["bid", "ask"]) {
      const order = number === null ? null : levels.own[side].get(number);
      if (!order) continue;
      const y = HEAD + row * rowHeight;
      const { x, width } = places[side].own ?? places[side].size;
      context.fillStyle = colours.accentSoft;
      context.strokeStyle = colours.accent;
      context.lineWidth = 1;
      context.beginPath();
      context.roundRect(x + 2.5, y + 1.5, width - 5, rowHeight - 3, 2);
      context.fill();
      context.stroke();
      if (!places[side].own) continue;
      context.textAlign = side === "bid" ? "right" : "left";
      context.font = bold;
      context.fillStyle = colours.text;
      const edge = side === "bid" ? x + width - 6 : x + 6;
      const left = plain(scale.short(order.left)) + (order.count > 1 ? `×${order.count}` : "");
      context.fillText(left, edge, y + rowHeight / 2 + 0.5);
      if (order.ahead === null) continue;
      const used = context.measureText(left).width + 2;
      context.font = font;
      context.fillStyle = colours.muted;
      const ahead = order.ahead === 0 ? "first" : plain(scale.short(order.ahead));
      context.fillText(ahead, side === "bid" ? edge - used - 3 : edge + used + 3, y + rowHeight / 2 + 0.5, width - used - 12);
    }
  });
}

/** Without zeros at the end of a fraction. */
const plain = (number) => (number.includes(".") ? number.replace(/\.?0+$/, "") : number);

function drawFills(canvas, scene, colours) {
  const { context } = canvas;
  const { x, width } = scene.places.price;
  for (const { side, ticks, shown } of scene.book.fills) {
    const left = 1 - (scene.now - shown) / FILL_FADE;
    const y = left > 0 ? heightOf(ticks, scene) : null;
    if (y === null) continue;
    context.globalAlpha = 0.35 + 0.65 * left;
    context.fillStyle = colours.accent;
    context.beginPath();
    const [edge, way] = side === "buy" ? [x + 1, 1] : [x + width - 1, -1];
    context.moveTo(edge, y - 5);
    context.lineTo(edge + 7 * way, y);
    context.lineTo(edge, y + 5);
    context.fill();
    context.globalAlpha = 1;
  }
}

/** Labels stand where the book is empty: above the market on the left, below it on the right, beside rows that show nothing there. */
function drawViewValues(canvas, scene, colours) {
  const { context, width } = canvas;
  const { book, places, headFont } = scene;
  context.font = headFont;
  const out = { above: 0, below: 0 };
  const taken = [];
  for (const { texts, ticks } of gathered(scene)) {
    const above = book.middle !== null && ticks > book.middle;
    const free = above ? places.price.x : width - places.price.x - places.price.width;
    const text = texts.find((one) => context.measureText(one).width + 16 <= free) ?? texts[texts.length - 1];
    const room = context.measureText(text).width + 10;
    const y = heightOf(ticks, scene);
    if (y === null) {
      const higher = scene.numbers[0] !== null && ticks / scene.group > scene.numbers[0];
      const at = higher ? HEAD + 9 + 16 * out.above++ : canvas.height - 9 - 16 * out.below++;
      label(context, colours, `${higher ? "▲" : "▼"} ${text}`, above ? 4 : width - room - 18, at, room + 14);
      continue;
    }
    const shown = freeHeight(scene, above, y, taken, canvas.height);
    taken.push([above, shown]);
    context.strokeStyle = colours.text;
    context.globalAlpha = 0.7;
    context.lineWidth = 1;
    context.setLineDash([4, 3]);
    context.beginPath();
    const edge = above ? places.price.x : places.price.x + places.price.width;
    context.moveTo(above ? room + 4 : width - room - 4, canvas.snap(shown));
    context.lineTo(edge + (above ? -8 : 8), canvas.snap(shown));
    context.lineTo(edge, canvas.snap(y));
    context.lineTo(edge + (above ? 5 : -5), canvas.snap(y));
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
    label(context, colours, text, above ? 4 : width - room - 4, shown, room);
  }
}

/** The height nearest to a price's, away from the market first, at which a label covers neither another nor what a row shows. */
function freeHeight(scene, above, y, taken, height) {
  const away = above ? -1 : 1;
  const isFree = (at) =>
    at > HEAD + 8 && at < height - 8 && !taken.some(([side, other]) => side === above && Math.abs(other - at) < 16) && !covers(scene, above ? "bid" : "ask", at);
  for (let step = 0; step <= DODGE; step += 4) {
    for (const at of [y + away * step, y - away * step]) if (isFree(at)) return at;
  }
  let at = y;
  while (taken.some(([side, other]) => side === above && Math.abs(other - at) < 16)) at += 16;
  return at;
}

/** Whether a row behind a label at this height shows anything on a side. */
function covers({ numbers, levels, places, rowHeight, now }, side, at) {
  const first = Math.floor((at - 8 - HEAD) / rowHeight);
  const last = Math.floor((at + 8 - HEAD) / rowHeight);
  return numbers.slice(Math.max(0, first), last + 1).some((number) => {
    if (number === null) return false;
    const lasts = (found, length) => found !== undefined && now - found.at < length;
    return (
      levels[side].has(number) || levels.own[side].has(number) ||
      (places[side].traded && lasts(levels.trades[side].get(number), TRADE_FADE)) ||
      (places[side].change && lasts(levels.changes[side].get(number), WINDOW))
    );
  });
}

/** View values by price, the highest first; those of one price share a label, whose texts are given from the longest on. */
function gathered({ book, scale }) {
  const found = new Map();
  for (const { view, column, price } of book.marks) {
    const ticks = scale.ticks(price);
    if (!Number.isFinite(ticks)) continue;
    const shown = Number(price).toFixed(scale.priceDecimals + 1);
    const mark = found.get(shown);
    if (mark) mark.more++;
    else found.set(shown, { name: `${view}.${column}`, ticks, more: 0 });
  }
  return [...found]
    .map(([price, { name, ticks, more }]) => {
      const all = more ? [`${name} and ${more} more  ${price}`, `${name}, …  ${price}`] : [];
      return { texts: [...all, `${name}  ${price}`, price], ticks };
    })
    .sort((a, b) => b.ticks - a.ticks);
}

function label(context, colours, text, x, y, room) {
  context.fillStyle = colours.ground;
  context.strokeStyle = colours.faint;
  context.lineWidth = 1;
  context.beginPath();
  context.roundRect(x + 0.5, Math.round(y) - 7.5, room - 1, 15, 3);
  context.fill();
  context.stroke();
  context.fillStyle = colours.text;
  context.textAlign = "left";
  context.fillText(text, x + 5, y + 0.5);
}

/** Says where the market is, where it left the ladder. */
function drawAway(canvas, { away, places, book, scale, bold }, colours) {
  if (!away) return;
  const { context, width, height } = canvas;
  const y = away > 0 ? HEAD : height - 22;
  context.fillStyle = colours.accent;
  context.fillRect(0, y, width, 22);
  context.fillStyle = colours.ground;
  context.font = bold;
  context.textAlign = "center";
  const price = scale.price(Math.round(book.middle));
  context.fillText(`${away > 0 ? "▲" : "▼"} market ${price} · Space recentres`, places.price.x + places.price.width / 2, y + 11.5);
}
