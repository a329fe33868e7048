// What state a page is in, as the API spells it (active, hot, cold; expanded, hidden), and what a piece of a view is.

import { named } from "./i18n.js";

export const isCold = (page) => page.lifecycle === "cold" || page.effective === "cold";
export const isHot = (page) => (page.effective ?? page.lifecycle) === "hot";
export const isHidden = (page) => page.visibility === "hidden";

/** The segment that a piece of a view is of; null for what belongs to none. A fold goes by a span: `usr-1…usr-40`. */
export function segmentOf(item) {
  if (!item.page) return null;
  return item.page.split("…")[0].replace(/-?\d+$/, "");
}

/** What a piece of a view is called: a page by its name or index, anything else by what it is. */
export const titleOf = (item) =>
  item.page ? item.name || item.page : named("how", item.how ?? item.after ?? item.before);

/** The operations that make sense for a page as it is. What is refused all the same is said by the server. */
export function operationsFor(page) {
  if (isCold(page)) return ["recall"];
  const root = page.parent === null;
  const shown = isHot(page) || isHidden(page) ? ["expand"] : ["hide"];
  if (page.lifecycle === "hot") shown.push("restore");
  const pin = page.pinned ? ["unpin"] : ["pin"];
  if (root) return [...shown, ...pin, "edit"];
  return [...shown, ...pin, ...(isHot(page) ? [] : ["archive"]), "cold", "move", "edit", "remove"];
}
