// One context: title and figures, tabs, the screen of the selected tab, and the panel of the selected page.

import { openApps } from "./apps.js";
import { openCompare } from "./compare.js";
import { problem } from "./dialog.js";
import { el, replace } from "./dom.js";
import { number, t } from "./i18n.js";
import { openModel } from "./model.js";
import { openPages } from "./pages.js";
import { openPanel } from "./panel.js";
import { address, go, TABS } from "./route.js";
import { openSearch } from "./search.js";
import { Session } from "./session.js";
import { openTimeline } from "./timeline.js";
import { openWindow } from "./window.js";

const SCREENS = {
  window: openWindow,
  pages: openPages,
  model: openModel,
  compare: openCompare,
  timeline: openTimeline,
  search: openSearch,
  apps: openApps,
};

/** Show a context. Return `route` for a new address in the same context, and `close`. */
export function openContext(host, route, bar) {
  const session = new Session(route.context);
  const frame = new Frame(host, session);
  frame.begin(route, bar);
  return { route: (next) => frame.show(next), close: () => frame.close() };
}

class Frame {
  constructor(host, session) {
    this.host = host;
    this.session = session;
    this.screens = new Map(); // tab -> { element, screen, stale }
    this.tab = null;
    this.figures = el("p", { class: "figures" });
    this.tabs = el(
      "div",
      { class: "tabs", role: "tablist", "aria-label": t("tabs") },
      TABS.map((tab, place) => this.makeTab(tab, place)),
    );
    this.area = el("div", { class: "screen-area" });
    this.aside = el("aside", { class: "panel", "aria-label": t("panel"), hidden: true });
    this.panel = openPanel(this.aside, session);
    this.listeners = new AbortController();
  }

  async begin(route, bar) {
    const { session } = this;
    replace(
      this.host,
      el("div", { class: "heading" }, el("h1", { class: "title" }, session.name), this.figures),
      this.tabs,
      el("div", { class: "work" }, this.area, this.aside),
    );
    const until = { signal: this.listeners.signal };
    session.addEventListener("change", (event) => this.changed(event.detail), until);
    session.addEventListener("page", () => this.panel.show(session.page), until);
    session.addEventListener("touched", (event) => this.panel.touched(event.detail), until);
    session.addEventListener("failed", (event) => this.failed(event.detail), until);
    addEventListener("quire-escape", () => session.select(null), until);
    addEventListener("quire-find", () => this.find(), until);
    addEventListener("quire-budget", (event) => this.step(event.detail), until);
    document.title = `${session.name} · quire`;
    await session.start((up) => bar.live(up));
    if (!session.info) return;
    this.show(route);
    if (route.given.get("page")) session.select(route.given.get("page"));
  }

  makeTab(tab, place) {
    return el(
      "a",
      {
        class: "tab",
        role: "tab",
        id: `tab-${tab}`,
        href: address(this.session.name, tab),
        tabindex: "-1",
        "aria-controls": `screen-${tab}`,
        "aria-keyshortcuts": String(place + 1),
        onkeydown: (event) => this.moveTab(event, place),
      },
      t(`tab.${tab}`),
    );
  }

  moveTab(event, place) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = TABS[(place + step + TABS.length) % TABS.length];
    go(address(this.session.name, next));
    document.getElementById(`tab-${next}`).focus();
  }

  /** Show the screen of an address. */
  show(route) {
    if (!this.session.info) return;
    if (!this.screens.has(route.tab)) this.make(route.tab);
    this.tab = route.tab;
    for (const [tab, { element }] of this.screens) element.hidden = tab !== route.tab;
    for (const tab of this.tabs.children) {
      const chosen = tab.id === `tab-${route.tab}`;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      if (chosen) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    const held = this.screens.get(route.tab);
    if (held.stale) {
      const since = held.stale;
      held.stale = null;
      held.screen.changed?.(since);
    }
    held.screen.shown?.(route.given);
  }

  make(tab) {
    const element = el("section", {
      class: `screen screen-${tab}`,
      id: `screen-${tab}`,
      role: "tabpanel",
      "aria-labelledby": `tab-${tab}`,
    });
    this.area.append(element);
    this.screens.set(tab, { element, screen: SCREENS[tab](element, this.session), stale: null });
  }

  /** Handle a change: update the visible screen now, the others when they are shown. */
  changed(change) {
    const { info } = this.session;
    const counted = info.segments.every((segment) => segment.tokens !== null); // a large context is not counted
    replace(
      this.figures,
      [
        t("figures.pages", { n: total(info, "pages") }),
        counted ? t("figures.tokens", { n: total(info, "tokens") }) : null,
        t("figures.budget", { n: info.budget }),
      ].map((words) => words && el("span", {}, words)),
      el("span", { class: "seq" }, `${t("seq")} ${number(info.seq)}`),
    );
    if (change.before === change.seq) return;
    for (const [tab, held] of this.screens) {
      if (tab === this.tab) held.screen.changed?.(change);
      else held.stale ??= change;
    }
    if (this.session.page) this.panel.changed();
  }

  failed(error) {
    if (this.session.info)
      return replace(
        this.figures,
        problem(error, () => this.session.refresh()),
      );
    replace(
      this.area,
      problem(error, () => location.reload()),
    );
  }

  find() {
    go(address(this.session.name, "search"));
    queueMicrotask(() => this.screens.get("search")?.screen.focus());
    setTimeout(() => this.screens.get("search")?.screen.focus(), 0);
  }

  step(direction) {
    const { session } = this;
    const now = session.budget ?? session.info?.budget;
    if (now) session.chooseBudget(Math.max(100, Math.round(direction > 0 ? now * 1.25 : now / 1.25)));
  }

  close() {
    this.listeners.abort();
    for (const { screen } of this.screens.values()) screen.close?.();
    this.panel.close();
    this.session.close();
  }
}

function total(info, field) {
  return info.segments.reduce((sum, segment) => sum + segment[field], 0);
}
