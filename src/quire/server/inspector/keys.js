// Global keys, and the dialog that lists all keys.

import { sheet } from "./dialog.js";
import { el } from "./dom.js";
import { t } from "./i18n.js";
import { address, go, here, TABS } from "./route.js";

/** Listen for keys. Letters typed into a field, and keys held with Ctrl, Alt or Meta, are ignored. */
export function listenToKeys() {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("input, textarea, select, dialog")) return;
    if (pressed(event.key)) event.preventDefault();
  });
}

function pressed(key) {
  const { context } = here();
  if (key === "?") return showHelp() ?? true;
  if (key === "t") return document.getElementById("theme")?.click() ?? true;
  if (key === "g") return go("#/") ?? true;
  if (context === null) return false;
  if (key === "/" || TABS[Number(key) - 1] === "search") return dispatchEvent(new Event("quire-find"));
  if (/^[1-7]$/.test(key)) return go(address(context, TABS[Number(key) - 1])) ?? true;
  if (key === "[" || key === "]")
    return dispatchEvent(new CustomEvent("quire-budget", { detail: key === "]" ? 1 : -1 }));
  if (key === "Escape") return dispatchEvent(new Event("quire-escape"));
  return false;
}

const LISTED = [
  ["1 … 7", "keys.tabs"],
  ["/", "keys.search"],
  ["[  ]", "keys.budget"],
  ["g", "keys.library"],
  ["t", "keys.theme"],
  ["Esc", "keys.close"],
  ["↑ ↓ ← →", "keys.tree"],
  ["Enter", "keys.open"],
  ["e  h", "keys.expand"],
  ["p", "keys.pin"],
  ["a  r", "keys.archive"],
  ["m", "keys.move"],
  ["w", "keys.why"],
];

/** Show the list of keys. */
export function showHelp() {
  const rows = LISTED.map(([keys, words]) =>
    el(
      "div",
      {},
      el(
        "dt",
        {},
        keys.split("  ").map((key) => el("kbd", {}, key)),
      ),
      el("dd", {}, t(words)),
    ),
  );
  sheet(t("keys.title"), el("dl", { class: "keys" }, rows));
}
