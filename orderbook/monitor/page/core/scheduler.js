/** Draws panes in animation frames: those that changed and can be seen, once, however much arrived meanwhile. */

const KEPT = 512;

class Times {
  #values = new Float64Array(KEPT);
  #count = 0;

  add(value) {
    this.#values[this.#count++ % KEPT] = value;
  }

  /** {count, last, p50, p99, max} of the newest draws, in milliseconds. */
  summary() {
    const size = Math.min(this.#count, KEPT);
    if (!size) return { count: 0, last: null, p50: null, p99: null, max: null };
    const sorted = this.#values.slice(0, size).sort();
    const at = (share) => sorted[Math.min(size - 1, Math.floor(share * size))];
    return {
      count: this.#count,
      last: this.#values[(this.#count - 1) % KEPT],
      p50: at(0.5),
      p99: at(0.99),
      max: sorted[size - 1],
    };
  }
}

const dirty = new Set();
const times = new Map();
let asked = false;

/** Draws `pane` in the next animation frame, if it can be seen then. */
export function redraw(pane) {
  dirty.add(pane);
  if (asked || document.hidden) return;
  asked = true;
  requestAnimationFrame(drawAll);
}

/** Draw times of each pane, in milliseconds; "all" is of all panes of a frame together. */
export function drawTimes() {
  return Object.fromEntries([...times].map(([name, kept]) => [name, kept.summary()]));
}

function drawAll() {
  asked = false;
  const begun = performance.now();
  const drawn = [...dirty];
  dirty.clear();
  for (const pane of drawn) {
    if (!pane.visible) continue;
    const start = performance.now();
    try {
      pane.draw(start);
    } catch (error) {
      console.error(error);
    }
    record(pane.id, performance.now() - start);
  }
  record("all", performance.now() - begun);
}

function record(name, value) {
  if (!times.has(name)) times.set(name, new Times());
  times.get(name).add(value);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && dirty.size && !asked) {
    asked = true;
    requestAnimationFrame(drawAll);
  }
});
