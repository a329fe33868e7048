// A list of any length that keeps only visible rows in the document. All rows have one height.

import { el, framed } from "./dom.js";

const BEYOND = 8; // rows drawn above and below the visible ones

export class VirtualList {
  /** `host` is the scrolling element. `draw(place)` creates a row; `near(last)` receives the last visible row. */
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

  /** Set the number of rows and redraw them. */
  setCount(count) {
    this.count = count;
    this.space.style.setProperty("height", `${count * this.height}px`);
    this.redraw();
  }

  /** Redraw the visible rows. */
  redraw() {
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
    this.place();
  }

  /** Redraw one row if it is visible. */
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
    const visible = this.host.clientHeight;
    if (!visible) return;
    const first = Math.max(0, Math.floor(top / this.height) - BEYOND);
    const last = Math.min(this.count - 1, Math.ceil((top + visible) / this.height) + BEYOND);
    for (const [place, row] of this.rows) {
      if (place >= first && place <= last) continue;
      row.remove();
      this.rows.delete(place);
    }
    for (let place = last; place >= first; place -= 1) {
      if (this.rows.has(place)) continue;
      const row = this.make(place);
      this.space.insertBefore(row, this.rows.get(place + 1) ?? null); // in order, for screen readers
      this.rows.set(place, row);
    }
    if (this.count) this.near(last);
  }

  /** Scroll a row into view. */
  reveal(place) {
    const top = place * this.height;
    const visible = this.host.clientHeight;
    if (top < this.host.scrollTop) this.host.scrollTop = top;
    else if (top + this.height > this.host.scrollTop + visible) this.host.scrollTop = top + this.height - visible;
    this.place();
  }

  close() {
    this.watch.disconnect();
  }
}
