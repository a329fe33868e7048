// The timeline: all journal entries, newest first, with their operations.

import { ask, problem, notify } from "./dialog.js";
import { button, el, icon, replace } from "./dom.js";
import { clock, exactly, named, number, t, when } from "./i18n.js";
import { address, go } from "./route.js";
import { VirtualList } from "./virtual.js";

const BLOCK = 200;
const ROW = 44;
const LISTED = 12;

export function openTimeline(host, session) {
  return new TimelineScreen(host, session);
}

class TimelineScreen {
  constructor(host, session) {
    this.session = session;
    this.entries = [];
    this.next = null;
    this.active = 0;
    this.filters = {};
    this.wrong = el("div", {});
    this.about = el("div", { class: "entry-panel" });
    this.body = el("div", {
      class: "timeline",
      role: "listbox",
      tabindex: "0",
      "aria-label": t("tab.timeline"),
      onkeydown: (event) => this.key(event),
      onclick: (event) => this.click(event),
    });
    this.list = new VirtualList(this.body, {
      height: ROW,
      draw: (place) => this.row(place),
      near: (last) => this.near(last),
    });
    replace(host, this.bar(), this.wrong, el("div", { class: "timeline-work" }, this.body, this.about));
    this.load();
  }

  bar() {
    const only = (name, values) =>
      el(
        "select",
        {
          class: "field",
          "aria-label": t(`timeline.${name}`),
          name,
          onchange: (event) => {
            this.filters[name] = event.currentTarget.value;
            this.load();
          },
        },
        el("option", { value: "" }, t(`timeline.${name}`)),
        values.map(([value, words]) => el("option", { value }, words)),
      );
    this.of = el("input", {
      class: "field mono",
      type: "search",
      placeholder: t("timeline.page"),
      "aria-label": t("timeline.page"),
      onchange: () => {
        this.filters.page = this.of.value.trim();
        this.load();
      },
    });
    return el(
      "div",
      { class: "screen-bar" },
      only(
        "operation",
        [
          "fold",
          "expand",
          "hide",
          "move_page",
          "archive",
          "undo",
          "rollback",
          "batch_start",
          "batch_end",
          "checkpoint",
        ].map((one) => [one, named("operation", one)]),
      ),
      this.of,
      button([icon("flag"), t("checkpoint")], () => this.checkpoint(), { class: "button small" }),
      button([icon("fork"), t("fork")], () => this.fork(null), { class: "button small" }),
    );
  }

  shown(given) {
    this.list.update();
    if (given.get("of") && given.get("of") !== this.filters.page) {
      this.filters.page = this.of.value = given.get("of");
      this.load();
    }
  }

  changed() {
    return this.load();
  }

  async load() {
    const request = (this.request = (this.request ?? 0) + 1);
    try {
      const answer = await this.session.api.history({ ...this.filters, order: "desc", limit: BLOCK });
      if (request !== this.request) return;
      this.entries = answer.entries;
      this.next = answer.next;
      replace(this.wrong, this.entries.length ? null : el("p", { class: "empty" }, t("timeline.none")));
    } catch (error) {
      replace(
        this.wrong,
        problem(error, () => this.load()),
      );
    }
    this.show();
  }

  async near(last) {
    if (this.next === null || this.loading || last < this.entries.length - 30) return;
    this.loading = true;
    const { request } = this;
    try {
      const answer = await this.session.api.history({
        ...this.filters,
        order: "desc",
        limit: BLOCK,
        before: this.next,
      });
      if (request === this.request) {
        this.entries.push(...answer.entries);
        this.next = answer.next;
      }
    } catch (error) {
      if (request === this.request) {
        this.next = null;
        replace(this.wrong, problem(error));
      }
    }
    this.loading = false;
    this.show();
  }

  show() {
    this.depths = batchDepths(this.entries);
    this.active = Math.min(this.active, Math.max(0, this.entries.length - 1));
    this.list.setCount(this.entries.length);
    this.drawEntry();
  }

