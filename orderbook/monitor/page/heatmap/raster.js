/** The heat map's pixels: a ring of columns, of which a new frame paints one. */

const SHADES = 256;

export class Raster {
  #canvas = document.createElement("canvas");
  #context = this.#canvas.getContext("2d");
  #shades = new Uint32Array(SHADES);
  #gap = 0;
  #key = "";
  #history = null;
  #painted = -1;
  #columns = 0;
  #rows = 0;
  #sums = new Float64Array(0);
  #strip = null;

  /** heat: five CSS colours from nothing to most; gap: of times without a book. */
  setColours(heat, gap) {
    const stops = heat.map(rgb);
    for (let k = 0; k < SHADES; k++) {
      const place = (k / (SHADES - 1)) * (stops.length - 1);
      const low = Math.min(stops.length - 2, Math.floor(place));
      this.#shades[k] = packed(stops[low].map((value, at) => value + (stops[low + 1][at] - value) * (place - low)));
    }
    this.#gap = packed(rgb(gap));
    this.#key = "";
  }

  /** Brings the ring up to `last`, a number of strides; shape: {columns, rows, group, high, stride, from, to}. */
  paint(history, last, shape) {
    const { columns, rows, group, high, stride, from, to } = shape;
    const key = [columns, rows, group, high, stride, from, to].join();
    const moved = last - this.#painted;
    // Another history has other columns of the times that are painted: the server's, or another book's.
    const whole = key !== this.#key || history !== this.#history || moved < 0 || moved >= columns;
    if (whole) this.#reset(key, columns, rows);
    const first = whole ? last - columns + 1 : Math.max(this.#painted, last - columns + 1);
    if (whole) this.#paintAll(history, first, last, shape);
    else for (let bucket = first; bucket <= last; bucket++) this.#paintOne(history, bucket, shape);
    this.#painted = last;
    this.#history = history;
  }

  /** Draws the ring, its newest column at the right, to the rectangle. */
  blit(context, x, y, width, height) {
    const columns = this.#columns;
    const pixels = width / columns;
    const start = (this.#painted + 1) % columns;
    context.imageSmoothingEnabled = false;
    if (start < columns) {
      context.drawImage(this.#canvas, start, 0, columns - start, this.#rows, x, y, (columns - start) * pixels, height);
    }
    if (start > 0) {
      context.drawImage(this.#canvas, 0, 0, start, this.#rows, x + (columns - start) * pixels, y, start * pixels, height);
    }
  }

  #reset(key, columns, rows) {
    this.#key = key;
    this.#columns = this.#canvas.width = columns;
    this.#rows = this.#canvas.height = rows;
    this.#sums = new Float64Array(rows);
    this.#strip = this.#context.createImageData(1, rows);
  }

  #paintAll(history, first, last, shape) {
    const image = this.#context.createImageData(this.#columns, this.#rows);
    const pixels = new Uint32Array(image.data.buffer);
    for (let bucket = first; bucket <= last; bucket++) {
      this.#column(history, bucket, shape, pixels, ((bucket % this.#columns) + this.#columns) % this.#columns, this.#columns);
    }
    this.#context.putImageData(image, 0, 0);
  }

  #paintOne(history, bucket, shape) {
    this.#column(history, bucket, shape, new Uint32Array(this.#strip.data.buffer), 0, 1);
    this.#context.putImageData(this.#strip, bucket % this.#columns, 0);
  }

  #column(history, bucket, { group, high, stride, from, to }, pixels, offset, step) {
    const column = history.before(bucket * stride + stride - 1, stride + 9);
    const rows = this.#rows;
    if (!column || column.state !== "valid") {
      for (let row = 0; row < rows; row++) pixels[offset + row * step] = this.#gap;
      return;
    }
    const sums = this.#sums.fill(0);
    for (const levels of [column.bids, column.asks]) {
      for (let k = 0; k < levels.length; k += 2) {
        const row = high - Math.floor(levels[k] / group);
        if (row >= 0 && row < rows) sums[row] += levels[k + 1];
      }
    }
    const scale = (SHADES - 1) / Math.max(1, to - from);
    for (let row = 0; row < rows; row++) {
      const shade = (sums[row] - from) * scale;
      pixels[offset + row * step] = this.#shades[shade <= 0 ? 0 : shade >= SHADES - 1 ? SHADES - 1 : shade | 0];
    }
  }
}

/** [red, green, blue] of #rrggbb. */
function rgb(colour) {
  const value = Number.parseInt(colour.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

/** A pixel of ImageData seen as 32 bits, which is little-endian wherever browsers run. */
function packed([red, green, blue]) {
  return ((255 << 24) | (Math.round(blue) << 16) | (Math.round(green) << 8) | Math.round(red)) >>> 0;
}
