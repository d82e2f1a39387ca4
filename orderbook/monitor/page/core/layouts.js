/** Layouts under a name, which the browser keeps: what is shown, how large and in which order, of which instruments. */
import { make } from "./dom.js";
import { load, save } from "./storage.js";

const MOST = 30;
const LONGEST = 40;

export class Layouts {
  #layout;
  #markets;

  /** markets: those whose instruments belong to a layout. */
  constructor(layout, markets) {
    this.#layout = layout;
    this.#markets = markets;
  }

  get names() {
    return Object.keys(this.#all()).sort((a, b) => a.localeCompare(b));
  }

  /** Keeps what is shown now, in place of a layout of that name; returns why not, or "". */
  keep(name) {
    const all = this.#all();
    if (!name) return "A layout has a name.";
    if (name.length > LONGEST) return `A name has ${LONGEST} characters at most.`;
    if (!Object.hasOwn(all, name) && this.names.length >= MOST) return `There are ${MOST} layouts already.`;
    const kept = { ...this.#layout.state, instruments: this.#markets.map(({ selected }) => selected) };
    save("layouts", [...Object.entries(all).filter(([other]) => other !== name), [name, kept]]);
    return "";
  }

  /** Shows a layout; returns why not, or "". */
  use(name) {
    const all = this.#all();
    if (!Object.hasOwn(all, name)) return `There is no layout ${name}.`;
    if (!this.#layout.restore(all[name])) return `${name} is of another version of the page.`;
    this.#markets.forEach((market, k) => market.select(all[name].instruments?.[k]));
    return "";
  }

  drop(name) {
    save("layouts", Object.entries(this.#all()).filter(([other]) => other !== name));
  }

  /** By name; kept as pairs, as a name may be one that objects have. */
  #all() {
    const kept = load("layouts", []);
    return Object.assign(Object.create(null), Object.fromEntries(Array.isArray(kept) ? kept.filter(Array.isArray) : []));
  }
}

/** The part of a menu that lists layouts, shows, saves and forgets them. `changed` fills the menu again. */
export function layoutsMenu(layouts, changed) {
  const told = make("p.problem", { hidden: true, "data-testid": "layout-problem" });
  const act = (done) => {
    told.textContent = done;
    told.hidden = !done;
    if (!done) changed();
  };
  const rows = layouts.names.map((name) => make("div.layout-row", {},
    make("button", { type: "button", title: `Show the layout ${name}`, onclick: () => act(layouts.use(name)), "data-testid": "layout-use" }, name),
    make("button.plain", { type: "button", title: `Forget the layout ${name}`, "aria-label": `Forget the layout ${name}`, onclick: () => act(layouts.drop(name) ?? ""), "data-testid": "layout-drop" }, "×")));
  const name = make("input", { type: "text", placeholder: "Name of a layout", maxLength: LONGEST, "aria-label": "Name of a layout", "data-testid": "layout-name" });
  const form = make("form.layout-row", {}, name, make("button", { "data-testid": "layout-save", title: "Keep what is shown now under this name" }, "Save"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    act(layouts.keep(name.value.trim()));
  });
  return [make("h3", {}, "Layouts"), ...rows, form, told];
}
