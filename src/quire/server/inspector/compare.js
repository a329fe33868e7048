// The difference between two views: at another time, with another budget, or both.

import { problem } from "./dialog.js";
import { button, el, replace } from "./dom.js";
import { named, number, t } from "./i18n.js";
import { longLine, longText } from "./long.js";
import { blocksOf, lineOf, speakerOf } from "./speech.js";
import { lineChanges } from "./lines.js";

export function openCompare(host, session) {
  return new CompareScreen(host, session);
}

class CompareScreen {
  constructor(host, session) {
    this.session = session;
    this.opened = new Map();
    this.left = this.side("left", Math.max(1, session.seq - 1));
    this.right = this.side("right", session.seq);
    this.result = el("div", { class: "scroll compare-result" });
    const run = (event) => {
      event?.preventDefault();
      this.load();
    };
    replace(
      host,
      el(
        "form",
        { class: "compare-form", onsubmit: run },
        this.left.element,
        el("span", { class: "versus", "aria-hidden": "true" }, "→"),
        this.right.element,
        button(t("compare.run"), run, { type: "submit", class: "button primary" }),
      ),
      this.result,
    );
  }

  side(name, seq) {
    const field = (what, value) =>
      el("input", {
        class: "field num",
        type: "number",
        min: "1",
        name: `${name}-${what}`,
        value: String(value),
        "aria-label": `${t(`compare.${name}`)}: ${t(what)}`,
      });
    const at = field("seq", seq);
    const budget = field("budget", this.session.info.budget);
    const element = el(
      "fieldset",
      { class: "compare-side" },
      el("legend", {}, t(`compare.${name}`)),
      el("label", {}, el("span", {}, t("seq")), at),
      el("label", {}, el("span", {}, t("budget")), budget),
    );
    return { element, at, budget };
  }

  shown(given) {
    for (const [side, what, key] of [
      ["left", "at", "ls"],
      ["left", "budget", "lb"],
      ["right", "at", "rs"],
      ["right", "budget", "rb"],
    ]) {
      if (given.get(key)) this[side][what].value = given.get(key);
    }
    if (!this.loaded || given.get("ls")) this.load();
  }

  changed() {
    this.right.at.max = String(this.session.seq);
  }

  async load() {
    this.loaded = true;
    const request = (this.request = (this.request ?? 0) + 1);
    try {
      const answer = await this.session.api.diff({
        left_seq: this.left.at.value,
        left_budget: this.left.budget.value,
        right_seq: this.right.at.value,
        right_budget: this.right.budget.value,
        format: "openai",
      });
      if (request === this.request) this.draw(answer);
    } catch (error) {
      replace(
        this.result,
        problem(error, () => this.load()),
      );
    }
  }

  draw(answer) {
    const { left, right, shared, changes, pages } = answer;
    const counts = Object.groupBy(changes, (change) => change.op);
    const changed = changes.length - (counts.same?.length ?? 0);
    replace(
      this.result,
      el(
        "p",
        { class: "compare-sum num" },
        el("span", {}, `${number(left.tokens)} → ${number(right.tokens)} ${t("tokens")}`),
        el("span", {}, changed ? t("compare.changed", { n: changed }) : t("compare.same")),
        el("span", { class: "dim" }, t("compare.shared", { n: shared })),
      ),
      pages?.length ? this.pageChanges(pages) : null,
      el(
        "ol",
        { class: "changes-list" },
        runs(changes).map((run) => (run.same ? this.sameRun(run.same) : this.change(run))),
      ),
    );
  }

  pageChanges(pages) {
    const shown = pages.slice(0, 24);
    return el(
      "details",
      { class: "page-changes" },
      el("summary", {}, t("compare.pages", { n: pages.length })),
      shown.map(({ page, change, left, right }) =>
        el(
          "button",
          { type: "button", class: "page-row", onclick: () => this.session.select(page) },
          el("span", { class: "mono" }, page),
          el("span", { class: "state-words" }, changeWords(change)),
          el("span", { class: "num" }, `${number(left)} → ${number(right)}`),
        ),
      ),
      pages.length > shown.length ? el("p", { class: "dim" }, t("more", { n: pages.length - shown.length })) : null,
    );
  }

  sameRun(changes) {
    const row = el("li", { class: "same-run" });
    const open = () =>
      replace(
        row,
        el(
          "ol",
          {},
          changes.map(({ right }) =>
            el(
              "li",
              { class: "same-line" },
              el("b", { class: "role" }, named("role", speakerOf(right))),
              el("span", {}, lineOf(right)),
            ),
          ),
        ),
      );
    row.append(button(t("compare.run.same", { n: changes.length }), open, { class: "button small quiet" }));
    return row;
  }

  change({ op, left, right }) {
    const message = right ?? left;
    return el(
      "li",
      { class: `change ${op}` },
      el(
        "div",
        { class: "message-top" },
        el("span", { class: "op" }, t(`diff.${op}`)),
        el("b", { class: "role" }, named("role", speakerOf(message))),
      ),
      op === "changed" ? this.lines(left, right) : longText(textOf(message), { class: "text" }, this.opened),
    );
  }

  lines(left, right) {
    const line = ({ op, text }) => el("span", { class: `line ${op}` }, longLine(text));
    return el("pre", { class: "text lines" }, lineChanges(textOf(left), textOf(right)).map(line));
  }
}

/** Return the words for a change of a page: "gone", "shown whole" or "whole → line". */
const changeWords = (change) =>
  change
    .replace("shown ", "out → ")
    .replace("gone", "out")
    .split(" → ")
    .map((how) => named("how", how))
    .join(" → ");

const textOf = (message) =>
  blocksOf(message)
    .map(({ kind, label, text }) => (kind === "call" ? `${label}(${text})` : text))
    .join("\n");

/** Group consecutive messages that are the same; return the other changes one by one. */
function runs(changes) {
  const found = [];
  for (const change of changes) {
    if (change.op !== "same") found.push(change);
    else if (found.at(-1)?.same) found.at(-1).same.push(change);
    else found.push({ same: [change] });
  }
  return found;
}
