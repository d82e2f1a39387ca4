/** Feeds and engine in numbers: gaps, latencies, rates, and the size of each view. */
import { make, setText } from "../core/dom.js";
import { bytes, count, duration, milliseconds } from "../core/format.js";
import { Pane } from "../core/pane.js";
import { drawTimes } from "../core/scheduler.js";
import { Series } from "../core/series.js";
import { Table } from "../core/table.js";

const FEEDS = [["feed", "text"], ["state", "text"], ["gaps", "int"], ["p50", "number"], ["p99", "number"], ["last message", "number"], ["valid", "int"], ["syncing", "int"], ["stale", "int"], ["reconnects", "int"], ["rejected", "int"]];
const VIEWS = [["view", "text"], ["rows", "int"], ["bytes", "int"]];
const PER_EVENT = ["per event", "number"];

export class HealthPane extends Pane {
  #store;
  #numbers = make("dl.numbers", { "data-testid": "engine" });
  #feeds = new Table("Feeds", "feeds");
  #views = new Table("Views", "engine-views");
  #rate = new Series("Events a second", "rate");

  constructor(store) {
    super("health", "Engine");
    this.#store = store;
    this.body.classList.add("stack");
    this.body.append(
      this.#numbers,
      make("h3", {}, "Feeds"), make("div.table-box.low", {}, this.#feeds.element),
      make("h3", {}, "Views"), make("div.table-box", {}, this.#views.element),
      make("h3", {}, "Events a second"), this.#rate.element,
    );
    store.on("status", (status) => {
      this.#rate.add(milliseconds(status.wall), new Map([["events/s", status.engine.events_per_second]]));
      this.changed();
    });
  }

  draw() {
    const { status } = this.#store;
    if (!status) return;
    const { engine, feeds } = status;
    const frame = drawTimes().all;
    this.#show([
      ["events", count(engine.events)], ["events/s", count(engine.events_per_second)], ["queue", count(engine.queue)], ["epoch", count(engine.epoch)], ["views", bytes(engine.bytes)],
      ["to views p50", duration(engine.to_views?.p50)], ["p99", duration(engine.to_views?.p99)], ["to callbacks p99", duration(engine.to_callbacks?.p99)],
      ["page draws p50", frame?.p50 === null || !frame ? "–" : duration(frame.p50 * 1e6)], ["p99", frame?.p99 === null || !frame ? "–" : duration(frame.p99 * 1e6)],
    ]);
    this.#feeds.set(FEEDS, feeds.map((feed) => [
      feed.name, feed.reason ? `${feed.state}: ${feed.reason}` : feed.state, feed.gaps, duration(feed.latency?.p50), duration(feed.latency?.p99),
      feed.last_message_seconds === null ? null : `${feed.last_message_seconds.toFixed(1)} s`, feed.books.valid, feed.books.syncing, feed.books.stale, feed.reconnects, feed.rejected,
    ]));
    const { costs } = this.#store;
    const columns = costs ? [...VIEWS, PER_EVENT] : VIEWS;
    this.#views.set(columns, engine.views.map(({ view, rows, bytes: size }) => [view, rows, size, costs && duration(costs.get(view))]));
    this.#rate.draw();
  }

  #show(pairs) {
    if (this.#numbers.children.length !== pairs.length) {
      this.#numbers.replaceChildren(...pairs.map(([name]) => make("div", {}, make("dt", {}, name), make("dd"))));
    }
    pairs.forEach(([, value], at) => setText(this.#numbers.children[at].lastChild, value));
  }
}
