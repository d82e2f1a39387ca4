/** A canvas that fills its element and stays crisp at any density. */

export class Canvas {
  /** changed: called when size or density did, and the canvas is empty therefore. */
  constructor(label, testId, changed) {
    this.element = document.createElement("canvas");
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "img");
    this.element.setAttribute("aria-label", label);
    this.element.dataset.testid = testId;
    this.box = document.createElement("div");
    this.box.className = "canvas-box";
    this.box.append(this.element);
    this.context = this.element.getContext("2d", { alpha: false });
    this.width = this.height = 0;
    this.ratio = 1;
    this.#changed = changed;
    new ResizeObserver(() => this.#measure()).observe(this.box);
  }

  #changed;

  /** Begins a drawing in CSS pixels on `ground`; false where there is no room. */
  begin(ground) {
    if (devicePixelRatio !== this.ratio) this.#measure();
    if (!this.width || !this.height) return false;
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.context.globalAlpha = 1;
    this.context.fillStyle = ground;
    this.context.fillRect(0, 0, this.width, this.height);
    return true;
  }

  /** The edge of a device pixel next to `value`. */
  snap(value) {
    return Math.round(value * this.ratio) / this.ratio;
  }

  /** Where a pointer is, in CSS pixels of the canvas. */
  at(event) {
    const box = this.element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #measure() {
    this.ratio = devicePixelRatio || 1;
    this.width = this.box.clientWidth;
    this.height = this.box.clientHeight;
    this.element.width = Math.max(1, Math.round(this.width * this.ratio));
    this.element.height = Math.max(1, Math.round(this.height * this.ratio));
    this.#changed();
  }
}
