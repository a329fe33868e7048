// The states of a page in the words of the API (active, hot, cold; expanded, hidden), and the kinds of items of a view.

import { named } from "./i18n.js";

export const isCold = (page) => page.lifecycle === "cold" || page.effective === "cold";
export const isHot = (page) => (page.effective ?? page.lifecycle) === "hot";
export const isHidden = (page) => page.visibility === "hidden";

/** Return the word for a page that is not shown in full: folded, archived or cold-archived; "" for an open page. */
export function stateWord(page) {
  if (isCold(page)) return named("lifecycle", "cold");
  if (page.lifecycle === "hot") return named("lifecycle", "hot");
  return isHot(page) || isHidden(page) ? named("visibility", "hidden") : "";
}

/** Return the segment of an item of a view, or null. The page of a fold is a span: `usr-1…usr-40`. */
export function segmentOf(item) {
  if (!item.page) return null;
  return item.page.split("…")[0].replace(/-?\d+$/, "");
}

/** Return the label of an item of a view: the name or index of a page, else its kind. */
export const titleOf = (item) =>
  item.page ? item.name || item.page : named("how", item.how ?? item.after ?? item.before);

/** Return the operations that apply to a page in its state. The server may still refuse one. */
export function operationsFor(page) {
  if (isCold(page)) return ["recall"];
  const root = page.parent === null;
  const shown = isHot(page) || isHidden(page) ? ["expand"] : ["hide"];
  if (page.lifecycle === "hot") shown.push("restore");
  const pin = page.pinned ? ["unpin"] : ["pin"];
  if (root) return [...shown, ...pin, "edit"];
  return [...shown, ...pin, ...(isHot(page) ? [] : ["archive"]), "cold", "move", "edit", "remove"];
}
