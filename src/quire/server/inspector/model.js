// The model's view: every message in a provider's format, with the cached prefix and the first break.

import { problem, notify } from "./dialog.js";
import { button, el, replace } from "./dom.js";
import { named, number, percent, t } from "./i18n.js";
import { longText } from "./long.js";
import { sentLine } from "./sent.js";
import { segmentOf } from "./states.js";
import { blocksOf, drawBlock, speakerOf } from "./speech.js";

const FORMATS = ["openai", "anthropic", "responses"];
const FORMAT_NAMES = { openai: "OpenAI", anthropic: "Anthropic", responses: "Responses" };
const NOTHING = { messages: [], items: [], system: null, tokens: 0, budget: 0, prefix: null };
const BLOCK = 40; // messages drawn at a time

export function openModel(host, session) {
  return new ModelScreen(host, session);
}

class ModelScreen {
  constructor(host, session) {
    this.session = session;
    this.format = "openai";
    this.which = "now";
    this.raw = false;
    this.drawnCount = 0;
    this.opened = new Map();
    this.summary = el("div", { class: "model-summary", "aria-live": "polite" });
    this.wrong = el("div", {});
    this.list = el("ol", { class: "messages", "aria-label": t("tab.model") });
    this.end = el("div", { class: "list-end" });
    this.body = el("div", { class: "scroll", tabindex: "0", "aria-label": t("tab.model") }, this.list, this.end);
    replace(host, this.bar(), this.wrong, this.body);
    this.watch = new IntersectionObserver((entries) => entries.some((one) => one.isIntersecting) && this.drawOn(), {
      root: this.body,
      rootMargin: "800px",
    });
    this.watch.observe(this.end);
    this.listen = () => this.load();
    session.addEventListener("budget", this.listen);
    this.load();
  }

  bar() {
    const group = (label, values, chosen, choose) =>
      el(
        "div",
        { class: "switches", role: "group", "aria-label": label },
        values.map(([value, words]) =>
          el(
            "button",
            {
              type: "button",
              class: "switch",
              "aria-pressed": String(value === chosen),
              "data-value": String(value),
              onclick: (event) => {
                for (const one of event.currentTarget.parentElement.children)
                  one.setAttribute("aria-pressed", String(one === event.currentTarget));
                choose(value);
              },
            },
            words,
          ),
        ),
      );
    this.sides = group(
      t("model.which"),
      [
        ["now", t("model.now")],
        ["sent", t("model.sent")],
      ],
      this.which,
      (which) => this.choose(which),
    );
    return el(
      "div",
      { class: "screen-bar" },
      this.sides,
      group(
        t("model.form"),
        FORMATS.map((format) => [format, FORMAT_NAMES[format]]),
        this.format,
        (format) => {
          this.format = format;
          this.load();
        },
      ),
      group(
        t("model.as"),
        [
          [false, t("model.read")],
          [true, "JSON"],
        ],
        this.raw,
        (raw) => {
          this.raw = raw;
          this.draw();
        },
      ),
      button(t("copy"), () => this.copy(), { class: "button small quiet" }),
      this.summary,
    );
  }

  changed() {
    return this.load();
  }

  async load() {
    const wanted = `${this.session.seq} ${this.session.budget} ${this.format} ${this.which}`;
    this.wanted = wanted;
    try {
      const [now, sent] = await Promise.all([
        this.session.view({ budget: this.session.budget, format: this.format }),
        this.session.sent(this.format),
      ]);
      if (this.wanted !== wanted) return;
      const view = this.which === "sent" ? (sent.view ?? NOTHING) : now;
      const known = sent.tokens !== null;
      replace(
        this.wrong,
        known ? el("p", { class: "sent-note" }, sentLine(sent), ` ${t("sent.now", { n: now.tokens })}`) : null,
        this.which === "sent" && !known ? el("p", { class: "dim" }, t("sent.none")) : null,
      );
      if (view === this.view) return;
      this.view = view;
      this.draw();
    } catch (error) {
      replace(
        this.wrong,
        problem(error, () => this.load()),
      );
    }
  }

  /** Show the view now, or the one that was sent. */
  choose(which) {
    this.which = which;
    for (const one of this.sides.children) one.setAttribute("aria-pressed", String(one.dataset.value === which));
    return this.load();
  }

  draw() {
    const { view } = this;
    if (!view) return;
    const prefix = this.which === "now" ? view.prefix : { messages: view.messages.length, tokens: view.tokens };
    this.pages = pagesByMessage(view.items);
    this.sent = [
      ...(view.system ? [{ apart: true, value: view.system }] : []),
      ...view.messages.map((value, number) => ({ value, number })),
    ];
    const before = this.drawnCount;
    this.drawnCount = 0;
    this.stopAt = prefix?.messages ?? 0;
    replace(
      this.summary,
      el("span", { class: "num" }, t("n.messages", { n: view.messages.length })),
      el("span", { class: "num" }, t("gauge.sum", { n: view.tokens, budget: number(view.budget) })),
      prefix && this.which === "now"
        ? el(
            "span",
            { class: "num cached-words" },
            el("i", { class: "key-cached" }),
            t("model.cached", { share: percent(prefix.tokens, view.tokens) }),
          )
        : null,
    );
    replace(this.list);
    do this.drawOn();
    while (this.drawnCount < Math.min(before, this.sent.length)); // keeps the scroll position of the user
    this.reveal();
  }

