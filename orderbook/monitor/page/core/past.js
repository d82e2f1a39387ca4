/** The past that the server keeps: of a book as it is shown, and line by line of what charts show. */
import { knownToken } from "./token.js";

const EVERY = 1000;
const STATES = ["syncing", "valid", "stale"];
const SIDES = ["buy", "sell", ""];
/** 8-byte words of a trade. */
const TRADE = 4;

/** Not by way of a Response and a Blob, which take longer than the decompression. */
async function inflate(block) {
  const { readable, writable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  // The reader is told what is wrong with a block.
  for (const written of [writer.write(block), writer.close()]) written.catch(() => {});
  const chunks = [];
  let size = 0;
  for (const reader = readable.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    size += value.length;
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole.buffer;
}

/** The blocks of an answer, without their compression; null where the server has none. */
async function blocks(path, query) {
  const headers = knownToken() ? { Authorization: `Bearer ${knownToken()}` } : {};
  const response = await fetch(`history/${path}?${new URLSearchParams(query)}`, { headers, cache: "no-store" });
  if (!response.ok) return null;
  const bytes = await response.arrayBuffer();
  const view = new DataView(bytes);
  const found = [];
  for (let at = 0; at + 4 <= bytes.byteLength; ) {
    const size = view.getUint32(at, true);
    found.push(inflate(new Uint8Array(bytes, at + 4, size)));
    at += 4 + size;
  }
  return Promise.all(found);
}

/** What is known of a book, or null: {coarse, fine, every, trades, traded, seconds, minutes, volume, fills}. */
export async function pastOf({ venue, symbol }) {
  const [first, ...rest] = (await blocks("book", { venue, symbol })) ?? [];
  if (!first) return null;
  const head = JSON.parse(new TextDecoder().decode(first));
  const coarse = rest.splice(0, head.coarse).flatMap(columns);
  const fine = rest.splice(0, head.fine).flatMap(columns);
  const given = rest.splice(0, head.trades).flatMap(trades);
  return { ...head, coarse, fine, trades: given.map((trade, k) => ({ ...trade, number: head.traded - given.length + 1 + k })) };
}

function columns(block) {
  const words = new Float64Array(block);
  const found = [];
  for (let at = 0; at < words.length; ) {
    const [number, state, bids, asks] = words.subarray(at, at + 4);
    const middle = at + 4 + 2 * bids;
    const end = middle + 2 * asks;
    found.push({ number, state: STATES[state], bids: words.subarray(at + 4, middle), asks: words.subarray(middle, end) });
    at = end;
  }
  return found;
}

function trades(block) {
  const whole = new BigInt64Array(block);
  const words = new Float64Array(block);
  const found = [];
  for (let at = 0; at < whole.length; at += TRADE) {
    found.push({ time: Number(whole[at]) / 1e6, ticks: words[at + 1], lots: words[at + 2], side: SIDES[Math.min(2, Number(whole[at + 3]))], shown: 0 });
  }
  return found;
}

/** Hands on the lines of a view or of profits, from the oldest that the server keeps, as long as it is to. */
export class Lines {
  #take;
  #name = null;
  #after = -1;
  #timer = 0;
  #paused = false;
  /** Counts what was begun, so that an answer to an earlier question is none to this. */
  #turn = 0;

  /** take(line): {at: seconds since 1970, …}, by time. */
  constructor(take) {
    this.#take = take;
  }

  /** Follows another name from its beginning; null: none. */
  follow(name) {
    this.#name = name;
    this.#after = -1;
    this.#goOn();
  }

  /** Stops, or goes on where it stopped. */
  pause(paused) {
    if (paused === this.#paused) return;
    this.#paused = paused;
    this.#goOn();
  }

  #goOn() {
    clearTimeout(this.#timer);
    this.#turn++;
    if (!this.#paused && this.#name !== null) this.#ask(this.#turn);
  }

  async #ask(turn) {
    try {
      const found = (await blocks("lines", { name: this.#name, after: this.#after })) ?? [];
      if (turn !== this.#turn) return;
      for (const block of found) {
        for (const text of new TextDecoder().decode(block).split("\n")) {
          const line = text && JSON.parse(text);
          if (!line || line.at <= this.#after) continue;
          this.#after = line.at;
          this.#take(line);
        }
      }
    } catch {
      // The server is away; the page says so already.
    }
    if (turn === this.#turn) this.#timer = setTimeout(() => this.#ask(turn), EVERY);
  }
}
