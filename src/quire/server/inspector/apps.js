// Live windows: their content and their actions.

import { ask, problem, notify } from "./dialog.js";
import { button, el, replace } from "./dom.js";
import { t } from "./i18n.js";
import { longText } from "./long.js";

export function openApps(host, session) {
  return new AppsScreen(host, session);
}

class AppsScreen {
  constructor(host, session) {
    this.session = session;
    this.opened = new Map();
    this.body = el("div", { class: "scroll windows" });
    replace(host, this.body);
    this.changed();
  }

  async changed() {
    try {
      const { windows } = await this.session.api.windows();
      replace(
        this.body,
        windows.length ? windows.map((window) => this.card(window)) : el("p", { class: "empty" }, t("apps.none")),
      );
    } catch (error) {
      replace(
        this.body,
        problem(error, () => this.changed()),
      );
    }
  }

  card(window) {
    const wrong = el("div", {});
    return el(
      "article",
      { class: `window-card${window.obsolete ? " obsolete" : ""}` },
      el(
        "header",
        {},
        el("h2", {}, window.title || window.app),
        el("span", { class: "mono dim" }, window.id),
        window.important ? el("span", { class: "chip" }, t("apps.important")) : null,
        window.pinned ? el("span", { class: "chip" }, t("pinned")) : null,
        window.obsolete ? el("span", { class: "chip" }, t("apps.closed")) : null,
        el("span", { class: "num dim" }, t("n.tokens", { n: window.tokens })),
      ),
      window.error ? el("div", { class: "problem" }, el("p", {}, window.error)) : null,
      window.items?.length
        ? el(
            "dl",
            { class: "window-items" },
            window.items.map(({ id, text }) => el("div", {}, el("dt", { class: "mono" }, id), el("dd", {}, text))),
          )
        : window.content
          ? longText(window.content, { class: "text" }, this.opened, window.id)
          : null,
      window.summary ? el("p", { class: "dim" }, window.summary) : null,
      window.obsolete
        ? null
        : el(
            "div",
            { class: "actions" },
            window.actions.map((action) => this.action(window, action, wrong)),
            button(t("apps.page"), () => this.session.select(window.page), { class: "button small quiet" }),
          ),
      wrong,
    );
  }

  action(window, action, wrong) {
    const schema = action.parameters?.properties ?? {};
    const run = async (given) => {
      const { result } = await this.session.api.act(window.id, action.name, given);
      await this.session.refresh();
      await this.changed();
      notify(result || t("apps.done"));
    };
    const start = () => {
      if (!Object.keys(schema).length) return run({}).catch((error) => replace(wrong, problem(error)));
      ask({
        title: `${window.title || window.app}: ${action.name}`,
        lead: action.description,
        fields: Object.entries(schema).map(([name, one]) => ({
          name,
          label: name,
          hint: [one.type, one.description].filter(Boolean).join(" · "),
        })),
        confirm: action.name,
        act: (values) => run(typed(values, schema)),
      });
    };
    return button(action.name, start, { class: "button small", title: action.description });
  }
}

/** Convert the input to the types of the schema; an empty field is omitted. */
function typed(values, schema) {
  const given = Object.entries(values).filter(([, value]) => value !== "");
  return Object.fromEntries(
    given.map(([name, value]) => [name, schema[name]?.type === "string" ? value : parsed(value)]),
  );
}

function parsed(value) {
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}
