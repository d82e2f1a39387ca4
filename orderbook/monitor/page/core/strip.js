/** The header: instruments, health that is always in sight, and what concerns the whole page. */
import { fillChoice, make, setText } from "./dom.js";
import { bytes, count, duration } from "./format.js";
import { keyOf } from "./books.js";
import { layoutsMenu } from "./layouts.js";
import { changing } from "./token.js";
import { chooseTheme, chosenTheme } from "./theme.js";

/** Milliseconds between two looks at how long nothing has arrived. */
const LOOK = 250;
/** Instruments that have a button each; more are in a list. */
const BUTTONS = 5;
const THEMES = ["system", "light", "dark"];
const THEME_SIGNS = { system: "◐", light: "○", dark: "●" };

export class Strip {
  #store;
  #connection;
  #instruments = make("div.instruments", { role: "group", "aria-label": "Instrument" });
  #link = make("span.badge", { role: "status", "data-testid": "connection" });
  #preparing = make("span.preparing", { role: "status", "data-testid": "preparing", hidden: true });
  #feeds = make("div.feeds", { "data-testid": "feeds-strip" });
  #engine = make("span.engine", { "data-testid": "engine-strip" });
  #menu = make("div.menu-body.right");
  #theme;
  #halt;
  #panes;
  #layouts;
  #beside;
  #status = null;