  row(place) {
    const entry = this.entries[place];
    const pages = entry.pages ?? [];
    return el(
      "div",
      {
        class: `entry${entry.undone ? " undone" : ""}${place === this.active ? " active" : ""}`,
        role: "option",
        id: `entry-${entry.seq}`,
        "data-place": place,
        "data-kind": kindOf(entry.operation),
        "aria-selected": String(place === this.active),
        style: { "--batch": String(this.depths[place]) },
      },
      el("span", { class: "mono entry-seq" }, String(entry.seq)),
      el("span", { class: "entry-dot", "aria-hidden": "true" }),
      el(
        "span",
        { class: "entry-what" },
        el("b", {}, named("operation", entry.operation)),
        entry.text ? el("span", { class: "entry-text", title: entry.text }, entry.text) : null,
        entry.checkpoint ? el("span", { class: "chip checkpoint" }, icon("flag"), entry.checkpoint) : null,
        entry.undone ? el("span", { class: "chip" }, t("undone")) : null,
        entry.undoes ? el("span", { class: "chip" }, `${t("seq")} ${entry.undoes}`) : null,
      ),
      el(
        "span",
        { class: "mono entry-pages" },
        pages.slice(0, 3).join(" "),
        pages.length > 3 ? ` +${number(pages.length - 3)}` : "",
      ),
      el("span", { class: "entry-actor" }, entry.actor),
      el("time", { class: "num entry-time", datetime: entry.time, title: exactly(entry.time) }, clock(entry.time)),
    );
  }

  click(event) {
    const row = event.target.closest(".entry");
    if (row) this.goTo(Number(row.dataset.place));
  }

  key(event) {
    const last = this.entries.length - 1;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -last, End: last };
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.goTo(Math.max(0, Math.min(last, this.active + steps[event.key])));
  }

  goTo(place) {
    if (this.session.page) this.session.select(null); // the operations of an entry use the place of the panel
    const old = this.active;
    this.active = place;
    this.list.redrawRow(old);
    this.list.redrawRow(place);
    this.list.reveal(place);
    this.body.setAttribute("aria-activedescendant", `entry-${this.entries[place].seq}`);
    this.drawEntry();
  }

  /** Show the operations of the selected entry. */
  drawEntry() {
    const entry = this.entries[this.active];
    if (!entry) return replace(this.about);
    const { seq } = entry;
    const head = seq === this.session.seq;
    this.trouble = el("div", {});
    replace(
      this.about,
      el("span", { class: "mono dim" }, `${t("seq")} ${number(seq)}`),
      el("h2", {}, named("operation", entry.operation)),
      el("p", { class: "dim" }, `${entry.actor} · ${exactly(entry.time)} · ${when(entry.time)}`),
      entry.text ? el("p", { class: "entry-said" }, entry.text) : null,
      el(
        "div",
        { class: "actions" },
        button(t("entry.undo"), () => this.undo(entry), { class: "button small", "data-act": "undo" }),
        head
          ? null
          : button(t("entry.rollback"), () => this.rollback(seq), { class: "button small", "data-act": "rollback" }),
        button(t("entry.fork"), () => this.fork(seq), { class: "button small", "data-act": "fork" }),
        seq > 1
          ? button(t("entry.compare"), () => go(address(this.session.name, "compare", { ls: seq - 1, rs: seq })), {
              class: "button small quiet",
            })
          : null,
      ),
      this.trouble,
      this.entryPages(entry),
    );
  }

  entryPages({ pages = [] }) {
    if (!pages.length) return null;
    const shown = pages.slice(0, 60);
    return [
      el("h3", {}, t("entry.pages", { n: pages.length })),
      el(
        "div",
        { class: "index-list" },
        shown.map((index) =>
          el("button", { type: "button", class: "link mono", onclick: () => this.session.select(index) }, index),
        ),
      ),
      pages.length > shown.length ? el("p", { class: "dim" }, t("more", { n: pages.length - shown.length })) : null,
    ];
  }

  async undo({ seq }) {
    try {
      const done = await this.session.undo(seq);
      notify(t("done.undo", { seq }), () => this.session.undo(done.seq));
    } catch (error) {
      replace(this.trouble, problem(error));
    }
  }

  /** Preview a rollback, and run it if the user confirms. */
  async rollback(seq) {
    try {
      const preview = await this.session.api.previewRollback(seq);
      ask({
        title: t("rollback.title", { seq }),
        lead: t("rollback.lead", { n: preview.entries }),
        body: previewBody(preview),
        confirm: t("rollback.confirm"),
        danger: true,
        act: async () => {
          const done = await this.session.api.rollback(seq);
          await this.session.refresh();
          notify(t("done.rollback", { seq }), () => this.session.undo(done.seq));
        },
      });
    } catch (error) {
      replace(this.trouble, problem(error));
    }
  }

  fork(at) {
    ask({
      title: at === null ? t("fork.title") : t("fork.title.at", { seq: at }),
      lead: t("fork.lead"),
      fields: [{ name: "name", label: t("fork.name"), value: `${this.session.name}-${at ?? this.session.seq}` }],
      confirm: t("fork"),
      act: async ({ name }) => {
        await this.session.api.fork(name.trim(), at ?? undefined);
        go(address(name.trim()));
      },
    });
  }

  checkpoint() {
    ask({
      title: t("checkpoint.title"),
      lead: t("checkpoint.lead"),
      fields: [{ name: "name", label: t("checkpoint.name") }],
      confirm: t("checkpoint"),
      act: async ({ name }) => {
        await this.session.api.checkpoint(name.trim());
        await this.session.refresh();
      },
    });
  }

  close() {
    this.list.close();
  }
}

