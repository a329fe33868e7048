// Search: pages by name, description and text, including archived ones, with matches marked.

import { problem } from "./dialog.js";
import { button, el, icon, latest, replace } from "./dom.js";
import { named, t } from "./i18n.js";

const FEW = 20;
const MANY = 100; // the most hits that the route returns

export function openSearch(host, session) {
  return new SearchScreen(host, session);
}

class SearchScreen {
  constructor(host, session) {
    this.session = session;
    this.limit = FEW;
    this.run = latest(() => this.ask());
    this.query = el("input", {
      class: "search-field",
      type: "search",
      name: "q",
      placeholder: t("search.placeholder"),
      "aria-label": t("tab.search"),
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.anew(),
      onkeydown: (event) => event.key === "ArrowDown" && this.step(event, null, 1),
    });
    this.segment = this.filter(
      "search.segment",
      session.info.segments.map((segment) => [segment.id, segment.name]),
    );
    this.lifecycle = this.filter(
      "search.lifecycle",
      ["active", "hot", "cold"].map((state) => [state, t(`search.${state}`)]),
    );
    this.sum = el("p", { class: "dim search-sum", role: "status" });
    this.hits = el("ol", { class: "hits" });
    replace(
      host,
      el(
        "form",
        { class: "search-form", role: "search", onsubmit: (event) => event.preventDefault() },
        el("div", { class: "search-box" }, icon("search"), this.query),
        this.segment,
        this.lifecycle,
      ),
      el("div", { class: "scroll" }, this.sum, this.hits),
    );
  }

  filter(label, values) {
    return el(
      "select",
      { class: "field", "aria-label": t(label), onchange: () => this.anew() },
      el("option", { value: "" }, t(label)),
      values.map(([value, words]) => el("option", { value }, words)),
    );
  }

  focus() {
    this.query.focus();
    this.query.select();
  }

  shown(given) {
    if (given.get("q")) {
      this.query.value = given.get("q");
      this.run();
    }
  }

  changed() {
    return this.run();
  }

  /** Start a new search. */
  anew() {
    this.limit = FEW;
    return this.run();
  }

  moreButton() {
    const more = () => {
      this.limit = MANY;
      this.run();
    };
    return button(t("search.more"), more, { class: "button small" });
  }

  async ask() {
    const q = this.query.value.trim();
    if (!q) return replace(this.hits) && replace(this.sum);
    try {
      const filters = { segment: this.segment.value, lifecycle: this.lifecycle.value };
      const answer = await this.session.api.search({ q, limit: this.limit, ...filters });
      replace(this.sum, answer.hits.length ? t("search.count", { n: answer.hits.length }) : t("search.none"));
      replace(
        this.hits,
        answer.hits.map((hit) => this.hit(hit)),
        answer.hits.length === this.limit && this.limit < MANY ? el("li", {}, this.moreButton()) : null,
      );
    } catch (error) {
      replace(this.hits);
      replace(
        this.sum,
        problem(error, () => this.run()),
      );
    }
  }

  hit(hit) {
    const row = el(
      "button",
      {
        type: "button",
        class: "hit",
        "data-c": this.session.colour(hit.segment),
        onclick: () => this.session.select(hit.index),
        onkeydown: (event) => this.step(event, row.parentElement),
      },
      el(
        "span",
        { class: "hit-top" },
        el("b", {}, hit.name || t("unnamed")),
        hit.lifecycle === "active"
          ? null
          : el("span", { class: `chip ${hit.folded ? "hidden" : hit.lifecycle}` }, this.state(hit)),
        el("span", { class: "mono dim" }, [...hit.path, hit.index].join(" › ")),
      ),
      el(
        "span",
        { class: "snippet" },
        hit.snippet.map(({ text, hit: found }) => (found ? el("mark", {}, text) : text)),
      ),
    );
    return el("li", {}, row);
  }

  state(hit) {
    return hit.folded ? named("visibility", "hidden") : named("lifecycle", hit.lifecycle);
  }

  /** Move up and down between the field and the results. */
  step(event, from) {
    const down = event.key === "ArrowDown";
    if (!down && event.key !== "ArrowUp") return;
    event.preventDefault();
    const next =
      from === null ? this.hits.firstElementChild : down ? from.nextElementSibling : from.previousElementSibling;
    if (next) next.firstElementChild.focus();
    else if (!down) this.query.focus();
  }
}