  /** acts: the layout and those that are kept, panes, markets beside the chosen one, help(). */
  constructor(element, store, connection, { layout, layouts, panes, beside, help }) {
    this.#store = store;
    this.#connection = connection;
    this.#panes = panes;
    this.#layouts = layouts;
    this.#beside = beside;
    this.#theme = make("button.plain", { type: "button", onclick: () => this.nextTheme(), "data-testid": "theme" });
    const menu = make("details.menu", {}, make("summary", { title: "Show and hide panes; layouts" }, "Panes"), this.#menu);
    menu.addEventListener("toggle", () => menu.open && this.#fillMenu(layout, panes));
    this.#halt = make("button.plain.halt", { type: "button", onclick: () => this.#switch(), "data-testid": "halt" }, "Halt");
    const explain = make("button.plain", { type: "button", title: "Keys (?)", "aria-label": "Keys", onclick: help }, "?");
    const more = make("button.plain", { type: "button", title: "One more market beside this one", "aria-label": "One more market beside this one", onclick: () => beside.add(), "data-testid": "beside" }, "+");
    const showMore = () => (more.disabled = !beside.room);
    layout.on("change", showMore);
    showMore();
    element.append(
      make("div.instruments", {}, this.#instruments, more), make("div.health", {}, this.#link, this.#preparing, this.#feeds), this.#engine, make("div.acts", {}, this.#halt, menu, this.#theme, explain),
    );
    this.#showTheme();
    store.on("instruments", () => this.#showInstruments());
    store.on("select", () => this.#showInstruments());
    store.on("status", (status) => {
      this.#status = status;
      this.#showStatus();
    });
    connection.on("state", () => this.#look());
    setInterval(() => this.#look(), LOOK);
    this.#look();
  }

  nextTheme() {
    chooseTheme(THEMES[(THEMES.indexOf(chosenTheme()) + 1) % THEMES.length]);
    this.#showTheme();
  }

  #showTheme() {
    const name = chosenTheme();
    setText(this.#theme, THEME_SIGNS[name]);
    this.#theme.title = `Theme: ${name} (T)`;
    this.#theme.setAttribute("aria-label", this.#theme.title);
  }

  #showInstruments() {
    const { instruments, selected } = this.#store;
    const several = new Set(instruments.map(({ venue }) => venue)).size > 1;
    const name = ({ venue, symbol }) => (several ? `${symbol} ${venue}` : symbol);
    if (instruments.length > BUTTONS || document.documentElement.classList.contains("phone")) {
      let select = this.#instruments.querySelector("select");
      if (!select) {
        select = make("select", { "aria-label": "Instrument", "data-testid": "instrument", onchange: () => this.#store.select(select.value) });
        this.#instruments.replaceChildren(select);
      }
      fillChoice(select, instruments.map((given) => [keyOf(given), `${name(given)}${given.state === "valid" ? "" : ` · ${given.state}`}`]), selected);
      return;
    }
    this.#instruments.replaceChildren(...instruments.map((given, at) => {
      const key = keyOf(given);
      const button = make("button.instrument", {
        type: "button", "aria-pressed": String(key === selected), title: `${given.venue} ${given.symbol}, ${given.state} (${at + 1})`, onclick: () => this.#store.select(key), "data-testid": `instrument-${given.symbol}`,
      }, make("kbd", {}, String(at + 1)), name(given));
      if (given.state !== "valid") button.append(make("span.badge.bad", {}, given.state));
      return button;
    }));
  }

  #look() {
    const { state, silence, problem } = this.#connection;
    const seconds = `${(silence / 1000).toFixed(silence < 10_000 ? 1 : 0)} s`;
    const text = { live: "live", connecting: "connecting", stale: `stale ${seconds}`, disconnected: `disconnected ${seconds}` }[state];
    setText(this.#link, text);
    this.#link.className = `badge ${state === "live" ? "good" : state === "connecting" ? "" : "bad"}`;
    this.#link.title = state === "live" ? "Frames arrive" : `${problem ? `${problem}; ` : ""}what is shown is not now, the page keeps trying`;
    document.documentElement.dataset.connection = state;
    document.title = state === "live" || state === "connecting" ? `${this.#store.book?.symbol ?? ""} Orderbook`.trim() : `⚠ ${state} Orderbook`;
    if (state !== "live") for (const market of [this.#store, ...this.#beside.markets]) market.emit("book", market.book);
    for (const pane of this.#panes.values()) pane.mark(this.#store.notLive);
    this.#showStatus();
  }

  /** Pulls the kill switch, or releases it, and says what that did. */
  async #switch() {
    const release = typeof this.#status?.halted === "string";
    const question = release ? "Strategies may place orders again." : "Every open order of the run is cancelled, and none is placed any more.";
    if (!(await said(release ? "Release the halt?" : "Halt?", question, release ? "Release" : "Halt"))) return;
    const message = { op: "halt", halted: !release, reason: "from the page" };
    try {
      const answer = await this.#connection.request(message).catch((error) => {
        if (!/token/i.test(error.message)) throw error;
        return changing(this.#connection, message);
      });
      const { halted, open_before: before, open } = answer;
      const done = `${before - open} of ${before} open orders cancelled.${open ? ` ${open} may still be open: look at the venue itself.` : ""}`;
      await said(halted ? "Halted" : "Released", halted ? done : "Orders are taken again.");
    } catch (error) {
      await said(`Not ${release ? "released" : "halted"}`, error.message);
    }
  }

  #showHalt() {
    const { halted, gateways } = this.#status;
    const off = typeof halted === "string";
    setText(this.#halt, off ? "Halted" : "Halt");
    this.#halt.classList.toggle("bad", off);
    const venues = (gateways ?? []).map(({ venue, mode, ready, open_orders: open, trouble }) => `${venue} (${mode}): ${ready ? "ready" : trouble ?? "not ready"}, ${open} open`);
    this.#halt.title = [off ? `halted: ${halted}; click to release` : "cancel every order of the run, and let none be placed", ...venues].join("; ");
  }

  #showStatus() {
    if (!this.#status) return;
    this.#showHalt();
    const { feeds, engine, preparing } = this.#status;
    // A run that is yet to come: its books and trades are shown, without views and strategies.
    const begins = typeof preparing === "string";
    this.#preparing.hidden = !begins;
    if (begins) setText(this.#preparing, `${preparing || "starting"} · books and trades only`);
    this.#preparing.title = "The run begins as soon as its views are compiled; what is compiled is kept for the next start";
    this.#halt.disabled = begins;
    const was = this.#store.notLive ? "was " : "";
    if (this.#feeds.children.length !== feeds.length) this.#feeds.replaceChildren(...feeds.map(() => chip()));
    feeds.forEach((feed, at) => fillChip(this.#feeds.children[at], feed, was));
    setText(this.#engine, `${was}${count(engine.events_per_second)} ev/s · fresh p99 ${duration(engine.to_views?.p99)} · ${bytes(engine.bytes)}`);
    this.#engine.title = `events a second; receipt to fresh views, 99th percentile; memory of all views; ${count(engine.events)} events, ${count(engine.queue)} wait`;
  }

  #fillMenu(layout, panes) {
    const boxes = [...panes].map(([id, { title }]) => {
      const box = make("input", { type: "checkbox", checked: !layout.hidden.has(id), onchange: () => layout.toggle(id) });
      return make("label", {}, box, title);
    });
    const reset = make("button", { type: "button", onclick: () => {
      layout.reset();
      this.#fillMenu(layout, panes);
    }, "data-testid": "reset-layout" }, "Reset layout");
    this.#menu.replaceChildren(...boxes, reset, ...layoutsMenu(this.#layouts, () => this.#fillMenu(layout, panes)));
  }
}

/** Says something, and whether the button with the name of what is to be done was pressed, where there is one. */
function said(title, text, act) {
  return new Promise((resolve) => {
    const cancel = make("button", { type: "button", onclick: () => dialog.close(""), "data-testid": "halt-close" }, act ? "Cancel" : "Close");
    const go = act ? make("button.primary", { value: "ok", "data-testid": "halt-go" }, act) : null;
    const dialog = make("dialog.ask", { "aria-label": title, "data-testid": "halt-dialog" },
      make("form", { method: "dialog" }, make("h2", {}, title), make("p", {}, text), make("div.row", {}, cancel, go)));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "ok");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

function chip() {
  return make("div.feed", {}, make("span.badge"), make("span.feed-name"), make("span.feed-numbers"));
}

function fillChip(element, { name, state, reason, books, gaps, reconnects, latency, last_message_seconds: last }, was) {
  const [badge, label, numbers] = element.children;
  setText(badge, `${was}${state}`);
  badge.className = `badge ${was || state === "ended" ? "" : state === "valid" ? "good" : "bad"}`;
  setText(label, name);
  setText(numbers, `${gaps} ${gaps === 1 ? "gap" : "gaps"} · p99 ${duration(latency?.p99)}`);
  const quiet = last === null ? "nothing received yet" : `last message ${last.toFixed(1)} s ago`;
  element.title = `${reason ? `${reason}; ` : ""}books: ${books.valid} valid, ${books.syncing} syncing, ${books.stale} stale; ${reconnects} reconnections; ${quiet}`;
  element.dataset.state = state;
}

/** Shows alerts for some seconds; returns what shows one. */
export function bannerIn(element, open) {
  let timer = 0;
  const text = make("span");
  const button = make("button.plain", { type: "button", onclick: () => open() }, "Alerts");
  const close = make("button.plain", { type: "button", "aria-label": "Close", onclick: () => { element.hidden = true; } }, "×");
  element.append(make("strong", {}, "Alert"), text, button, close);
  return ({ name, view, key, text: condition, old }) => {
    if (old) return;
    setText(text, `${name}: ${view} ${(key ?? []).join(" ")} ${condition ?? ""}`);
    element.hidden = false;
    clearTimeout(timer);
    timer = setTimeout(() => { element.hidden = true; }, 10_000);
  };
}
