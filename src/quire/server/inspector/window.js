// The first screen: the contents of the window, and the effect of another budget.

import { BudgetSlider } from "./budget.js";
import { problem } from "./dialog.js";
import { el, icon, latest, replace } from "./dom.js";
import { named, number, percent, t } from "./i18n.js";
import { changesBetween } from "./layout.js";
import { WindowMap } from "./map.js";
import { address } from "./route.js";
import { sentLine } from "./sent.js";
import { segmentOf, titleOf } from "./states.js";

const MOST_CHANGES = 60;

export function openWindow(host, session) {
  return new WindowScreen(host, session);
}

class WindowScreen {
  constructor(host, session) {
    this.session = session;
    this.slider = new BudgetSlider(session, (budget) => session.chooseBudget(budget));
    this.map = new WindowMap(session, (page) => session.select(page));
    this.gauge = el("p", { class: "gauge", "aria-live": "polite" });
    this.sent = el("p", { class: "sent-note" });
    this.cache = el("p", { class: "cache-note" });
    this.wrong = el("div", {});
    this.legend = el("div", { class: "legend" });
    this.side = el("div", { class: "changes" });
    replace(
      host,
      el("div", { class: "window-top" }, this.gauge, this.slider.element),
      this.wrong,
      this.map.element,
      this.sent,
      this.cache,
      el("div", { class: "columns" }, this.legend, this.side),
    );
    this.redraw = latest(() => this.draw());
    this.listen = () => this.changed();
    session.addEventListener("budget", this.listen);
    this.changed();
  }

  /** Draw the current view. While a request is running, only the newest request waits. */
  changed() {
    this.slider.show(this.session.budget ?? this.session.info.budget);
    return this.redraw();
  }

  async draw() {
    const { session } = this;
    const own = session.info.budget;
    const budget = session.budget ?? own;
    try {
      const [base, view, sent] = await Promise.all([
        session.view(),
        session.budget === null ? null : session.view({ budget }),
        session.sent(),
      ]);
      const shown = view ?? base;
      replace(this.wrong);
      this.map.element.classList.remove("unreached");
      this.map.show(shown, budget, Math.max(own, budget));
      this.showGauge(shown, budget);
      this.showSent(sent);
      this.showCache(shown);
      this.showLegend(shown, budget);
      if (view) this.showChanges(base, view, budget);
      else this.showLargest(base);
    } catch (error) {
      this.map.element.classList.add("unreached");
      replace(this.wrong, problem(error));
    }
  }

  showGauge(view, budget) {
    replace(
      this.gauge,
      el("b", { class: "num" }, number(view.tokens)),
      el("span", {}, ` ${t("gauge.of", { n: budget })} `),
      el(
        "span",
        { class: "dim num" },
        `${percent(view.tokens, budget)} · ${t("gauge.free", { n: Math.max(0, budget - view.tokens) })}`,
      ),
    );
    this.map.sheet.setAttribute("aria-label", this.map.describe());
  }

  showSent(sent) {
    if (sent.tokens === null) return replace(this.sent);
    const href = address(this.session.name, "model", { at: "sent" });
    replace(this.sent, sentLine(sent), el("a", { href, class: "more" }, t("sent.show"), icon("chevron")));
  }

  showCache({ prefix, tokens }) {
    if (!prefix) return replace(this.cache);
    replace(
      this.cache,
      el("i", { class: "key-cached", "aria-hidden": "true" }),
      el("span", {}, t("cache.share", { n: prefix.tokens, share: percent(prefix.tokens, tokens) })),
      prefix.broke ? el("span", { class: "broke" }, prefix.broke.why) : null,
      el(
        "a",
        { href: address(this.session.name, "model", { at: "break" }), class: "more" },
        t("cache.where"),
        icon("chevron"),
      ),
    );
  }

  showLegend(view, budget) {
    const rows = new Map();
    for (const item of view.items) {
      const segment = segmentOf(item);
      const key = segment ?? item.how;
      const row = rows.get(key) ?? {
        segment,
        label: this.session.segment(segment)?.name ?? named("how", item.how),
        tokens: 0,
        by: new Map(),
      };
      row.tokens += item.tokens;
      row.by.set(item.how, (row.by.get(item.how) ?? 0) + 1);
      rows.set(key, row);
    }
    replace(
      this.legend,
      el("h2", {}, t("legend")),
      [...rows.values()].map((row) => this.legendRow(row, budget)),
      el(
        "div",
        { class: "legend-row free" },
        el("i", { class: "swatch", "data-c": "free" }),
        el("span", { class: "legend-name" }, t("legend.free")),
        el("span", { class: "num" }, number(Math.max(0, budget - view.tokens))),
        el("span", { class: "num dim" }, percent(Math.max(0, budget - view.tokens), budget)),
      ),
    );
  }

  legendRow(row, budget) {
    const parts =
      row.segment === null ? [] : [...row.by].map(([how, count]) => `${number(count)} ${named("how", how)}`);
    return el(
      "div",
      { class: "legend-row" },
      el("i", { class: "swatch", "data-c": this.session.colour(row.segment) }),
      el("span", { class: "legend-name" }, row.label, el("small", {}, parts.join(" · "))),
      el("span", { class: "num" }, number(row.tokens)),
      el("span", { class: "num dim" }, percent(row.tokens, budget)),
    );
  }

  showLargest(view) {
    const largest = view.items
      .filter((item) => item.page)
      .sort((one, other) => other.tokens - one.tokens)
      .slice(0, 8);
    replace(
      this.side,
      el("h2", {}, t("largest")),
      largest.map((item) => this.pageRow(item, named("how", item.how), number(item.tokens))),
    );
  }

  /** Compare another budget with the context's default. */
  showChanges(base, view, budget) {
    const changes = changesBetween(base.items, view.items);
    const smaller = view.tokens - base.tokens;
    const steps = (change) => `${how(change.before)} → ${how(change.after)}`;
    replace(
      this.side,
      el("h2", {}, t("changes", { n: budget })),
      el(
        "p",
        { class: "dim" },
        changes.length ? t("changes.sum", { n: changes.length, tokens: signed(smaller) }) : t("changes.none"),
      ),
      changes.slice(0, MOST_CHANGES).map((change) => this.pageRow(change, steps(change), signed(change.tokens))),
      changes.length > MOST_CHANGES ? el("p", { class: "dim" }, t("more", { n: changes.length - MOST_CHANGES })) : null,
    );
  }

  pageRow(item, state, figure) {
    return el(
      "button",
      { type: "button", class: "page-row", onclick: () => this.session.select(item.page) },
      el("i", { class: "swatch", "data-c": this.session.colour(segmentOf(item)) }),
      el("span", { class: "page-row-name" }, titleOf(item), el("small", { class: "mono" }, item.page ?? "")),
      el("span", { class: "state-words" }, state),
      el("span", { class: "num" }, figure),
    );
  }

  close() {
    this.session.removeEventListener("budget", this.listen);
    this.map.close();
  }
}

const how = (value) => named("how", value ?? "out");
const signed = (value) => (value > 0 ? `+${number(value)}` : number(value).replace("-", "−"));
