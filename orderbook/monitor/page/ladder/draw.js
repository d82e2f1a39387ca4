/** Draws the ladder on its canvas: a price a row, bids to the left of the prices, asks to the right. */
import { theme } from "../core/theme.js";
import { WINDOW } from "../core/book.js";
import { COLUMNS } from "./columns.js";
import { drawMarks } from "./marks.js";

/** Milliseconds until the last traded size of a row is gone. */
export const TRADE_FADE = 10_000;
const HEAD = 20;

export const headHeight = HEAD;

/** scene: what pane.js laid out: book, rows, levels, places, rowHeight, now, doubt. */
export function drawLadder(canvas, scene) {
  const { context } = canvas;
  const colours = theme.colours;
  if (!canvas.begin(colours.panel)) return;
  context.textBaseline = "middle";
  drawGround(canvas, scene, colours);
  for (const side of ["bid", "ask"]) drawSide(canvas, scene, colours, side);
  drawPrices(canvas, scene, colours);
  drawMarks(canvas, scene, colours);
  drawHead(canvas, scene, colours);
}

function drawGround(canvas, { numbers, places, rowHeight, book, group, levels, mostVolume }, colours) {
  const { context, width } = canvas;
  const { x, width: room } = places.price;
  context.fillStyle = colours.raised;
  context.fillRect(x, HEAD, room, canvas.height);
  const bid = book.bestBid === null ? null : Math.floor(book.bestBid / group);
  const ask = book.bestAsk === null ? null : Math.ceil(book.bestAsk / group);
  numbers.forEach((number, row) => {
    if (number === null) return;
    const y = HEAD + row * rowHeight;
    // The market's own ground on each side; between the touches neither, so that the spread is a gap to see.
    context.fillStyle = colours.bidFaint;
    if (bid !== null && number <= bid) context.fillRect(0, y, x, rowHeight);
    context.fillStyle = colours.askFaint;
    if (ask !== null && number >= ask) context.fillRect(x + room, y, width, rowHeight);
    const traded = levels.volume.get(number);
    if (traded && mostVolume) {
      context.fillStyle = colours.line;
      const length = Math.max(1, (room * traded) / mostVolume);
      context.fillRect(x + (room - length) / 2, y + 1, length, rowHeight - 1);
    }
  });
  context.fillStyle = colours.line;
  numbers.forEach((number, row) => {
    if (number !== null && number % 10 === 0) context.fillRect(0, canvas.snap(HEAD + (row + 1) * rowHeight) - 0.5, width, 0.5);
  });
}

function drawSide(canvas, scene, colours, side) {
  const { context } = canvas;
  const { numbers, places, rowHeight, levels, scale, now, font } = scene;
  const place = places[side];
  const own = side === "bid" ? colours.bid : colours.ask;
  const right = (column) => (side === "bid" ? column.x + column.width - 5 : column.x + 5);
  context.textAlign = side === "bid" ? "right" : "left";
  context.font = font;
  const best = side === "bid" ? scene.book.bestBid : scene.book.bestAsk;
  const bestNumber = best === null ? null : side === "bid" ? Math.floor(best / scene.group) : Math.ceil(best / scene.group);
  numbers.forEach((number, row) => {
    if (number === null) return;
    const y = HEAD + row * rowHeight;
    const middle = y + rowHeight / 2 + 0.5;
    const level = levels[side].get(number);
    if (level) {
      drawBar(context, place.size, side, y, rowHeight, level.lots / scene.most, side === "bid" ? colours.bidSoft : colours.askSoft);
      context.fillStyle = colours.text;
      if (number === bestNumber) context.font = scene.bold;
      context.fillText(scale.short(level.lots), right(place.size), middle);
      context.font = font;
      context.fillStyle = colours.muted;
      if (place.total) context.fillText(scale.short(level.total), right(place.total), middle);
      if (place.orders && level.orders !== null) context.fillText(String(level.orders), right(place.orders), middle);
    }
    const change = place.change && levels.changes[side].get(number);
    if (change) drawFading(context, signed(change.lots, scale), right(place.change), middle, change.lots > 0 ? own : colours.muted, 1 - (now - change.at) / WINDOW);
    const trade = place.traded && levels.trades[side].get(number);
    if (trade) {
      const left = 1 - (now - trade.at) / TRADE_FADE;
      context.globalAlpha = 0.25 + 0.55 * Math.max(0, 1 - (now - trade.at) / 700);
      context.fillStyle = side === "bid" ? colours.ask : colours.bid;
      const column = place.traded;
      if (left > 0) context.fillRect(side === "bid" ? column.x + column.width - 2 : column.x, y + 1, 2, rowHeight - 1);
      drawFading(context, scale.short(trade.lots), right(column), middle, side === "bid" ? colours.ask : colours.bid, left);
    }
  });
}

