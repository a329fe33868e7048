// The page tree: sizes, states, permissions and operations, by mouse and keyboard.

import { runOperation } from "./actions.js";
import { problem } from "./dialog.js";
import { el, icon, replace } from "./dom.js";
import { named, number, t } from "./i18n.js";
import { isCold, isHidden, isHot, stateWord } from "./states.js";
import { Tree } from "./tree.js";
import { VirtualList } from "./virtual.js";

const KEYS = { e: "expand", h: "hide", p: "pin", a: "archive", r: "recall", m: "move" };

export function openPages(host, session) {
  return new PagesScreen(host, session);
}

class PagesScreen {
  constructor(host, session) {
    this.session = session;
    this.tree = new Tree(session.api);
    this.active = 0;
    this.wrong = el("div", {});
    this.body = el("div", {
      class: "tree",
      role: "tree",
      tabindex: "0",
      "aria-label": t("tab.pages"),
      onkeydown: (event) => this.key(event),
      onclick: (event) => this.click(event),
    });
    const height = matchMedia("(max-width: 640px)").matches ? 54 : 36;
    this.list = new VirtualList(this.body, {
      height,
      draw: (place) => this.row(place),
      near: (last) => this.near(last),
    });
    replace(host, this.bar(), this.wrong, this.body);
    this.onPage = () => this.list.redraw();
    session.addEventListener("page", this.onPage);
    this.onTouched = (event) => this.touched(event.detail);
    session.addEventListener("touched", this.onTouched);
    this.work(() => this.tree.start());
  }

  bar() {
    const cold = el("input", {
      type: "checkbox",
      id: "cold",
      onchange: () => this.work(() => this.tree.setCold(cold.checked)),
    });
    return el(
      "div",
      { class: "screen-bar" },
      el("label", { class: "check" }, cold, t("pages.cold")),
      el("span", { class: "dim hint" }, t("pages.hint")),
    );
  }

  /** Change the tree and draw it; an error is shown above it. */
  async work(task) {
    try {
      await task();
      replace(this.wrong, this.tree.rows.length ? null : el("p", { class: "empty" }, t("pages.none")));
    } catch (error) {
      replace(
        this.wrong,
        problem(error, () => this.work(task)),
      );
    }
    this.active = Math.min(this.active, Math.max(0, this.tree.rows.length - 1));
    this.list.setCount(this.tree.rows.length);
    this.mark();
  }

  /** Handle a change by this user: draw the row now, and the rest after the change is loaded. */
  touched(page) {
    const row = this.tree.byIndex.get(page.index);
    if (!row) return;
    row.page = page;
    this.list.redrawRow(this.tree.rows.indexOf(row));
  }

  changed({ before }) {
    return this.work(() => this.tree.refresh(before));
  }

  shown(given) {
    this.list.update();
    const wanted = given.get("reveal");
    if (wanted) this.work(() => this.reveal(wanted));
  }

  async reveal(index) {
    const page = await this.session.api.page(index, { max_chars: 1 });
    const place = await this.tree.reveal([...page.path, index]);
    if (place < 0) return;
    this.list.setCount(this.tree.rows.length);
    this.active = place;
    this.list.reveal(place);
    this.body.focus({ preventScroll: true });
  }

  /** Load more when the end of the loaded rows becomes visible. */
  near(last) {
    for (let place = Math.max(0, last - 40); place <= last; place += 1) {
      const { more } = this.tree.rows[place] ?? {};
      if (more && !more.loading) this.work(() => this.tree.more(more));
    }
  }

  row(place) {
    const row = this.tree.rows[place];
    const indent = { "--depth": String(row.depth) };
    if (row.more) return el("div", { class: "tree-row loading", style: indent, role: "presentation" }, t("loading"));
    const { page } = row;
    const folder = page.folder;
    return el(
      "div",
      {
        class: `tree-row ${stateOf(page)}${place === this.active ? " active" : ""}${page.index === this.session.page ? " chosen" : ""}`,
        role: "treeitem",
        id: `row-${page.index}`,
        "data-place": place,
        "data-c": this.session.colour(page.segment),
        "aria-level": row.depth + 1,
        "aria-expanded": folder ? String(row.open) : null,
        "aria-selected": String(page.index === this.session.page),
        style: indent,
      },
      el(
        "span",
        { class: folder ? `twisty${row.open ? " open" : ""}` : "twisty leaf", "aria-hidden": "true" },
        folder ? icon("chevron") : el("i", {}),
      ),
      el(
        "span",
        { class: "tree-text" },
        el("span", { class: "tree-name" }, page.name || t("unnamed")),
        el("span", { class: "tree-words" }, page.description || ""),
      ),
      this.marks(row),
      el("span", { class: "mono tree-index" }, page.index),
      el(
        "span",
        { class: "tree-size num" },
        el("i", { style: { width: `${100 * Math.sqrt(page.tokens / this.tree.most)}%` } }),
        this.size(row),
      ),
    );
  }

