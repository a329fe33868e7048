// The library: all contexts, with size and time of the last change.

import { listContexts } from "./api.js";
import { problem } from "./dialog.js";
import { el, replace, settled } from "./dom.js";
import { exactly, number, t, when } from "./i18n.js";
import { follow } from "./live.js";
import { address } from "./route.js";
import { VirtualList } from "./virtual.js";

const PAGE = 200;
const ROW = 60;

export function openLibrary(host) {
  const screen = new LibraryScreen(host);
  screen.load();
  document.title = "quire";
  return { close: () => screen.close() };
}

class LibraryScreen {
  constructor(host) {
    this.rows = [];
    this.next = null;
    this.request = 0;
    this.count = el("p", { class: "figures" });
    this.filter = el("input", {
      class: "field",
      type: "search",
      placeholder: t("library.filter"),
      "aria-label": t("library.filter"),
      oninput: settled(() => this.load(), 120),
    });
    this.body = el("div", { class: "contexts", role: "list", "aria-label": t("library") });
    this.wrong = el("div", {});
    this.list = new VirtualList(this.body, {
      height: ROW,
      draw: (place) => this.row(place),
      near: (last) => this.more(last),
    });
    replace(
      host,
      el(
        "div",
        { class: "heading" },
        el("h1", { class: "title" }, t("library")),
        this.count,
        el("a", { class: "gateway-link", href: "#/gateway" }, t("gateway")),
        this.filter,
      ),
      this.wrong,
      this.body,
    );
    this.stop = follow(
      "/api/events",
      settled(() => this.load(), 200),
      () => {},
    );
  }

  async load() {
    const request = (this.request += 1);
    try {
      const answer = await listContexts({
        limit: Math.max(PAGE, Math.min(1000, this.rows.length)),
        prefix: this.filter.value,
      });
      if (request !== this.request) return;
      this.rows = answer.contexts;
      this.next = answer.next;
      replace(this.wrong);
      this.show();
    } catch (error) {
      replace(
        this.wrong,
        problem(error, () => this.load()),
      );
    }
  }

  async more(last) {
    if (this.next === null || last < this.rows.length - 20) return;
    const after = this.next;
    this.next = null;
    const answer = await listContexts({ limit: PAGE, after, prefix: this.filter.value });
    this.rows.push(...answer.contexts);
    this.next = answer.next;
    this.show();
  }

  show() {
    this.most = this.rows.reduce((most, row) => Math.max(most, row.tokens ?? 0), 1);
    replace(
      this.count,
      el("span", {}, `${t("library.count", { n: this.rows.length })}${this.next === null ? "" : "+"}`),
    );
    this.list.setCount(this.rows.length);
    if (!this.rows.length)
      replace(this.wrong, el("p", { class: "empty" }, this.filter.value ? t("library.none") : t("library.empty")));
  }

  row(place) {
    const row = this.rows[place];
    return el(
      "a",
      { class: "context-row", role: "listitem", href: address(row.name) },
      el("span", { class: "context-name" }, row.name),
      el(
        "span",
        { class: "context-size" },
        el("i", { class: "spine", style: { width: `${Math.max(2, (100 * (row.tokens ?? 0)) / this.most)}%` } }),
      ),
      el("span", { class: "num context-tokens" }, row.tokens === null ? "" : t("n.tokens", { n: row.tokens })),
      el("span", { class: "num context-pages" }, t("n.pages", { n: row.pages })),
      el("span", { class: "num context-messages" }, t("n.messages", { n: row.messages })),
      el("span", { class: "num context-seq" }, `${t("seq")} ${number(row.seq)}`),
      el("span", { class: "context-time", title: exactly(row.updated) }, when(row.updated)),
    );
  }

  close() {
    this.stop();
    this.list.close();
  }
}
