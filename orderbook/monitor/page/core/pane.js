/** What every pane has: an id, a title, a bar of controls, a body, and a drawing in animation frames. */
import { make, setText } from "./dom.js";
import { redraw } from "./scheduler.js";

export class Pane {
  /** live: what it shows is of now, and is marked while nothing arrives. Panes with a Doubt mark themselves;
   *  an answer to a question stays one. */
  constructor(id, title, { live = true } = {}) {
    this.id = id;
    this.title = title;
    this.visible = false;
    /** Whether its controls have room beside its title. */
    this.slim = false;
    /** Whether it is hidden until it is asked for, also on a phone. */
    this.optional = false;
    this.bar = make("div.pane-bar", { role: "toolbar", "aria-label": title });
    this.body = make("div.pane-body");
    this.stamp = live ? make("div.not-live", { role: "status", hidden: true, "data-testid": `not-live-${id}` }) : null;
    this.element = make("section.pane", { "aria-label": title, "data-testid": `pane-${id}` }, this.bar, this.body, this.stamp ?? "");
  }

  /** Has the pane drawn in the next animation frame. */
  changed() {
    redraw(this);
  }

  /** Marks what is shown as of an earlier time, with the reason; "" takes the mark away. */
  mark(notLive) {
    if (!this.stamp) return;
    this.body.classList.toggle("was", notLive !== "");
    this.stamp.hidden = notLive === "";
    setText(this.stamp, notLive && `not live: ${notLive}`);
  }

  /** Shown or hidden by the layout. */
  show(visible) {
    if (visible === this.visible) return;
    this.visible = visible;
    if (visible) this.changed();
    this.shown(visible);
  }

  /** For panes that receive only while they are seen. */
  shown() {}

  /** Draws; `now` is performance.now(). */
  draw() {}

  /** Puts the keyboard into the pane. */
  focus() {
    this.body.querySelector("canvas, textarea, input, select, [tabindex]")?.focus();
  }
}

/** Covers a canvas while its prices are not to be trusted, and says why. */
export class Doubt {
  constructor() {
    this.element = make("div.doubt", { role: "status", hidden: true, "data-testid": "doubt" });
  }

  show(text) {
    if (this.element.hidden !== !text) this.element.hidden = !text;
    if (this.element.textContent !== text) this.element.textContent = text;
  }
}
