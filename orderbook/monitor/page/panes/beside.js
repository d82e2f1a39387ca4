/** Further markets beside the chosen one: a ladder and a heat map each, with a choice of the instrument. */
import { keyOf } from "../core/books.js";
import { choice, fillChoice, make } from "../core/dom.js";
import { Market } from "../core/market.js";
import { HeatPane } from "../heatmap/pane.js";
import { LadderPane } from "../ladder/pane.js";

const NUMBERS = [2, 3];

export class Beside {
  #store;
  #shown;

  /** Each of `markets` receives only while one of its panes is seen. */
  constructor(store, connection, books) {
    this.#store = store;
    /** The layout of these and other panes, once there is one. */
    this.layout = null;
    this.#shown = NUMBERS.map((number) => {
      const market = new Market(connection, books, `instrument-${number}`);
      const panes = [new LadderPane(market, number), new HeatPane(market, number)];
      market.pause(true);
      for (const pane of panes) {
        pane.optional = true;
        pane.shown = () => market.pause(!panes.some(({ visible }) => visible));
        const close = make("button.plain", { type: "button", title: "Close this market", "aria-label": "Close this market", onclick: () => this.#close(panes), "data-testid": `close-${pane.id}` }, "×");
        pane.bar.prepend(instrumentOf(market, pane.id), close);
      }
      return { market, panes };
    });
    store.on("instruments", (instruments) => {
      for (const { market } of this.#shown) market.know(instruments);
    });
  }

  get markets() {
    return this.#shown.map(({ market }) => market);
  }

  get panes() {
    return this.#shown.flatMap(({ panes }) => panes);
  }

  /** The ladders that are seen. */
  get ladders() {
    return this.panes.filter((pane) => pane.visible && pane instanceof LadderPane);
  }

  /** Whether there is one that is not shown. */
  get room() {
    return this.#next() !== undefined;
  }

  /** Shows one more, of an instrument that no other shows where there is one. */
  add() {
    const next = this.#next();
    if (!next) return;
    const others = [this.#store, ...this.#shown.filter((one) => !this.#hidden(one)).map(({ market }) => market)];
    const taken = new Set(others.map(({ selected }) => selected));
    const free = this.#store.instruments.find((given) => !taken.has(keyOf(given)));
    if (free && taken.has(next.market.selected)) next.market.select(keyOf(free));
    this.layout.set(next.panes.map(({ id }) => id), true);
  }

  #next() {
    return this.#shown.find((one) => this.#hidden(one));
  }

  #hidden({ panes }) {
    return panes.every(({ id }) => this.layout.hidden.has(id));
  }

  #close(panes) {
    this.layout.set(panes.map(({ id }) => id), false);
  }
}

function instrumentOf(market, id) {
  const select = choice("Instrument", [], null, (key) => market.select(key), `instrument-of-${id}`);
  const show = () => {
    const several = new Set(market.instruments.map(({ venue }) => venue)).size > 1;
    fillChoice(select, market.instruments.map((given) => [keyOf(given), several ? `${given.symbol} ${given.venue}` : given.symbol]), market.selected ?? "");
  };
  market.on("instruments", show);
  market.on("select", show);
  return make("label.inline", {}, select);
}
