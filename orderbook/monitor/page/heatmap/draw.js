/** Draws the heat map over its raster: touches, trades, axes, the book of now, and the crosshair. */
import { clock } from "../core/format.js";
import { COLUMN } from "../core/history.js";
import { roundStep, timeStep } from "../core/ticks.js";

export const FOOT = 18;
const LARGEST = 11;
/** Pixels of time whose trades are one disc. */
const DISC_EVERY = 12;

/** scene: what pane.js laid out. */
export function drawHeat(canvas, scene, colours) {
  const { context } = canvas;
  context.save();
  context.beginPath();
  context.rect(0, 0, scene.plot, scene.height);
  context.clip();
  scene.raster.blit(context, scene.plot - scene.columns * scene.pixels, 0, scene.columns * scene.pixels, scene.rasterHeight);
  drawTrades(context, scene, colours);
  drawTouches(context, scene, colours);
  context.restore();
  drawNow(canvas, scene, colours);
  drawAxes(canvas, scene, colours);
  drawMarks(canvas, scene, colours);
  if (scene.pointer) drawCrosshair(canvas, scene, colours);
}

/** The middle of a price's row. */
export const heightOf = (ticks, { high, group, rowHeight }) => (high - Math.floor(ticks) / group + 0.5) * rowHeight;

const leftOf = (bucket, { last, plot, pixels }) => plot - (last - bucket + 1) * pixels;

function drawTouches(context, scene, colours) {
  for (const [side, colour] of [["bids", colours.bid], ["asks", colours.ask]]) {
    context.strokeStyle = colour;
    context.lineWidth = 1.25;
    context.beginPath();
    let before = null;
    for (let bucket = scene.last - scene.columns + 1; bucket <= scene.last; bucket++) {
      const column = scene.history.before((bucket + 1) * scene.stride - 1, scene.stride + 9);
      const known = column && column.state === "valid" && column[side].length;
      const y = known ? heightOf(column[side][0], scene) : null;
      const x = leftOf(bucket, scene);
      if (y !== null) {
        if (before === null) context.moveTo(x, y);
        else if (before !== y) context.lineTo(x, y);
        context.lineTo(x + scene.pixels, y);
      }
      before = y;
    }
    context.stroke();
  }
}

/** Trades of a side within a few pixels are one disc of their sum, at their average price. */
function drawTrades(context, scene, colours) {
  const most = Math.max(...[...scene.discs.values()].map(({ lots }) => lots), 1);
  context.lineWidth = 1;
  for (const { time, ticks, lots, side } of [...scene.discs.values()].sort((a, b) => b.lots - a.lots)) {
    const x = leftOf(time / COLUMN / scene.stride, scene) + scene.pixels;
    const y = heightOf(ticks, scene);
    const radius = Math.max(1.5, LARGEST * Math.sqrt(lots / most));
    context.fillStyle = side === "sell" ? colours.ask : side === "buy" ? colours.bid : colours.muted;
    context.strokeStyle = colours.ground;
    context.globalAlpha = 0.8;
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.fill();
    context.globalAlpha = 1;
    context.stroke();
    if (side !== "sell" || radius <= 3) continue;
    // Buys are whole discs, sells have a bar: sides can be told without colours.
    context.beginPath();
    context.moveTo(x - radius + 1.5, y);
    context.lineTo(x + radius - 1.5, y);
    context.stroke();
  }
}

/** The discs of the times in sight: Map of {time, ticks, lots, side} with averages of time and price. */
export function gatherTrades({ book, last, columns, stride, pixels, smallest }) {
  const firstTime = (last - columns + 1) * stride * COLUMN;
  const lastTime = (last + 1) * stride * COLUMN;
  const width = (DISC_EVERY / pixels) * stride * COLUMN;
  const discs = new Map();
  for (let k = book.trades.length - 1; k >= 0 && book.trades[k].time >= firstTime; k--) {
    const { time, ticks, lots, side } = book.trades[k];
    if (time >= lastTime || lots < smallest) continue;
    const key = `${Math.floor(time / width)} ${side}`;
    const disc = discs.get(key);
    if (!disc) discs.set(key, { time, ticks, lots, side });
    else {
      const sum = disc.lots + lots;
      disc.ticks += ((ticks - disc.ticks) * lots) / sum;
      disc.time += ((time - disc.time) * lots) / sum;
      disc.lots = sum;
    }
  }
  return discs;
}

/** The sizes that rest now, beside the price axis. */
function drawNow(canvas, scene, colours) {
  const { context } = canvas;
  const { book, plot, profile, height } = scene;
  context.fillStyle = colours.panel;
  context.fillRect(plot, 0, canvas.width - plot, canvas.height);
  context.fillStyle = colours.line;
  context.fillRect(plot, 0, 1, height);
  if (!profile) return;
  for (const [levels, colour] of [[book.bids, colours.bid], [book.asks, colours.ask]]) {
    context.fillStyle = colour;
    context.globalAlpha = 0.7;
    const sums = new Map();
    for (const [ticks, lots] of levels) {
      const row = scene.high - Math.floor(ticks / scene.group);
      if (row >= 0 && row < scene.rows) sums.set(row, (sums.get(row) ?? 0) + lots);
    }
    for (const [row, lots] of sums) {
      const length = Math.min(1, lots / Math.max(1, scene.to)) * (profile - 4);
      context.fillRect(plot + 2, row * scene.rowHeight, Math.max(1, length), Math.max(1, scene.rowHeight - 0.5));
    }
  }
  context.globalAlpha = 1;
}

