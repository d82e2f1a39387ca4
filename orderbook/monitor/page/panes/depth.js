/** The depth chart: what rests up to each price, cumulated from the touch. */
import { Canvas } from "../core/canvas.js";
import { make } from "../core/dom.js";
import { short } from "../core/format.js";
import { Doubt, Pane } from "../core/pane.js";
import { theme } from "../core/theme.js";
import { roundStep } from "../core/ticks.js";

const FOOT = 18;
/** Room above for the label of the topmost line, which stands on it. */
const HEAD = 16;

export class DepthPane extends Pane {
  #store;
  #canvas;
  #doubt = new Doubt();
  #pointer = null;
  #reach = 60;

  constructor(store) {
    super("depth", "Depth", { live: false });
    this.#store = store;
    this.slim = true;
    this.#canvas = new Canvas("Depth chart", "depth", () => this.changed());
    this.body.append(this.#canvas.box, this.#doubt.element);
    const zoom = (text, title, factor) => make("button", { type: "button", title, "aria-label": title, onclick: () => this.#zoom(factor) }, text);
    this.bar.append(zoom("−", "More prices (−)", 1.5), zoom("+", "Fewer prices (+)", 1 / 1.5));
    const { element } = this.#canvas;
    element.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.#zoom(Math.exp(event.deltaY / 400));
    }, { passive: false });
    element.addEventListener("pointermove", (event) => {
      this.#pointer = this.#canvas.at(event);
      this.changed();
    });
    element.addEventListener("pointerleave", () => {
      this.#pointer = null;
      this.changed();
    });
    element.addEventListener("keydown", (event) => {
      if (event.key === "+" || event.key === "=") this.#zoom(1 / 1.5);
      else if (event.key === "-") this.#zoom(1.5);
    });
    store.on("book", () => this.changed());
    theme.on("change", () => this.changed());
  }

  #zoom(factor) {
    this.#reach = Math.min(20_000, Math.max(4, Math.round(this.#reach * factor)));
    this.changed();
  }

  draw() {
    const { book, doubt } = this.#store;
    this.#doubt.show(doubt);
    const { colours } = theme;
    const canvas = this.#canvas;
    if (!canvas.begin(colours.panel) || !book || book.middle === null) return;
    const { context, width } = canvas;
    const height = canvas.height - FOOT;
    const low = book.middle - this.#reach;
    const across = (ticks) => ((ticks - low) / (2 * this.#reach)) * width;
    const sides = [cumulated(book.bids, (ticks) => ticks >= low), cumulated(book.asks, (ticks) => ticks <= book.middle + this.#reach)];
    const most = Math.max(1, ...sides.map((steps) => (steps.length ? steps[steps.length - 1][1] : 0)));
    const up = (lots) => height - (lots / most) * (height - HEAD);
    context.font = `11px ${theme.numbers}`;
    this.#side(sides[0], book.bids, across, up, height, 0, colours.bidSoft, colours.bid);
    this.#side(sides[1], book.asks, across, up, height, width, colours.askSoft, colours.ask);
    this.#grid(book, most, up, across, low, height, colours);
    context.fillStyle = colours.faint;
    context.fillRect(canvas.snap(across(book.middle)), HEAD, 1, height - HEAD);
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = colours.text;
    for (const { price } of book.marks) this.#mark(across(book.scale.ticks(price)), height, colours);
    if (this.#pointer) this.#crosshair(book, sides, across, up, low, height, colours);
  }

  #side(steps, levels, across, up, height, edge, fill, line) {
    if (!steps.length) return;
    const { context } = this.#canvas;
    const trace = () => {
      let before = height;
      for (const [ticks, total] of steps) {
        context.lineTo(across(ticks), before);
        context.lineTo(across(ticks), up(total));
        before = up(total);
      }
      context.lineTo(edge, before);
    };
    context.beginPath();
    context.moveTo(across(levels[0][0]), height);
    trace();
    context.lineTo(edge, height);
    context.fillStyle = fill;
    context.fill();
    context.beginPath();
    context.moveTo(across(levels[0][0]), height);
    trace();
    context.strokeStyle = line;
    context.lineWidth = 1.5;
    context.stroke();
  }

  #grid(book, most, up, across, low, height, colours) {
    const { context, width } = this.#canvas;
    context.textBaseline = "middle";
    context.fillStyle = colours.line;
    context.fillRect(0, height, width, 1);
    const every = roundStep((most * book.scale.lot) / 3, false) / book.scale.lot;
    for (let lots = every; lots <= most; lots += every) {
      context.fillStyle = colours.line;
      context.fillRect(0, this.#canvas.snap(up(lots)), width, 0.5);
      context.fillStyle = colours.muted;
      context.textAlign = "left";
      context.fillText(short(lots * book.scale.lot), 5, up(lots) - 7);
    }
    const step = roundStep((2 * this.#reach * 80) / width);
    context.textAlign = "center";
    for (let ticks = Math.ceil(low / step) * step; ticks < low + 2 * this.#reach; ticks += step) {
      const x = across(ticks);
      if (x < 28 || x > width - 28) continue;
      context.fillStyle = colours.faint;
      context.fillRect(x, height, 1, 4);
      context.fillStyle = colours.muted;
      context.fillText(book.scale.price(ticks), x, height + FOOT / 2 + 1);
    }
  }

  #mark(x, height, colours) {
    const { context } = this.#canvas;
    if (!(x > 0 && x < this.#canvas.width)) return;
    context.strokeStyle = colours.text;
    context.globalAlpha = 0.6;
    context.setLineDash([4, 3]);
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(this.#canvas.snap(x), HEAD);
    context.lineTo(this.#canvas.snap(x), height);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  #crosshair(book, sides, across, up, low, height, colours) {
    const { context, width } = this.#canvas;
    const [x] = this.#pointer;
    const exact = low + (x / width) * 2 * this.#reach;
    const bid = exact < book.middle;
    const ticks = bid ? Math.ceil(exact) : Math.floor(exact);
    let total = 0;
    for (const [price, sum] of sides[bid ? 0 : 1]) {
      if (bid ? price < ticks : price > ticks) break;
      total = sum;
    }
    context.fillStyle = colours.text;
    context.fillRect(this.#canvas.snap(across(ticks)), HEAD, 1, height - HEAD);
    context.beginPath();
    context.arc(across(ticks), up(total), 3, 0, 2 * Math.PI);
    context.fill();
    const percent = ((Math.abs(ticks - book.middle) / book.middle) * 100).toFixed(2);
    const text = `${book.scale.price(ticks)}  Σ ${book.scale.size(total)}  ${percent} %`;
    const room = context.measureText(text).width + 14;
    const left = Math.min(width - room - 2, Math.max(2, x - room / 2));
    context.fillStyle = colours.panel;
    context.strokeStyle = colours.faint;
    context.beginPath();
    context.roundRect(Math.round(left) + 0.5, 4.5, room, 18, 3);
    context.fill();
    context.stroke();
    context.fillStyle = colours.text;
    context.textAlign = "center";
    context.fillText(text, left + room / 2, 14);
  }
}

/** [ticks, lots up to there] from the touch on, of what is in sight. */
function cumulated(levels, inSight) {
  const steps = [];
  let total = 0;
  for (const [ticks, lots] of levels) {
    if (!inSight(ticks)) break;
    total += lots;
    steps.push([ticks, total]);
  }
  return steps;
}
