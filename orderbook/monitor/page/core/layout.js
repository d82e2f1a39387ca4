/** Panes in columns of groups; a group shows one of its panes, splitters between them are dragged or moved by keys. */
import { make } from "./dom.js";
import { Emitter } from "./emitter.js";
import { forget, load, save } from "./storage.js";

const PHONE = matchMedia("(max-width: 720px)");
const LEAST = 0.12;

/** A fresh copy each time: layouts are changed in place. */
const initial = () => [
  { size: 0.385, groups: [{ size: 1, panes: ["ladder"], active: "ladder" }] },
  { size: 0.365, groups: [
    { size: 0.46, panes: ["heatmap"], active: "heatmap" },
    { size: 0.26, panes: ["candles"], active: "candles" },
    { size: 0.28, panes: ["views", "sql", "explain", "health"], active: "views" },
  ] },
  ...[2, 3].map((number) => ({ size: 0.3, groups: [
    { size: 0.58, panes: [`ladder-${number}`], active: `ladder-${number}` },
    { size: 0.42, panes: [`heatmap-${number}`], active: `heatmap-${number}` },
  ] })),
  { size: 0.25, groups: [
    { size: 0.36, panes: ["trades"], active: "trades" },
    { size: 0.27, panes: ["depth"], active: "depth" },
    { size: 0.37, panes: ["strategies", "log", "alerts"], active: "strategies" },
  ] },
];

/** Emits "change" when other panes are shown. */
export class Layout extends Emitter {
  #desk;
  #tabs;
  #panes;
  #columns;
  #hidden;
  #active;
  #large = null;