function previewBody({ pages, more = 0, messages_before: before, messages_after: after }) {
  return el(
    "div",
    { class: "preview" },
    el("p", { class: "num" }, `${t("rollback.messages")}: ${number(before)} → ${number(after)}`),
    el(
      "ul",
      { class: "preview-pages" },
      pages
        .slice(0, LISTED)
        .map(({ index, now, then }) =>
          el(
            "li",
            {},
            el("span", { class: "mono" }, index),
            el("span", {}, (then ?? now)?.name ?? ""),
            el("span", { class: "dim" }, turned(now, then)),
          ),
        ),
    ),
    pages.length + more > LISTED ? el("p", { class: "dim" }, t("more", { n: pages.length + more - LISTED })) : null,
  );
}

function turned(now, then) {
  if (!then) return t("rollback.goes");
  if (!now) return t("rollback.comes");
  if (now.lifecycle !== then.lifecycle)
    return `${named("lifecycle", now.lifecycle)} → ${named("lifecycle", then.lifecycle)}`;
  if (now.visibility !== then.visibility)
    return `${named("visibility", now.visibility)} → ${named("visibility", then.visibility)}`;
  if (now.parent !== then.parent) return `${now.parent ?? "–"} → ${then.parent ?? "–"}`;
  return t("rollback.changes");
}

const KINDS = {
  fold: "fold",
  undo: "undo",
  rollback: "undo",
  batch_start: "batch",
  batch_end: "batch",
  batch_commit: "batch",
  checkpoint: "checkpoint",
};

const kindOf = (operation) => KINDS[operation] ?? "plain";

/** Return the number of open batches at each entry, from the loaded entries, which come newest first. */
function batchDepths(entries) {
  const depths = new Array(entries.length).fill(0);
  let depth = 0;
  for (let place = entries.length - 1; place >= 0; place -= 1) {
    const { operation } = entries[place];
    if (operation === "batch_start") depth += 1;
    depths[place] = Math.min(depth, 3);
    if (operation === "batch_end" || operation === "batch_commit") depth = Math.max(0, depth - 1);
  }
  return depths;
}
