// The budget: a logarithmic slider, a number field, and a reset button.

import { button, el } from "./dom.js";
import { number, t } from "./i18n.js";

const STEPS = 1000;
const LEAST = 200;

export class BudgetSlider {
  /** `onInput(budget)` is called on every move. */
  constructor(session, onInput) {
    this.session = session;
    this.onInput = onInput;
    this.most = Math.max(32_000, 4 * session.info.budget);
    this.range = el("input", {
      type: "range",
      class: "range",
      id: "budget",
      min: "0",
      max: String(STEPS),
      "aria-label": t("budget"),
      oninput: () => this.moved(this.fromStep(Number(this.range.value))),
    });
    this.exact = el("input", {
      type: "text",
      inputmode: "numeric",
      class: "field budget-number num",
      "aria-label": t("budget.exact"),
      onchange: () => this.typed(),
      onblur: () => this.show(this.session.budget ?? this.session.info.budget),
    });
    this.own = el("i", { class: "own-mark", title: t("budget.own"), "aria-hidden": "true" });
    this.reset = button(t("budget.reset"), () => this.moved(this.session.info.budget), { class: "button small quiet" });
    this.element = el(
      "div",
      { class: "budget" },
      el("label", { for: "budget", class: "caption" }, t("budget")),
      el("div", { class: "range-host" }, this.range, this.own),
      this.exact,
      el("span", { class: "unit" }, t("tokens")),
      this.reset,
    );
    this.show(session.budget ?? session.info.budget);
  }

  fromStep(step) {
    const own = this.session.info.budget;
    const value = LEAST * (this.most / LEAST) ** (step / STEPS);
    if (Math.abs(value - own) / own < 0.01) return own;
    const digits = 10 ** Math.max(1, Math.floor(Math.log10(value)) - 2);
    return Math.max(LEAST, Math.round(value / digits) * digits);
  }

  toStep(budget) {
    return Math.round((STEPS * Math.log(Math.max(LEAST, budget) / LEAST)) / Math.log(this.most / LEAST));
  }

  /** Show a budget without calling `onInput`. Does not overwrite a number that the user is typing, because an agent can
      change the context at any time. */
  show(budget) {
    if (document.activeElement !== this.exact) this.exact.value = number(budget);
    const own = this.session.info.budget;
    this.range.value = String(this.toStep(budget));
    this.range.setAttribute("aria-valuetext", t("n.tokens", { n: budget }));
    this.range.style.setProperty("--at", `${this.toStep(budget) / (STEPS / 100)}%`);
    this.own.style.setProperty("--own", String(this.toStep(own) / STEPS));
    this.reset.classList.toggle("unseen", budget === own);
  }

  typed() {
    const value = Number(this.exact.value.replace(/[^0-9]/g, ""));
    if (value > 0) this.moved(Math.min(value, 10_000_000));
    else this.put(this.session.budget ?? this.session.info.budget);
  }

  /** Show a budget, and overwrite the number field: the user has finished typing. */
  put(budget) {
    this.show(budget);
    this.exact.value = number(budget);
  }

  moved(budget) {
    this.put(budget);
    this.onInput(budget);
  }
}
