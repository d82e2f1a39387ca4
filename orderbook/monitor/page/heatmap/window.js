/** Which times and prices the heat map shows. */

/** CSS pixels of a column of the history; below 1 several columns share a pixel. */
const ZOOMS = [1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 3, 4, 6, 8, 12, 16];
const SMALLEST_SPAN = 8;
const LARGEST_SPAN = 20_000;

/** Prices are in ticks, times in columns of the history. */
export class Window {
  constructor() {
    this.zoom = ZOOMS.indexOf(2);
    this.low = null;
    this.span = 90;
    /** The column at the right edge, or null where it is the newest. */
    this.right = null;
    this.followsPrice = true;
  }

  get pixels() {
    return Math.max(1, ZOOMS[this.zoom]);
  }

  /** Columns of the history in a column of pixels. */
  get stride() {
    return Math.max(1, Math.round(1 / ZOOMS[this.zoom]));
  }

  /** Keeps the market in sight, without moving while it is in the middle part. */
  follow(middle) {
    if (middle === null) return;
    const place = this.low === null ? -1 : (middle - this.low) / this.span;
    if (this.low === null || (this.followsPrice && (place < 0.2 || place > 0.8))) this.centre(middle);
  }

  centre(middle) {
    if (middle === null) return;
    this.low = Math.round(middle - this.span / 2);
    this.followsPrice = true;
  }

  /** Zooms prices by `factor`, with the price at `share` of the height, from below, standing still. */
  zoomPrice(factor, share = 0.5) {
    if (this.low === null) return;
    const still = this.low + share * this.span;
    this.span = Math.round(Math.min(LARGEST_SPAN, Math.max(SMALLEST_SPAN, this.span * factor)));
    this.low = Math.round(still - share * this.span);
  }

  /** Zooms times by one step, in where positive; `fromRight`: pixels from the right edge that stand still. */
  zoomTime(step, fromRight = 0) {
    const before = this.pixels / this.stride;
    this.zoom = Math.min(ZOOMS.length - 1, Math.max(0, this.zoom + step));
    const after = this.pixels / this.stride;
    if (this.right !== null) this.right = Math.round(this.right - fromRight / before + fromRight / after);
  }

  panPrice(ticks) {
    if (this.low === null) return;
    this.low = Math.round(this.low + ticks);
    this.followsPrice = false;
  }

  /** Moves in time; beyond `newest` the map follows again. */
  panTime(columns, newest) {
    const right = (this.right ?? newest) + Math.round(columns);
    this.right = right >= newest ? null : right;
  }

  freeze(newest) {
    this.right = this.right === null ? newest : null;
  }
}
