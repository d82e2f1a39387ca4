/** Wheel, drag, pinch and keys of the heat map. */

const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

export class Gestures {
  #canvas;
  #acts;
  #pointers = new Map();
  #wheel = 0;
  #spread = null;

  /** acts: window(), newest(), scene(), point(place or null), changed(), recentre(). */
  constructor(canvas, acts) {
    this.#canvas = canvas;
    this.#acts = acts;
    const { element } = canvas;
    element.addEventListener("wheel", (event) => this.#wheeled(event), { passive: false });
    element.addEventListener("pointerdown", (event) => this.#down(event));
    element.addEventListener("pointermove", (event) => this.#move(event));
    for (const name of ["pointerup", "pointercancel"]) element.addEventListener(name, (event) => this.#up(event));
    element.addEventListener("pointerleave", () => acts.point(null));
    element.addEventListener("dblclick", () => acts.recentre());
    element.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Over the price axis, or with Shift, prices are zoomed; a pinch on a touchpad, which is a wheel with Ctrl, too. */
  #wheeled(event) {
    const scene = this.#acts.scene();
    if (!scene) return;
    event.preventDefault();
    const [x, y] = this.#canvas.at(event);
    const window = this.#acts.window();
    const amount = event.deltaY || event.deltaX;
    if (event.shiftKey || event.ctrlKey || x > scene.plot) window.zoomPrice(Math.exp(amount / (event.ctrlKey ? 100 : 400)), 1 - y / scene.height);
    else {
      this.#wheel += event.deltaMode === 1 ? amount * 30 : amount;
      const steps = Math.trunc(this.#wheel / 100);
      this.#wheel -= steps * 100;
      if (steps) window.zoomTime(-steps, scene.plot - x);
    }
    this.#acts.changed();
  }

  #down(event) {
    this.#pointers.set(event.pointerId, [event.clientX, event.clientY]);
    this.#canvas.element.setPointerCapture(event.pointerId);
    this.#spread = null;
  }

  #move(event) {
    const before = this.#pointers.get(event.pointerId);
    this.#acts.point(event.pointerType === "mouse" || this.#pointers.size === 1 ? this.#canvas.at(event) : null);
    const scene = this.#acts.scene();
    if (!before || !scene) return;
    const after = [event.clientX, event.clientY];
    if (this.#pointers.size === 1) {
      const window = this.#acts.window();
      const columns = ((before[0] - after[0]) / scene.pixels) * scene.stride;
      const ticks = ((after[1] - before[1]) / scene.rowHeight) * scene.group;
      // Small moves wait until they make a whole column or tick.
      const moved = [...before];
      if (Math.abs(columns) >= 1) {
        window.panTime(columns, this.#acts.newest());
        moved[0] = after[0];
      }
      if (Math.abs(ticks) >= 1) {
        window.panPrice(Math.round(ticks));
        moved[1] = after[1];
      }
      this.#pointers.set(event.pointerId, moved);
    } else {
      this.#pointers.set(event.pointerId, after);
      this.#pinch(scene);
    }
    this.#acts.changed();
  }

  #pinch(scene) {
    const [[x, y], [otherX, otherY]] = [...this.#pointers.values()];
    const spread = [Math.abs(x - otherX), Math.abs(y - otherY)];
    this.#spread ??= spread;
    const window = this.#acts.window();
    const wider = spread[0] / Math.max(20, this.#spread[0]);
    if (wider > 1.3 || wider < 0.77) {
      window.zoomTime(wider > 1 ? 1 : -1);
      this.#spread[0] = spread[0];
    }
    const box = this.#canvas.element.getBoundingClientRect();
    if (Math.max(spread[1], this.#spread[1]) > 30) {
      window.zoomPrice(Math.max(10, this.#spread[1]) / Math.max(10, spread[1]), 1 - ((y + otherY) / 2 - box.top) / scene.height);
      this.#spread[1] = spread[1];
    }
  }

  #up(event) {
    this.#pointers.delete(event.pointerId);
    this.#spread = null;
  }

  #key(event) {
    const window = this.#acts.window();
    const scene = this.#acts.scene();
    if (!scene || event.ctrlKey || event.metaKey || event.altKey) return;
    const way = KEYS[event.key];
    if (way && event.shiftKey && way[1]) window.zoomPrice(way[1] > 0 ? 1 / 1.25 : 1.25);
    else if (way) {
      if (way[0]) window.panTime((way[0] * scene.columns * scene.stride) / 8, this.#acts.newest());
      if (way[1]) window.panPrice(Math.max(1, Math.round(window.span / 10)) * way[1]);
    } else if (event.key === "+" || event.key === "=") window.zoomTime(1);
    else if (event.key === "-") window.zoomTime(-1);
    else if (event.key === "Home") this.#acts.recentre();
    else return;
    event.preventDefault();
    this.#acts.changed();
  }
}