  /** Return a page's own tokens, or the segment's tokens for its root. */
  size({ page, depth }) {
    const tokens = depth === 0 ? this.session.segment(page.segment)?.tokens : page.tokens;
    return page.folder && !tokens ? "" : number(tokens ?? 0);
  }

  marks({ page, depth }) {
    const chips = [];
    if (page.pinned)
      chips.push(
        el("span", { class: "chip pinned", title: t("pinned") }, icon("pin"), el("span", { class: "sr" }, t("pinned"))),
      );
    const state = isCold(page) ? "cold" : page.lifecycle === "hot" ? "hot" : "hidden";
    if (stateWord(page)) chips.push(chip(state, stateWord(page)));
    if (page.folder) chips.push(chip("count", number(page.children)));
    if (depth === 0) chips.push(chip("permission", named("permission", page.permission)));
    return el("span", { class: "marks" }, chips);
  }

  click(event) {
    const found = event.target.closest(".tree-row");
    if (!found?.dataset.place) return;
    const place = Number(found.dataset.place);
    const row = this.tree.rows[place];
    this.active = place;
    if (event.target.closest(".twisty") && row.page.folder) return this.toggle(row);
    this.session.select(row.page.index);
    this.mark();
  }

  toggle(row) {
    return this.work(async () => (row.open ? this.tree.shut(row) : await this.tree.open(row)));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = this.tree.rows[this.active];
    if (!row || !this.press(event.key, row)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  press(key, row) {
    const last = this.tree.rows.length - 1;
    const leap = Math.max(1, Math.floor(this.body.clientHeight / this.list.height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: leap, PageUp: -leap, Home: -last, End: last };
    if (key in steps) return this.goTo(Math.max(0, Math.min(last, this.active + steps[key])));
    if (!row.page) return false;
    if (key === "ArrowRight") return this.right(row);
    if (key === "ArrowLeft") return this.left(row);
    if (key === "Enter" || key === " ") return this.session.select(row.page.index) ?? true;
    if (key === "w") return this.session.select(row.page.index, { why: true }) ?? true;
    if (key in KEYS) return this.operate(KEYS[key], row.page);
    return false;
  }

  goTo(place) {
    this.active = place;
    this.list.reveal(place);
    this.mark();
    return true;
  }

  right(row) {
    if (!row.page.folder) return true;
    if (row.open) return this.goTo(Math.min(this.tree.rows.length - 1, this.active + 1));
    this.toggle(row);
    return true;
  }

  left(row) {
    if (row.open) this.toggle(row);
    else if (row.parent?.page) this.goTo(this.tree.rows.indexOf(row.parent));
    return true;
  }

  operate(operation, page) {
    const wanted =
      operation === "pin" && page.pinned ? "unpin" : operation === "recall" && !isCold(page) ? "restore" : operation;
    runOperation(this.session, page, wanted, (error) => replace(this.wrong, problem(error)));
    return true;
  }

  mark() {
    for (const row of this.body.querySelectorAll(".tree-row.active")) row.classList.remove("active");
    const row = this.tree.rows[this.active];
    this.list.rows.get(this.active)?.classList.add("active");
    if (row?.page) this.body.setAttribute("aria-activedescendant", `row-${row.page.index}`);
  }

  close() {
    this.session.removeEventListener("page", this.onPage);
    this.session.removeEventListener("touched", this.onTouched);
    this.list.close();
  }
}

const chip = (kind, words) => el("span", { class: `chip ${kind}` }, words);

function stateOf(page) {
  if (isCold(page)) return "is-cold";
  if (isHot(page)) return "is-hot";
  return isHidden(page) ? "is-hidden" : "is-open";
}