  drawOn() {
    if (!this.sent) return;
    const until = Math.min(this.sent.length, this.drawnCount + BLOCK);
    for (; this.drawnCount < until; this.drawnCount += 1) {
      const entry = this.sent[this.drawnCount];
      if (entry.number === this.stopAt) this.list.append(this.breakLine());
      this.list.append(this.message(entry));
    }
    if (
      this.drawnCount === this.sent.length &&
      this.stopAt >= this.view.messages.length &&
      !this.list.querySelector(".break")
    )
      this.list.append(this.breakLine());
  }

  /** Draw the end of the cached prefix, with the reason. */
  breakLine() {
    const { prefix, messages } = this.view;
    if (this.which === "sent") return el("li", { class: "break all", role: "note" }, el("b", {}, t("sent.end")));
    const kind = this.stopAt >= messages.length ? "all" : prefix.broke ? "broke" : prefix.tokens ? "new" : "first";
    const words = kind === "broke" ? prefix.broke.why : t(`break.${kind}.words`);
    return el(
      "li",
      { class: `break ${kind}`, role: "note" },
      el("span", {}, el("b", {}, t(`break.${kind}`)), " ", words),
    );
  }

  shown(given) {
    if (given.get("at") === "sent" && this.which !== "sent") this.choose("sent");
    if (given.get("at") === "break") {
      this.toBreak = true;
      if (this.which !== "now") this.choose("now");
    }
    this.reveal();
  }

  /** Scroll to the break if the address asks for it. */
  reveal() {
    if (!this.toBreak || !this.view) return;
    this.toBreak = false;
    while (!this.list.querySelector(".break") && this.drawnCount < this.sent.length) this.drawOn();
    const line = this.list.querySelector(".break");
    let frames = 3; // elements above get their real height only when they become visible
    const bring = () => {
      line?.scrollIntoView({ block: "center" });
      if ((frames -= 1)) requestAnimationFrame(bring);
    };
    bring();
  }

  message({ value, number: place, apart }) {
    const cached = apart || place < this.stopAt;
    const speaker = apart ? "system" : speakerOf(value);
    const shown = this.raw
      ? longText(JSON.stringify(value, null, 2), { class: "text mono json" }, this.opened)
      : (apart ? systemBlocks(value) : blocksOf(value)).map((block) => drawBlock(block, this.opened));
    return el(
      "li",
      { class: `message ${cached ? "is-cached" : "is-new"}`, "data-role": speaker },
      el(
        "div",
        { class: "message-top" },
        el("b", { class: "role" }, named("role", speaker)),
        el("span", { class: "mono dim" }, apart ? "system" : String(place)),
        el(
          "span",
          { class: "message-pages" },
          (this.pages.get(apart ? -1 : place) ?? []).map((item) => this.pageLink(item)),
        ),
      ),
      shown,
      this.reasons(this.view.items.filter((item) => item.score !== undefined && item.message === place)),
    );
  }

  /** Draw the reasons why pages were recalled, with their scores and the folders they are in. */
  reasons(items) {
    if (!items.length) return null;
    return el(
      "ul",
      { class: "recalled-pages", "aria-label": t("model.recalled") },
      items.map((item) =>
        el(
          "li",
          {},
          this.pageLink(item),
          el("span", { class: "num" }, item.score ? ` ${item.score.toFixed(2)}` : ""),
          ` ${item.reason}`,
          el("span", { class: "dim mono" }, ` ${(item.path ?? []).join(" › ")}`),
        ),
      ),
    );
  }

  pageLink(item) {
    return el(
      "button",
      {
        type: "button",
        class: "link mono page-link",
        "data-c": this.session.colour(segmentOf(item)),
        title: `${item.name}  ${named("how", item.how)}, ${t("n.tokens", { n: item.tokens })}`,
        onclick: () => this.session.select(item.page),
      },
      item.page,
    );
  }

  async copy() {
    if (!this.view) return;
    const { system, messages } = this.view;
    try {
      await navigator.clipboard.writeText(JSON.stringify(system ? { system, messages } : messages, null, 2));
      notify(t("copied"));
    } catch {
      notify(t("copy.refused"));
    }
  }

  close() {
    this.session.removeEventListener("budget", this.listen);
    this.watch.disconnect();
  }
}

const MOST_LINKS = 6;

/** Return the pages of each message; -1 is the separate system prompt. A message of many lines names the first few. */
function pagesByMessage(items) {
  const found = new Map();
  for (const item of items) {
    if (!item.page) continue;
    const pages = found.get(item.message) ?? [];
    if (pages.length < MOST_LINKS && !pages.some((one) => one.page === item.page)) pages.push(item);
    found.set(item.message, pages);
  }
  return found;
}

function systemBlocks(system) {
  return blocksOf(typeof system === "string" ? { content: system } : { content: system });
}
