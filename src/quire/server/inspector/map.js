// The map: the window as a sheet of rows, filled in reading order, with the cached prefix underlined.

import { el, framed, replace } from "./dom.js";
import { named, number, percent, t } from "./i18n.js";
import { segmentOf, titleOf } from "./states.js";
import { barsOf, layOut } from "./layout.js";

const labelOf = (items) => (items.length === 1 ? titleOf(items[0]) : t("n.pages", { n: items.length }));
const GAP = 7; // pixels below a row, for the cache line

export class WindowMap {
  constructor(session, onChoose) {
    this.session = session;
    this.onChoose = onChoose;
    this.active = -1;
    this.cells = [];
    this.sheet = el("div", {
      class: "map",
      role: "listbox",
      tabindex: "0",
      "aria-label": t("map"),
      onkeydown: (event) => this.key(event),
      onpointermove: (event) => this.hover(event),
      onpointerleave: () => this.tip.setAttribute("hidden", ""),
      onclick: (event) => this.click(event),
    });
    this.tip = el("div", { class: "tip", hidden: true, role: "presentation" });
    this.element = el("div", { class: "map-host" }, this.sheet, this.tip);
    this.watch = new ResizeObserver(framed(() => this.draw()));
    this.watch.observe(this.sheet);
  }

  /** Show a view. `frame` is the number of tokens of the whole sheet, `budget` the end of the window. */
  show(view, budget, frame) {
    this.view = view;
    this.budget = budget;
    this.frame = Math.max(frame, view.tokens, 1);
    this.draw();
  }

  draw() {
    const width = this.sheet.clientWidth;
    if (!this.view || !width) return;
    this.narrow = width < 520;
    this.rows = this.narrow ? 14 : 10;
    this.rowHeight = this.narrow ? 28 : 34;
    this.groups = layOut(this.view.items, this.frame, this.rows, 3 / width);
    this.sheet.style.setProperty("height", `${this.rows * (this.rowHeight + GAP) - GAP + 4}px`);
    this.cells = [];
    replace(
      this.sheet,
      this.lanes(),
      this.groups.flatMap((group, place) => this.cellsOf(group, place)),
      this.cacheLines(),
      this.breakMark(),
    );
    this.mark();
  }

  /** Draw the sheet: all rows of the window, and the area beyond it. */
  lanes() {
    const scale = this.rows / this.frame;
    const inside = barsOf(0, this.budget * scale, this.rows).map((bar) => this.bar("lane", bar));
    const beyond = barsOf(this.budget * scale, this.rows, this.rows).map((bar) => this.bar("lane beyond", bar));
    return [...inside, ...beyond];
  }

  bar(kind, bar, height = this.rowHeight, drop = 0) {
    return el("div", { class: kind, "aria-hidden": "true", style: this.box(bar, height, drop) });
  }

  box({ row, from, to }, height, drop) {
    return {
      left: `${100 * from}%`,
      width: `${100 * (to - from)}%`,
      top: `${row * (this.rowHeight + GAP) + drop}px`,
      height: `${height}px`,
    };
  }

  cellsOf(group, place) {
    const [item] = group.items;
    const label = labelOf(group.items);
    const widest = group.bars.reduce(
      (best, bar) => (bar.to - bar.from > best.to - best.from ? bar : best),
      group.bars[0],
    );
    const cells = group.bars.map((bar) =>
      el(
        "div",
        {
          class: "cell",
          "data-place": place,
          "data-c": this.session.colour(segmentOf(item)),
          "data-how": item.how,
          style: this.box(bar, this.rowHeight, 0),
        },
        bar === widest && (bar.to - bar.from) * this.sheet.clientWidth > 46 ? el("span", {}, label) : null,
      ),
    );
    const first = cells[0];
    if (first) {
      first.id = `cell-${place}`;
      first.setAttribute("role", "option");
      first.setAttribute("aria-label", `${label}, ${named("how", item.how)}, ${t("n.tokens", { n: group.tokens })}`);
    }
    for (const other of cells.slice(1)) other.setAttribute("aria-hidden", "true");
    this.cells[place] = cells;
    return cells;
  }

  /** Draw a line under the part that the provider has in its cache. */
  cacheLines() {
    const cached = this.view.prefix?.tokens ?? 0;
    return barsOf(0, (cached * this.rows) / this.frame, this.rows).map((bar) =>
      this.bar("cached", bar, 3, this.rowHeight + 1),
    );
  }

  breakMark() {
    const { prefix } = this.view;
    if (!prefix?.broke || !prefix.tokens || prefix.tokens >= this.view.tokens) return null;
    const at = (prefix.tokens * this.rows) / this.frame;
    const row = Math.min(this.rows - 1, Math.floor(at));
    return el("div", {
      class: "break-mark",
      "aria-hidden": "true",
      style: {
        left: `${100 * (at - row)}%`,
        top: `${row * (this.rowHeight + GAP)}px`,
        height: `${this.rowHeight + 4}px`,
      },
    });
  }

  groupAt(event) {
    const cell = event.target.closest(".cell");
    return cell ? Number(cell.dataset.place) : -1;
  }

  hover(event) {
    const place = this.groupAt(event);
    if (place < 0) return this.tip.setAttribute("hidden", "");
    if (this.tipFor !== place || this.tip.hasAttribute("hidden")) this.fillTip(place);
    const box = this.element.getBoundingClientRect();
    const left = Math.min(event.clientX - box.left + 14, box.width - this.tip.offsetWidth - 4);
    this.tip.style.setProperty("transform", `translate(${Math.max(0, left)}px, ${event.clientY - box.top + 18}px)`);
  }

  fillTip(place) {
    this.tipFor = place;
    const { items, tokens } = this.groups[place];
    const [item] = items;
    const segment = this.session.segment(segmentOf(item));
    replace(
      this.tip,
      el("b", {}, labelOf(items)),
      el("span", { class: "mono" }, items.length === 1 ? (item.page ?? "") : `${items[0].page} … ${items.at(-1).page}`),
      el("span", {}, [segment?.name, named("how", item.how)].filter(Boolean).join(" · ")),
      el("span", { class: "num" }, `${t("n.tokens", { n: tokens })} · ${percent(tokens, this.budget)}`),
    );
    this.tip.removeAttribute("hidden");
  }

  click(event) {
    const place = this.groupAt(event);
    if (place >= 0) this.choose(place);
  }

  choose(place) {
    this.active = place;
    this.mark();
    const item = this.groups[place].items.find((one) => one.page);
    if (item) this.onChoose(item.page);
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" && this.active >= 0) this.choose(this.active);
    else if (event.key === "Home") this.active = 0;
    else if (event.key === "End") this.active = this.groups.length - 1;
    else if (step) this.active = Math.max(0, Math.min(this.groups.length - 1, this.active + step));
    else return;
    event.preventDefault();
    this.mark();
  }

  mark() {
    for (const cell of this.sheet.querySelectorAll(".cell.active")) cell.classList.remove("active");
    for (const cell of this.cells[this.active] ?? []) cell.classList.add("active");
    if (this.cells[this.active]) this.sheet.setAttribute("aria-activedescendant", `cell-${this.active}`);
  }

  /** Return the text alternative of the map. */
  describe() {
    return t("map.words", {
      used: number(this.view.tokens),
      budget: number(this.budget),
      share: percent(this.view.tokens, this.budget),
    });
  }

  close() {
    this.watch.disconnect();
  }
}
