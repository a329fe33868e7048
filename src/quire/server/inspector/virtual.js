// A list of any length that keeps only the rows in sight. All rows are of one height.

import { el, framed } from "./dom.js";

const BEYOND = 8; // rows drawn above and below what is in sight

export class VirtualList {
  /** `draw(place)` makes a row; `near(last)` hears which row is the last in sight; `scroller` is what scrolls. */
  constructor(host, { height, draw, near = () => {} }) {
    this.host = host;
    this.height = height;
    this.draw = draw;
    this.near = near;
    this.count = 0;
    this.rows = new Map();
    this.space = el("div", { class: "virtual", role: "presentation" });
    host.classList.add("virtual-host");
    host.append(this.space);
    this.update = framed(() => this.place());
    host.addEventListener("scroll", this.update, { passive: true });
    this.watch = new ResizeObserver(this.update);
    this.watch.observe(host);
  }

  /** So many rows from now on; all are drawn anew. */
  setCount(count) {
    this.count = count;
    this.space.style.setProperty("height", `${count * this.height}px`);
    this.redraw();
  }

  /** Draw the rows in sight anew. */
  redraw() {
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
    this.place();
  }

  /** Draw one row anew, if it is in sight. */
  redrawRow(place) {
    const old = this.rows.get(place);
    if (!old) return;
    const row = this.make(place);
    old.replaceWith(row);
    this.rows.set(place, row);
  }

  make(place) {
    const row = this.draw(place);
    row.style.setProperty("transform", `translateY(${place * this.height}px)`);
    row.style.setProperty("height", `${this.height}px`);
    return row;
  }

  place() {
    const top = this.host.scrollTop;
    const seen = this.host.clientHeight;
    if (!seen) return;
    const first = Math.max(0, Math.floor(top / this.height) - BEYOND);
    const last = Math.min(this.count - 1, Math.ceil((top + seen) / this.height) + BEYOND);
    for (const [place, row] of this.rows) {
      if (place >= first && place <= last) continue;
      row.remove();
      this.rows.delete(place);
    }
    for (let place = last; place >= first; place -= 1) {
      if (this.rows.has(place)) continue;
      const row = this.make(place);
      this.space.insertBefore(row, this.rows.get(place + 1) ?? null); // in order, for who reads them in order
      this.rows.set(place, row);
    }
    if (this.count) this.near(last);
  }

  /** Bring a row into sight. */
  reveal(place) {
    const top = place * this.height;
    const seen = this.host.clientHeight;
    if (top < this.host.scrollTop) this.host.scrollTop = top;
    else if (top + this.height > this.host.scrollTop + seen) this.host.scrollTop = top + this.height - seen;
    this.place();
  }

  close() {
    this.watch.disconnect();
  }
}
