// The state that the screens of one context share: figures, cached views, the selected page and the budget.

import { book } from "./api.js";
import { settled } from "./dom.js";
import { follow } from "./live.js";

const QUIET = 60; // milliseconds: changes within this time are handled together
const MOST_VIEWS = 24;
const FIRST = { budget: null, format: "openai" };

const keyOf = (seq, { budget, format }) => `${seq} ${budget} ${format}`;

export class Session extends EventTarget {
  constructor(name) {
    super();
    this.name = name;
    this.api = book(name);
    this.info = null;
    this.budget = null; // null: the budget of the context
    this.page = null;
    this.seq = 0;
    this.requests = 0;
    this.answered = 0;
    this.closed = false;
    this.views = new Map();
    this.look = settled(() => this.refresh(), QUIET);
  }

  /** Load the figures and follow the changes. */
  async start(onState) {
    const first = this.api.view({ ...FIRST, against: "call" }); // in parallel: most users look at it first
    first.catch(() => {});
    await this.refresh();
    if (this.closed) return;
    const current = (view) => (view.seq < this.seq ? this.api.view({ ...FIRST, against: "call" }) : view);
    this.keep(FIRST, first.then(current));
    this.stop = follow(this.api.events, () => this.look(), onState);
  }

  close() {
    this.closed = true;
    this.stop?.();
  }

  /** Reload the figures, and dispatch `change` with the seq before and after. */
  async refresh() {
    const number = (this.requests += 1);
    let info;
    try {
      info = await this.api.info();
    } catch (error) {
      this.dispatchEvent(new CustomEvent("failed", { detail: error }));
      return;
    }
    if (number < this.answered) return; // a later request was answered first
    this.answered = number;
    const before = this.seq;
    this.info = info;
    this.seq = info.seq;
    this.dispatchEvent(new CustomEvent("change", { detail: { before, seq: this.seq } }));
  }

  /** Return the number of a segment's colour. */
  colour(segment) {
    const place = (this.info?.segments ?? []).findIndex((one) => one.id === segment);
    return place < 0 ? "none" : place % 8;
  }

  segment(id) {
    return (this.info?.segments ?? []).find((one) => one.id === id);
  }

  /** Return a view, requested once for each state, budget and format. */
  view({ budget = null, format = "openai" } = {}) {
    const key = keyOf(this.seq, { budget, format });
    if (!this.views.has(key)) this.keep({ budget, format }, this.api.view({ budget, format, against: "call" }));
    return this.views.get(key);
  }

  /** Keep a requested view until too many newer ones are kept, or its request fails. */
  keep(asked, pending) {
    const key = keyOf(this.seq, asked);
    pending.catch(() => this.views.delete(key));
    this.views.set(key, pending);
    if (this.views.size > MOST_VIEWS) this.views.delete(this.views.keys().next().value);
  }

  /** Return the last view that a model answered, requested once for each state and format. */
  sent(format = "openai") {
    const key = `sent ${this.seq} ${format}`;
    if (this.sentKey !== key) {
      this.sentKey = key;
      this.sentView = this.api.sent({ format });
      this.sentView.catch(() => (this.sentKey = null));
    }
    return this.sentView;
  }

  /** Set the budget for all screens; null is that of the context. */
  chooseBudget(budget) {
    this.budget = budget === this.info?.budget ? null : budget;
    this.dispatchEvent(new Event("budget"));
  }

  /** Show a page in the panel, with the reason why it is shown this way if requested; null closes it. */
  select(index, { why = false } = {}) {
    this.page = index;
    this.why = why;
    this.dispatchEvent(new Event("page"));
  }

  /** Run an operation on a page, and load its changes. */
  async operate(index, operation, body) {
    const done = await this.api.operate(index, operation, body);
    this.dispatchEvent(new CustomEvent("touched", { detail: done.page }));
    this.look();
    return done;
  }

  async undo(seq) {
    const done = await this.api.undo(seq);
    await this.refresh();
    return done;
  }
}