  /** panes: Map of id to Pane, in the order of the phone's tabs. */
  constructor(desk, tabs, panes) {
    super();
    this.#desk = desk;
    this.#tabs = tabs;
    this.#panes = panes;
    const kept = load("layout", null);
    // A layout of another version of the page does not know all panes.
    this.#columns = this.#knows(kept) ? kept : initial();
    this.#hidden = new Set(this.#columns === kept ? load("hidden", []) : [...load("hidden", []), ...this.#optional()]);
    this.#active = load("active", "ladder");
    PHONE.addEventListener("change", () => this.#build());
    this.#build();
  }

  /** The panes that are not shown, by id. */
  get hidden() {
    return this.#hidden;
  }

  /** Shows a pane, in front, and puts the keyboard into it where `focus` says so. */
  reveal(id, focus = false) {
    this.#hidden.delete(id);
    const group = this.#groupOf(id);
    if (group) group.active = id;
    this.#active = id;
    if (this.#large && !this.#large.panes.includes(id)) this.#large = null;
    this.#changed();
    if (focus) this.#panes.get(id).focus();
  }

  toggle(id) {
    this.set([id], this.#hidden.has(id));
  }

  /** Shows panes, the first of them in front on a phone, or hides them. */
  set(ids, shown) {
    if (shown) {
      for (const id of [...ids].reverse()) this.reveal(id);
      return;
    }
    for (const id of ids) this.#hidden.add(id);
    if (ids.includes(this.#active)) this.#active = this.#panes.keys().next().value;
    this.#large = null;
    this.#changed();
  }

  /** What is shown, where and how large, as `restore` takes it. */
  get state() {
    return structuredClone({ columns: this.#columns, hidden: [...this.#hidden], active: this.#active });
  }

  /** Shows what `state` gave; false where that is of another version of the page. */
  restore(state) {
    if (!this.#knows(state.columns) || !Array.isArray(state.hidden)) return false;
    const { columns, hidden, active } = structuredClone(state);
    this.#columns = columns;
    this.#hidden = new Set(hidden.filter((id) => this.#panes.has(id)));
    this.#active = active;
    this.#large = null;
    this.#changed();
    return true;
  }

  /** Gives one group the whole page, or takes that back. */
  enlarge(id) {
    const group = this.#groupOf(id);
    this.#large = this.#large === group ? null : group;
    this.#changed();
  }

  reset() {
    for (const name of ["layout", "hidden", "active"]) forget(name);
    this.#columns = initial();
    this.#hidden = new Set(this.#optional());
    this.#large = null;
    this.#changed();
  }

  #optional() {
    return [...this.#panes.values()].filter(({ optional }) => optional).map(({ id }) => id);
  }

  #knows(columns) {
    const ids = columns?.flatMap?.((column) => column.groups.flatMap((group) => group.panes)) ?? [];
    return ids.length === this.#panes.size && ids.every((id) => this.#panes.has(id));
  }

  #groupOf(id) {
    return this.#columns.flatMap(({ groups }) => groups).find(({ panes }) => panes.includes(id));
  }

  #changed() {
    save("layout", this.#columns);
    save("hidden", [...this.#hidden]);
    save("active", this.#active);
    const focused = document.activeElement?.dataset.testid;
    this.#build();
    if (focused?.startsWith("tab-")) document.querySelector(`[data-testid="${focused}"]`)?.focus();
  }

  #build() {
    document.documentElement.classList.toggle("phone", PHONE.matches);
    const seen = new Set();
    this.#desk.replaceChildren();
    this.#tabs.replaceChildren();
    if (PHONE.matches) this.#buildPhone(seen);
    else this.#buildDesk(seen);
    for (const [id, pane] of this.#panes) pane.show(seen.has(id));
    this.emit("change");
  }

  #buildPhone(seen) {
    const left = (id) => this.#panes.get(id)?.optional && this.#hidden.has(id);
    if (!this.#panes.has(this.#active) || left(this.#active)) this.#active = "ladder";
    const pane = this.#panes.get(this.#active);
    pane.element.prepend(pane.bar);
    this.#desk.append(make("div.group", {}, pane.element));
    this.#desk.style.gridTemplateColumns = "1fr";
    seen.add(this.#active);
    for (const [id, { title }] of this.#panes) {
      if (left(id)) continue;
      const tab = make("button", { type: "button", "aria-current": String(id === this.#active), onclick: () => this.reveal(id), "data-testid": `tab-${id}` }, title);
      this.#tabs.append(tab);
      if (id === this.#active) requestAnimationFrame(() => tab.scrollIntoView({ inline: "center", block: "nearest" }));
    }
  }

  #buildDesk(seen) {
    const shown = this.#columns
      .map((column) => ({ column, groups: column.groups.filter((group) => this.#shows(group)) }))
      .filter(({ groups }) => groups.length);
    const template = [];
    shown.forEach(({ column, groups }, at) => {
      if (at) {
        this.#desk.append(this.#splitter("vertical", shown[at - 1].column, column));
        template.push("5px");
      }
      template.push(`minmax(0, ${column.size}fr)`);
      this.#desk.append(this.#buildColumn(groups, seen));
    });
    this.#desk.style.gridTemplateColumns = template.join(" ");
  }

  #shows(group) {
    return (!this.#large || this.#large === group) && group.panes.some((id) => !this.#hidden.has(id));
  }

  #buildColumn(groups, seen) {
    const element = make("div.column");
    const template = [];
    groups.forEach((group, at) => {
      if (at) {
        element.append(this.#splitter("horizontal", groups[at - 1], group));
        template.push("5px");
      }
      template.push(`minmax(0, ${group.size}fr)`);
      element.append(this.#buildGroup(group, seen));
    });
    element.style.gridTemplateRows = template.join(" ");
    return element;
  }

  #buildGroup(group, seen) {
    const ids = group.panes.filter((id) => !this.#hidden.has(id));
    if (!ids.includes(group.active)) group.active = ids[0];
    const pane = this.#panes.get(group.active);
    seen.add(group.active);
    const tabs = ids.map((id) => make("button.tab", {
      type: "button", role: "tab", "aria-selected": String(id === group.active), "data-testid": `tab-${id}`,
      onclick: () => this.reveal(id), ondblclick: () => this.enlarge(id),
    }, this.#panes.get(id).title));
    const large = this.#large === group;
    const enlarge = make("button.plain", { type: "button", title: large ? "Back to all panes" : "This pane alone", "aria-label": large ? "Back to all panes" : "This pane alone", onclick: () => this.enlarge(group.active) }, large ? "⤡" : "⤢");
    const close = make("button.plain", { type: "button", title: "Hide", "aria-label": `Hide ${pane.title}`, onclick: () => this.toggle(group.active) }, "×");
    const head = make("div.group-head", {}, make("div.tab-list", { role: "tablist" }, ...tabs), make("div.group-acts", {}, enlarge, close));
    if (ids.length === 1 && pane.slim) head.children[0].after(pane.bar);
    else pane.element.prepend(pane.bar);
    return make("div.group", {}, head, pane.element);
  }

  /** Moves room between two neighbours. */
  #splitter(kind, before, after) {
    const element = make(`div.splitter.${kind}`, { role: "separator", tabIndex: 0, "aria-orientation": kind, "aria-label": "Resize", title: "Drag, or arrow keys" });
    const along = kind === "vertical" ? "clientX" : "clientY";
    const move = (share) => {
      const sum = before.size + after.size;
      const size = Math.min(sum - LEAST * sum, Math.max(LEAST * sum, before.size + share));
      after.size = sum - size;
      before.size = size;
      this.#resize(element.parentElement, kind);
    };
    element.addEventListener("pointerdown", (event) => {
      element.setPointerCapture(event.pointerId);
      event.preventDefault();
      let last = event[along];
      const box = element.parentElement.getBoundingClientRect();
      const whole = this.#whole(element.parentElement);
      const moved = (now) => {
        move(((now[along] - last) / (kind === "vertical" ? box.width : box.height)) * whole);
        last = now[along];
      };
      const end = () => {
        element.removeEventListener("pointermove", moved);
        save("layout", this.#columns);
      };
      element.addEventListener("pointermove", moved);
      element.addEventListener("lostpointercapture", end, { once: true });
    });
    element.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
      if (!way) return;
      event.preventDefault();
      move(way * 0.02 * this.#whole(element.parentElement));
      save("layout", this.#columns);
    });
    element.sizes = [before, after];
    return element;
  }

  #sized(parent) {
    const found = [];
    for (const child of parent.children) {
      if (!child.sizes) continue;
      if (!found.length) found.push(child.sizes[0]);
      found.push(child.sizes[1]);
    }
    return found;
  }

  #whole(parent) {
    return this.#sized(parent).reduce((sum, { size }) => sum + size, 0);
  }

  #resize(parent, kind) {
    const template = this.#sized(parent).map(({ size }) => `minmax(0, ${size}fr)`).join(" 5px ");
    if (kind === "vertical") parent.style.gridTemplateColumns = template;
    else parent.style.gridTemplateRows = template;
  }
}
