// The sessions of the gateway: requests, folds, what they saved, retries and errors; a switch and an undo for each one.

import { book, chooseGatewayMode, listGatewaySessions } from "./api.js";
import { notify, problem } from "./dialog.js";
import { button, el, replace, settled } from "./dom.js";
import { exactly, number, t, when } from "./i18n.js";
import { follow } from "./live.js";
import { address } from "./route.js";

const PRICE = "quire-price";
const FIGURES = ["requests", "folds", "folded_requests", "saved_tokens", "retries", "errors", "bypasses"];

export function openGateway(host, bar) {
  const screen = new GatewayScreen(host);
  screen.load();
  const changed = settled(() => screen.load(), 200);
  const stop = follow("/api/events", changed, (up) => bar.live(up));
  document.title = `${t("gateway")} · quire`;
  return { close: stop };
}

class GatewayScreen {
  constructor(host) {
    this.wrong = el("div", {});
    this.body = el("div", { class: "gateway-sessions", role: "list", "aria-label": t("gateway") });
    this.price = el("input", {
      class: "field gateway-price",
      type: "number",
      min: "0",
      step: "0.1",
      value: localStorage.getItem(PRICE) ?? "",
      "aria-label": t("gateway.price"),
      oninput: () => {
        localStorage.setItem(PRICE, this.price.value);
        this.show();
      },
    });
    this.sessions = [];
    replace(
      host,
      el(
        "div",
        { class: "heading" },
        el("h1", { class: "title" }, t("gateway")),
        el("label", { class: "gateway-price-label" }, t("gateway.price"), this.price),
      ),
      this.wrong,
      this.body,
    );
  }

  async load() {
    await this.attempt(async () => this.take(await listGatewaySessions()));
  }

  async attempt(work) {
    try {
      await work();
      replace(this.wrong);
    } catch (error) {
      replace(
        this.wrong,
        problem(error, () => this.load()),
      );
    }
  }

  take({ sessions }) {
    this.sessions = sessions;
    this.show();
  }

  show() {
    if (!this.sessions.length) return replace(this.body, el("p", { class: "empty" }, t("gateway.empty")));
    return replace(
      this.body,
      this.sessions.map((session) => this.card(session)),
    );
  }

  card(session) {
    const updated = new Date(1000 * session.updated).toISOString();
    return el(
      "article",
      { class: "gateway-session", role: "listitem" },
      el(
        "h2",
        {},
        el("a", { href: address(session.name) }, session.name.replace(/^gateway\//, "")),
        el("small", { title: exactly(updated) }, [session.model, when(updated)].filter(Boolean).join(" · ")),
      ),
      el(
        "dl",
        { class: "gateway-figures" },
        FIGURES.map((field) => this.figure(field, number(session[field]))),
        this.figure("money", this.money(session)),
      ),
      el("div", { class: "gateway-actions" }, this.modes(session), this.undo(session)),
    );
  }

  figure(field, value) {
    return el("div", { class: `gateway-${field}` }, el("dt", {}, t(`gateway.${field}`)), el("dd", { class: "num" }, value));
  }

  money(session) {
    const price = Number(this.price.value) || session.price;
    return price > 0 ? `$${((session.saved_tokens * price) / 1e6).toFixed(2)}` : "–";
  }

  modes(session) {
    const now = session.chosen ?? session.mode;
    const one = (mode) =>
      button(t(`gateway.${mode}`), () => this.choose(session, mode), {
        class: "switch",
        "aria-pressed": String(now === mode),
      });
    const own = session.chosen && button(t("gateway.own"), () => this.choose(session, null), {});
    const group = { class: "switches", role: "group", "aria-label": t("gateway.mode") };
    return [el("div", group, one("observe"), one("fold")), own];
  }

  choose(session, mode) {
    return this.attempt(async () => this.take(await chooseGatewayMode(session.name, mode)));
  }

  undo(session) {
    if (!session.folds) return null;
    return button(t("gateway.undo"), () => this.attempt(() => this.undoLast(session)), {});
  }

  /** Undo the newest fold that is not undone yet. */
  async undoLast(session) {
    const api = book(session.name);
    const { entries } = await api.history({ operation: "fold", order: "desc", limit: 50 });
    const fold = entries.find((entry) => !entry.undone);
    if (!fold) return notify(t("gateway.no_fold"));
    await api.undo(fold.seq);
    return notify(t("gateway.undone", { n: fold.seq }));
  }
}