function drawAxes(canvas, scene, colours) {
  const { context, width } = canvas;
  const { plot, height, profile, book, group, high, rowHeight } = scene;
  context.fillStyle = colours.panel;
  context.fillRect(0, height, width, FOOT);
  context.fillStyle = colours.line;
  context.fillRect(0, height, width, 1);
  context.font = scene.font;
  context.textBaseline = "middle";
  context.textAlign = "left";
  const step = roundStep((26 / rowHeight) * group);
  const lowest = (high - height / rowHeight) * group;
  for (let ticks = Math.ceil(lowest / step) * step; ticks <= high * group; ticks += step) {
    const y = heightOf(ticks, scene);
    if (y < 8 || y > height - 6) continue;
    context.fillStyle = colours.faint;
    context.fillRect(plot + profile, y, 4, 1);
    context.fillStyle = colours.muted;
    context.fillText(book.scale.price(ticks), plot + profile + 7, y + 0.5);
  }
  context.textAlign = "center";
  const perPixel = (scene.stride * COLUMN) / scene.pixels;
  const every = timeStep(90 * perPixel);
  const end = (scene.last + 1) * scene.stride * COLUMN;
  const offset = new Date(end).getTimezoneOffset() * 60_000;
  for (let time = Math.floor((end - offset) / every) * every + offset; ; time -= every) {
    const x = plot - (end - time) / perPixel;
    if (x < 30) break;
    context.fillStyle = colours.faint;
    context.fillRect(x, height, 1, 4);
    context.fillStyle = colours.muted;
    if (x < plot - 26) context.fillText(clock(time), x, height + FOOT / 2 + 1);
  }
}

/** The last price, and view values, on the price axis. */
function drawMarks(canvas, scene, colours) {
  const { context, width } = canvas;
  const { plot, profile, book, height } = scene;
  const tag = (y, text, ground, ink) => {
    if (y < 0 || y > height) return;
    context.fillStyle = ground;
    context.fillRect(plot + profile, y - 7.5, width - plot - profile, 15);
    context.fillStyle = ink;
    context.textAlign = "left";
    context.fillText(text, plot + profile + 7, y + 0.5);
  };
  for (const { price } of book.marks) {
    const ticks = book.scale.ticks(price);
    if (!Number.isFinite(ticks)) continue;
    const y = (scene.high - ticks / scene.group + 0.5) * scene.rowHeight;
    if (y < 0 || y > height) continue;
    context.strokeStyle = colours.text;
    context.globalAlpha = 0.6;
    context.setLineDash([4, 3]);
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(plot, canvas.snap(y));
    context.lineTo(plot + profile + 5, canvas.snap(y));
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }
  const trade = book.trades[book.trades.length - 1];
  if (trade) tag(heightOf(trade.ticks, scene), book.scale.price(trade.ticks), trade.side === "sell" ? colours.ask : colours.bid, colours.ground);
}

function drawCrosshair(canvas, scene, colours) {
  const { context, width } = canvas;
  const { pointer: [x, y], plot, height, profile } = scene;
  if (x > plot || y > height) return;
  const found = scene.under;
  context.strokeStyle = colours.text;
  context.globalAlpha = 0.55;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(canvas.snap(x) + 0.5, 0);
  context.lineTo(canvas.snap(x) + 0.5, height);
  context.moveTo(0, canvas.snap(y) + 0.5);
  context.lineTo(plot, canvas.snap(y) + 0.5);
  context.stroke();
  context.globalAlpha = 1;
  const box = (text, left, top, room) => {
    context.fillStyle = colours.text;
    context.fillRect(left, top, room, 16);
    context.fillStyle = colours.ground;
    context.fillText(text, left + room / 2, top + 8.5);
  };
  context.font = scene.font;
  context.textAlign = "center";
  box(found.price, plot + profile, Math.min(height - 16, Math.max(0, y - 8)), width - plot - profile);
  const room = context.measureText(found.time).width + 12;
  box(found.time, Math.min(plot - room, Math.max(0, x - room / 2)), height + 1, room);
  const lines = found.lines;
  const wide = Math.max(...lines.map((line) => context.measureText(line).width)) + 14;
  const left = x + 14 + wide > plot ? x - 14 - wide : x + 14;
  const top = Math.min(height - 16 * lines.length - 10, Math.max(2, y + 12));
  context.fillStyle = colours.panel;
  context.strokeStyle = colours.faint;
  context.beginPath();
  context.roundRect(Math.round(left) + 0.5, Math.round(top) + 0.5, wide, 16 * lines.length + 6, 3);
  context.fill();
  context.stroke();
  context.textAlign = "left";
  lines.forEach((line, k) => {
    context.fillStyle = k ? colours.muted : colours.text;
    context.fillText(line, left + 7, top + 11 + 16 * k);
  });
}
