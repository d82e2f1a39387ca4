/** The ladder: what it shows, and what keys, wheel and pointer do to it. */
import { Canvas } from "../core/canvas.js";
import { choice, make, toggle } from "../core/dom.js";
import { Doubt, Pane } from "../core/pane.js";
import { settings } from "../core/storage.js";
import { theme } from "../core/theme.js";
import { allFit, COLUMNS, place } from "./columns.js";
import { drawLadder, headHeight, TRADE_FADE } from "./draw.js";
import { away, lastTraded, own, volumes } from "./marked_rows.js";
import { changes, GROUPS, lastTrades, Rows, sums } from "./rows.js";

const ROW = 17;
/** Auto recentre acts when the market is this share of the ladder away from its middle. */
const EDGE = 0.4;
/** Milliseconds between two counts of pulled and stacked sizes, which look at the past. */
const CHANGES_EVERY = 100;

export class LadderPane extends Pane {
  #store;
  #doubt = new Doubt();
  #settings;
  #rowsOf = new Map();
  #measured = new Map();
  #most = 1;
  #hover = -1;
  #inside = false;
  #changes = { bid: new Map(), ask: new Map(), at: 0, book: null, group: 0 };
  #scene = null;
  #wheel = 0;

  /** store: the market that is shown; number: which of the ladders it is. */
  constructor(store, number = 1) {
    const id = number === 1 ? "ladder" : `ladder-${number}`;
    super(id, number === 1 ? "Ladder" : `Ladder ${number}`, { live: false });
    this.#store = store;
    this.#settings = settings(id, { groups: {}, hideEmpty: false, auto: true, hidden: [] }, () => this.changed());
    this.#canvas = new Canvas("Price ladder", id, () => this.changed());
    this.body.append(this.#canvas.box, this.#doubt.element);
    this.#buildBar();
    this.#listen();
    store.on("book", () => this.changed());
    store.on("select", () => this.#showSettings());
    theme.on("change", () => this.changed());
  }

  #canvas;
  #group;
  #empty;
  #auto;

  /** What is drawn now, for tests: rows from the top as {price, bid, ask} with sizes in lots, or null. */
  get shownRows() {
    const scene = this.#scene;
    if (!scene) return null;
    const { book, levels, scale, group } = scene;
    const rows = scene.numbers
      .filter((number) => number !== null)
      .map((number) => ({
        ticks: number * group,
        price: scale.price(number * group),
        bid: levels.bid.get(number)?.lots ?? 0,
        ask: levels.ask.get(number)?.lots ?? 0,
      }));
    return { venue: book.venue, symbol: book.symbol, time: scene.time, group, rows, doubt: scene.doubt };
  }

  /** Puts the market into the middle. */
  recentre() {
    const { book } = this.#store;
    if (!book) return;
    this.#rows(book).recentre(book);
    this.changed();
  }

  toggleAuto() {
    this.#settings.set({ auto: !this.#settings.values.auto });
    this.#showSettings();
  }

  toggleEmpty() {
    this.#settings.set({ hideEmpty: !this.#settings.values.hideEmpty });
    this.#showSettings();
  }

  /** Groups prices coarser, or finer where `step` is -1. */
  regroup(step) {
    const { book } = this.#store;
    if (!book) return;
    const at = GROUPS.indexOf(this.#rows(book).group) + step;
    if (GROUPS[at]) this.#setGroup(GROUPS[at]);
  }

  draw(now) {
    const { book, doubt } = this.#store;
    this.#doubt.show(doubt);
    if (!book || !this.#canvas.height) return;
    const rows = this.#rows(book);
    const scene = this.#lay(book, rows, now);
    if (!scene) {
      this.#canvas.begin(theme.colours.panel);
      return;
    }
    scene.doubt = doubt;
    this.#scene = scene;
    drawLadder(this.#canvas, scene);
  }

  #lay(book, rows, now) {
    if (rows.centre === null) rows.recentre(book);
    if (rows.centre === null) return null;
    rows.hideEmpty = this.#settings.values.hideEmpty;
    const count = Math.max(1, Math.floor((this.#canvas.height - headHeight) / ROW));
    if (this.#settings.values.auto && !this.#inside) this.#follow(book, rows, count);
    const { group } = rows;
    const levels = { bid: sums(book, "bid", group), ask: sums(book, "ask", group), own: own(book, group) };
    levels.kept = [...levels.own.bid.keys(), ...levels.own.ask.keys()];
    const numbers = rows.lay(count, levels);
    levels.changes = this.#changed(book, group, now);
    levels.trades = {
      bid: lastTrades(book, "sell", group, now, TRADE_FADE),
      ask: lastTrades(book, "buy", group, now, TRADE_FADE),
    };
    levels.volume = volumes(book, group, numbers);
    const priceCharacters = book.scale.price(Math.max(...numbers.filter((n) => n !== null), 1) * group).length;
    const fonts = this.#fonts(priceCharacters);
    return {
      book, rows, numbers, group, levels, now, rowHeight: ROW, scale: book.scale, time: book.timeText, ...fonts,
      places: place(this.#canvas.width, fonts.character, priceCharacters, this.#settings.values.hidden, book.hadOrders),
      most: this.#mostLots(levels, numbers),
      mostVolume: Math.max(0, ...levels.volume.values()),
      hover: this.#hover,
      lastTraded: lastTraded(book, group),
      away: away(book, rows, numbers),
    };
  }

  #follow(book, rows, count) {
    if (book.middle === null) return;
    const distance = rows.hideEmpty && this.#scene
      ? away(book, rows, rows.numbers) * count
      : Math.floor(book.middle / rows.group) - rows.centre;
    if (Math.abs(distance) > count * EDGE) rows.recentre(book);
  }

  /** The longest bar's size; it falls slowly, so that bars do not jump when one large level goes. */
  #mostLots(levels, numbers) {
    let most = 1;
    for (const number of numbers) {
      most = Math.max(most, levels.bid.get(number)?.lots ?? 0, levels.ask.get(number)?.lots ?? 0);
    }
    this.#most = Math.max(most, this.#most * 0.97);
    return this.#most;
  }

  #changed(book, group, now) {
    const kept = this.#changes;
    if (now - kept.at > CHANGES_EVERY || kept.book !== book || kept.group !== group) {
      this.#changes = { bid: changes(book, "bid", group), ask: changes(book, "ask", group), at: now, book, group };
    }
    return this.#changes;
  }

  #rows(book) {
    const key = `${book.venue}\u0000${book.symbol}`;
    if (!this.#rowsOf.has(key)) {
      const rows = new Rows();
      rows.group = this.#settings.values.groups[key] ?? 1;
      this.#rowsOf.set(key, rows);
    }
    return this.#rowsOf.get(key);
  }

  /** Somewhat smaller where that lets every column in. */
  #fonts(priceCharacters) {
    const { hidden } = this.#settings.values;
    const size = allFit(this.#canvas.width, this.#characterOf(12), priceCharacters, hidden) ? 12 : 11;
    const numbers = theme.numbers;
    return {
      font: `${size}px ${numbers}`, bold: `600 ${size}px ${numbers}`, headFont: `11px ${theme.words}`, character: this.#characterOf(size),
    };
  }

  #characterOf(size) {
    const font = `${size}px ${theme.numbers}`;
    if (!this.#measured.has(font)) {
      this.#canvas.context.font = font;
      this.#measured.set(font, this.#canvas.context.measureText("0").width);
    }
    return this.#measured.get(font);
  }

  #setGroup(group) {
    const { book } = this.#store;
    if (!book) return;
    this.#rows(book).regroup(group);
    const key = `${book.venue}\u0000${book.symbol}`;
    this.#settings.set({ groups: { ...this.#settings.values.groups, [key]: group } });
    this.#showSettings();
  }

  #buildBar() {
    const { values } = this.#settings;
    const groups = GROUPS.map((group) => [group, group === 1 ? "1 tick" : `${group} ticks`]);
    this.#group = choice("Price grouping", groups, 1, (value) => this.#setGroup(Number(value)), `${this.id}-group`);
    this.#empty = toggle("Hide empty", "Hide prices without orders (N)", values.hideEmpty, () => this.toggleEmpty());
    this.#auto = toggle("Auto", "Recentre when the market nears the edge, unless the pointer is on the ladder (A)", values.auto, () => this.toggleAuto());
    const centre = make("button", { type: "button", title: "Recentre (Space or C)", onclick: () => this.recentre(), "data-testid": this.id === "ladder" ? "recentre" : `recentre-${this.id}` }, "Centre");
    this.bar.append(this.#group, centre, this.#auto.element, this.#empty.element, this.#columnMenu());
  }

  #columnMenu() {
    const boxes = COLUMNS.filter(({ name }) => name !== "size").map(({ name, title }) => {
      const box = make("input", { type: "checkbox", checked: !this.#settings.values.hidden.includes(name) });
      box.addEventListener("change", () => {
        const hidden = this.#settings.values.hidden.filter((given) => given !== name);
        this.#settings.set({ hidden: box.checked ? hidden : [...hidden, name] });
      });
      return make("label", {}, box, title);
    });
    return make("details.menu", {}, make("summary", { title: "Columns of the ladder" }, "Columns"), make("div.menu-body", {}, ...boxes));
  }

  #showSettings() {
    const { book } = this.#store;
    this.#auto.show(this.#settings.values.auto);
    this.#empty.show(this.#settings.values.hideEmpty);
    if (book) this.#group.value = String(this.#rows(book).group);
    this.changed();
  }

  #scroll(rows) {
    const { book } = this.#store;
    if (!book) return;
    this.#rows(book).scroll(rows);
    this.changed();
  }

  #listen() {
    const { element } = this.#canvas;
    element.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.#wheel += event.deltaMode === 1 ? event.deltaY * ROW : event.deltaY;
      const rows = Math.trunc(this.#wheel / ROW);
      this.#wheel -= rows * ROW;
      if (rows) this.#scroll(-rows);
    }, { passive: false });
    element.addEventListener("pointermove", (event) => {
      this.#inside = event.pointerType === "mouse";
      this.#hover = Math.floor((this.#canvas.at(event)[1] - headHeight) / ROW);
      if (event.buttons && event.pointerType !== "mouse") this.#drag(event);
      this.changed();
    });
    element.addEventListener("pointerleave", () => {
      this.#inside = false;
      this.#hover = -1;
    });
    element.addEventListener("click", () => this.#scene?.away && this.recentre());
    element.addEventListener("dblclick", () => this.recentre());
    element.addEventListener("keydown", (event) => {
      const page = Math.max(1, Math.floor((this.#canvas.height - headHeight) / ROW) - 2);
      const rows = { ArrowUp: 1, ArrowDown: -1, PageUp: page, PageDown: -page }[event.key];
      if (event.key === "Home") this.recentre();
      else if (rows) this.#scroll(rows);
      else return;
      event.preventDefault();
    });
  }

  #drag(event) {
    this.#wheel -= event.movementY;
    const rows = Math.trunc(this.#wheel / ROW);
    this.#wheel -= rows * ROW;
    if (rows) this.#scroll(-rows);
  }
}
