// The last view that a model answered: its size by kind of part, and its tools.

import { el } from "./dom.js";
import { named, number, t } from "./i18n.js";

/** Return one line with the figures of the view that was sent. */
export function sentLine({ tokens, entry, tools, view, exact }) {
  const kinds = new Map();
  for (const item of view?.items ?? []) kinds.set(item.kind, (kinds.get(item.kind) ?? 0) + item.tokens);
  const names = Object.keys(tools);
  const parts = [...kinds].map(([kind, size]) => `${named("how", kind)} ${number(size)}`);
  if (names.length) {
    const size = Object.values(tools).reduce((sum, one) => sum + one, 0);
    parts.push(`${t("sent.tools", { n: names.length })} ${number(size)}`);
  }
  return el(
    "span",
    { class: "sent-line" },
    el("b", { class: "num" }, t("sent.tokens", { n: tokens })),
    el("span", { class: "dim", title: names.join(", ") }, ` ${t("seq")} ${number(entry)} · ${parts.join(" · ")}`),
    view ? null : el("span", { class: "broke" }, ` ${t("sent.gone")}`),
    view && !exact ? el("span", { class: "broke" }, ` ${t("sent.inexact", { n: view.tokens })}`) : null,
  );
}