function drawBar(context, { x, width }, side, y, height, share, colour) {
  const length = Math.max(1, Math.min(1, share) * (width - 1));
  context.fillStyle = colour;
  context.fillRect(side === "bid" ? x + width - length : x, y + 1, length, height - 1);
}

function drawFading(context, text, x, y, colour, left) {
  if (left <= 0) return;
  context.globalAlpha = 0.3 + 0.7 * Math.min(1, left);
  context.fillStyle = colour;
  context.fillText(text, x, y);
  context.globalAlpha = 1;
}

const signed = (lots, scale) => `${lots > 0 ? "+" : "−"}${scale.short(Math.abs(lots))}`;

function drawPrices(canvas, { numbers, places, rowHeight, book, group, scale, font, bold, hover, lastTraded, now }, colours) {
  const { context } = canvas;
  const { x, width } = places.price;
  const bid = book.bestBid === null ? null : Math.floor(book.bestBid / group);
  const ask = book.bestAsk === null ? null : Math.ceil(book.bestAsk / group);
  context.textAlign = "center";
  numbers.forEach((number, row) => {
    if (number === null) return;
    const y = HEAD + row * rowHeight;
    if (lastTraded?.number === number) {
      context.globalAlpha = 0.35 + 0.65 * Math.max(0, 1 - (now - lastTraded.at) / 1500);
      context.strokeStyle = lastTraded.side === "sell" ? colours.ask : colours.bid;
      context.lineWidth = 1;
      context.strokeRect(x + 1.5, y + 1, width - 3, rowHeight - 1.5);
      context.globalAlpha = 1;
    }
    context.font = number === bid || number === ask ? bold : font;
    context.fillStyle = number === bid ? colours.bid : number === ask ? colours.ask : row === hover ? colours.text : colours.muted;
    context.fillText(scale.price(number * group), x + width / 2, y + rowHeight / 2 + 0.5);
  });
  drawCentre(canvas, { numbers, rowHeight, places }, colours);
}

/** The centre bar: the fixed middle of the ladder, to which the recentre key brings the market. */
function drawCentre(canvas, { numbers, rowHeight, places }, colours) {
  const { context, width } = canvas;
  const y = canvas.snap(HEAD + Math.floor(numbers.length / 2) * rowHeight);
  context.fillStyle = colours.centre;
  context.fillRect(0, y - 0.5, width, 1);
  const { x, width: room } = places.price;
  for (const [edge, direction] of [[x, 1], [x + room, -1]]) {
    context.beginPath();
    context.moveTo(edge, y - 4);
    context.lineTo(edge + 4 * direction, y);
    context.lineTo(edge, y + 4);
    context.fill();
  }
}

function drawHead(canvas, { places, headFont, book }, colours) {
  const { context, width } = canvas;
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, width, HEAD);
  context.fillStyle = colours.line;
  context.fillRect(0, HEAD - 1, width, 1);
  context.font = headFont;
  context.fillStyle = colours.muted;
  for (const { name } of places.shown) {
    const head = COLUMNS.find((column) => column.name === name).head;
    context.textAlign = "right";
    context.fillText(head[0], places.bid[name].x + places.bid[name].width - 5, HEAD / 2, places.bid[name].width - 7);
    context.textAlign = "left";
    context.fillText(head[1], places.ask[name].x + 5, HEAD / 2, places.ask[name].width - 7);
  }
  const spread = book.bestBid !== null && book.bestAsk !== null ? book.scale.price(book.bestAsk - book.bestBid) : "–";
  context.textAlign = "center";
  context.fillText(`spread ${spread.replace(/^0(?=\.)/, "")}`, places.price.x + places.price.width / 2, HEAD / 2, places.price.width - 4);
}
