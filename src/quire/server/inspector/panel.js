// The panel of one page: properties, operations, the reason why it is shown this way, and its content.

import { runOperation } from "./actions.js";
import { problem } from "./dialog.js";
import { button, el, icon, replace } from "./dom.js";
import { exactly, named, number, t, when } from "./i18n.js";
import { address, go } from "./route.js";
import { longText } from "./long.js";
import { blocksOf, drawBlock } from "./speech.js";
import { operationsFor, stateWord } from "./states.js";

const FIRST_CHARS = 6_000;
const MORE_CHARS = 200_000; // added at a time
const MOST_CHARS = 10_000_000; // the route returns no more

export function openPanel(host, session) {
  return new Panel(host, session);
}

class Panel {
  constructor(host, session) {
    this.host = host;
    this.session = session;
    this.chars = FIRST_CHARS;
    this.opened = new Map();
  }

  close() {
    document.body.classList.remove("has-panel");
  }

  /** Show a page; null closes the panel. */
  async show(index) {
    this.host.hidden = index === null;
    document.body.classList.toggle("has-panel", index !== null);
    if (index === null) return;
    if (index.includes("…")) return this.showSpan(index);
    this.chars = FIRST_CHARS;
    this.explanation = null;
    await this.load(index);
    this.host.scrollTop = 0;
    if (this.session.why) await this.askWhy();
  }

  /** Handle a change by this user: show the known values now. */
  touched(page) {
    if (this.page?.index !== page.index) return;
    Object.assign(this.page, page);
    this.draw();
  }

  async changed() {
    if (!this.page || this.session.page.includes("…")) return;
    await this.load(this.session.page);
    if (this.explanation) await this.askWhy();
  }

  async load(index) {
    try {
      const page = await this.session.api.page(index, { max_chars: this.chars });
      if (this.session.page !== index) return;
      this.page = page;
      this.draw();
    } catch (error) {
      this.page = null;
      replace(
        this.host,
        this.top(index, null),
        problem(error, () => this.load(index)),
      );
    }
  }

  /** Show a line of a previewed fold: it represents a span of pages and is not a page. */
  showSpan(span) {
    const [first, last] = span.split("…");
    this.page = null;
    replace(
      this.host,
      this.top(span, t("span.title")),
      el("p", { class: "lead" }, t("span.words")),
      el(
        "div",
        { class: "actions" },
        [first, last].map((index) => button(index, () => this.session.select(index))),
      ),
    );
  }

  top(index, name) {
    return el(
      "div",
      { class: "panel-top" },
      el(
        "div",
        {},
        el("span", { class: "mono dim" }, index),
        name === null ? null : el("h2", { class: "panel-name" }, name),
      ),
      button(icon("close"), () => this.session.select(null), {
        class: "icon-button",
        "aria-label": t("close"),
        title: `${t("close")}  Esc`,
      }),
    );
  }

  draw() {
    const { page } = this;
    this.wrong = el("div", {});
    this.reason = el("div", { class: "why", "aria-live": "polite" });
    replace(
      this.host,
      this.top(page.index, page.name || t("unnamed")),
      this.path(),
      page.description ? el("p", { class: "panel-description" }, page.description) : null,
      el(
        "div",
        { class: "actions" },
        operationsFor(page).map((operation, place) =>
          button(t(`op.${operation}`), () => this.operate(operation), {
            class:
              operation === "remove"
                ? "button small danger-quiet"
                : place === 0
                  ? "button small primary"
                  : "button small",
            "data-operation": operation,
          }),
        ),
      ),
      this.wrong,
      this.facts(),
      el(
        "div",
        { class: "actions" },
        button(t("why"), () => this.askWhy(), { class: "button small", id: "why" }),
        button(t("in.tree"), () => this.reveal(), { class: "button small quiet" }),
        button(t("in.history"), () => this.history(), { class: "button small quiet" }),
      ),
      this.reason,
      this.content(),
    );
    if (this.explanation) this.showWhy(this.explanation);
  }

  path() {
    const above = this.page.path;
    if (!above.length) return null;
    return el(
      "nav",
      { class: "path", "aria-label": t("path") },
      above.map((index, place) => [
        place ? el("span", { "aria-hidden": "true" }, "›") : null,
        el("button", { type: "button", class: "link mono", onclick: () => this.session.select(index) }, index),
      ]),
    );
  }

  facts() {
    const { page } = this;
    const segment = this.session.segment(page.segment);
    const rows = [
      [
        t("fact.segment"),
        [
          el("i", { class: "swatch", "data-c": this.session.colour(page.segment) }),
          ` ${segment?.name ?? page.segment}`,
        ],
      ],
      [t("fact.permission"), named("permission", page.permission ?? segment?.permission)],
      [t("fact.state"), stateWords(page)],
      [t("fact.form"), page.folder && page.form !== "chapter" ? named("kind", page.kind) : named("form", page.form)],
      [t("fact.tokens"), el("span", { class: "num" }, number(page.tokens))],
      page.folder ? [t("fact.children"), el("span", { class: "num" }, number(page.children))] : null,
      [t("fact.created"), el("time", { datetime: page.created, title: exactly(page.created) }, when(page.created))],
      [t("fact.updated"), el("time", { datetime: page.updated, title: exactly(page.updated) }, when(page.updated))],
    ];
    return el(
      "dl",
      { class: "facts" },
      rows.filter(Boolean).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
    );
  }

  content() {
    const { page } = this;
    if (page.folder) return null;
    if (page.messages.length) {
      return el(
        "div",
        { class: "content" },
        el("h3", {}, t("content.messages")),
        page.messages.map((message) =>
          el(
            "div",
            { class: "bubble" },
            blocksOf(message).map((block) => drawBlock(block, this.opened)),
          ),
        ),
      );
    }
    const rest = this.chars < MOST_CHARS ? page.detail_chars - this.chars : 0;
    return el(
      "div",
      { class: "content" },
      el("h3", {}, t("content.detail")),
      page.detail
        ? longText(page.detail, { class: "text" }, this.opened, page.index)
        : el("p", { class: "dim" }, t("content.empty")),
      rest > 0 ? button(t("content.more", { n: rest }), () => this.readOn(), { class: "button small" }) : null,
    );
  }

  readOn() {
    this.chars = Math.min(MOST_CHARS, this.chars * 8, this.chars + MORE_CHARS);
    return this.load(this.page.index);
  }

  operate(operation) {
    return runOperation(this.session, this.page, operation, (error) => replace(this.wrong, problem(error)));
  }

  async askWhy() {
    if (!this.page) return;
    try {
      this.explanation = await this.session.api.why(this.page.index, { budget: this.session.budget });
      this.showWhy(this.explanation);
    } catch (error) {
      replace(this.reason, problem(error));
    }
  }

  showWhy({ shown, reason, call, tokens }) {
    replace(
      this.reason,
      el("p", {}, el("b", {}, named("shown", shown)), " ", el("span", {}, reason)),
      tokens ? el("p", { class: "dim num" }, t("n.tokens", { n: tokens })) : null,
      call ? el("p", {}, el("span", { class: "dim" }, t("why.call")), " ", el("code", {}, call)) : null,
    );
  }

  reveal() {
    go(address(this.session.name, "pages", { reveal: this.page.index }));
  }

  history() {
    go(address(this.session.name, "timeline", { of: this.page.index }));
  }
}

function stateWords(page) {
  const words = [stateWord(page) || named("visibility", "expanded")];
  if (page.pinned) words.push(t("pinned"));
  return words.join(" · ");
}
