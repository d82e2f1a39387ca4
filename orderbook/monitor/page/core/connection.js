/** The websocket: subscriptions that outlive it, requests with answers, and whether anything still arrives. */
import { Emitter } from "./emitter.js";

/** Milliseconds without any message after which what is shown counts as stale, and after which a new connection is tried. */
const SILENT = 1500;
const GIVE_UP = 6000;
const FIRST_WAIT = 250;
const LONGEST_WAIT = 8000;
const CHECK = 200;
/** Milliseconds for the answer to a request. */
const PATIENCE = 30_000;

/** Emits "state" whenever `state` changes: "connecting", "live", "stale" or "disconnected"; "lost" whenever a
 *  connection ends or is refused. */
export class Connection extends Emitter {
  #url;
  #socket = null;
  #next = 1;
  #subscriptions = new Set();
  #receivers = new Map();
  #requests = new Map();
  #wait = FIRST_WAIT;
  #timer = 0;

  /** url: gives the address, asked at every attempt. */
  constructor(url) {
    super();
    this.#url = url;
    this.state = "connecting";
    this.received = performance.now();
    this.messages = 0;
    this.bytes = 0;
    /** Why the server ended the connection before. */
    this.problem = "";
    setInterval(() => this.#check(), CHECK);
    addEventListener("online", () => this.#retryNow());
    document.addEventListener("visibilitychange", () => document.hidden || this.#retryNow());
    this.#open();
  }

  /** Milliseconds since the last message. */
  get silence() {
    return performance.now() - this.received;
  }

  /** Gives `receive(frame, first)` the frames of a topic, also after a reconnection, until `cancel()` of what it
   *  returns. first: nothing was received on this connection before, and so some of it may be known already. */
  subscribe(topic, receive, refused = () => {}) {
    const subscription = { topic, receive, refused, id: 0, first: true };
    this.#subscriptions.add(subscription);
    if (this.#isOpen()) this.#begin(subscription);
    return {
      cancel: () => {
        if (!this.#subscriptions.delete(subscription)) return;
        this.#receivers.delete(subscription.id);
        if (this.#isOpen()) this.#send({ id: this.#next++, op: "unsubscribe", subscription: subscription.id });
      },
    };
  }

  /** The answer to one request; throws an Error with the server's line where it refuses. patience: milliseconds. */
  request(message, patience = PATIENCE) {
    if (!this.#isOpen()) return Promise.reject(new Error("not connected"));
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#requests.delete(id);
        reject(new Error(`no answer within ${patience / 1000} seconds`));
      }, patience);
      this.#requests.set(id, { resolve, reject, timer });
      this.#send({ id, ...message });
    });
  }

  #isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  #send(message) {
    this.#socket.send(JSON.stringify(message));
  }

  #begin(subscription) {
    subscription.id = this.#next++;
    subscription.first = true;
    this.#receivers.set(subscription.id, subscription);
    this.#send({ id: subscription.id, op: "subscribe", ...subscription.topic });
  }

  #open() {
    clearTimeout(this.#timer);
    const socket = new WebSocket(this.#url());
    this.#socket = socket;
    const opened = performance.now();
    socket.addEventListener("open", () => {
      if (socket !== this.#socket) return;
      this.received = performance.now();
      this.problem = "";
      this.#receivers.clear();
      for (const subscription of this.#subscriptions) this.#begin(subscription);
    });
    socket.addEventListener("message", (event) => socket === this.#socket && this.#message(event.data));
    socket.addEventListener("close", (event) => {
      if (socket !== this.#socket) return;
      this.problem = event.reason;
      if (performance.now() - opened > LONGEST_WAIT) this.#wait = FIRST_WAIT;
      this.#lost();
    });
  }

  #message(text) {
    this.received = performance.now();
    this.messages++;
    this.bytes += text.length;
    this.#wait = FIRST_WAIT;
    const message = JSON.parse(text);
    this.#become("live");
    const request = this.#requests.get(message.id);
    if (request) {
      this.#requests.delete(message.id);
      clearTimeout(request.timer);
      if (message.type === "error") request.reject(new Error(message.error));
      else request.resolve(message);
      return;
    }
    const subscription = this.#receivers.get(message.id);
    if (subscription) {
      if (message.type === "error") subscription.refused(message.error);
      else {
        const { first } = subscription;
        subscription.first = false;
        subscription.receive(message, first);
      }
    }
  }

  #lost() {
    this.#socket = null;
    for (const { reject, timer } of this.#requests.values()) {
      clearTimeout(timer);
      reject(new Error("the connection was lost"));
    }
    this.#requests.clear();
    this.#become("disconnected");
    this.emit("lost");
    // Spread, so that the pages of many desks do not come back in one instant.
    this.#timer = setTimeout(() => this.#open(), this.#wait * (0.75 + Math.random() / 2));
    this.#wait = Math.min(LONGEST_WAIT, this.#wait * 2);
  }

  #check() {
    if (!this.#isOpen() && this.state !== "live") return;
    if (this.silence > GIVE_UP && this.#socket) {
      const socket = this.#socket;
      this.#lost();
      socket.close();
    } else if (this.silence > SILENT && this.state === "live") this.#become("stale");
  }

  #retryNow() {
    if (this.state !== "disconnected" || this.#socket) return;
    this.#wait = FIRST_WAIT;
    this.#open();
  }

  #become(state) {
    if (state === this.state) return;
    this.state = state;
    this.emit("state", state);
  }
}
