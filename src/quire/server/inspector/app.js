// The entry point: token, language, theme, then the screen that the address names.

import { hasToken, keepToken, takeToken } from "./api.js";
import { openContext } from "./context.js";
import { button, el, replace } from "./dom.js";
import { startLanguage, t } from "./i18n.js";
import { listenToKeys } from "./keys.js";
import { openGateway } from "./gateway.js";
import { openLibrary } from "./library.js";
import { here } from "./route.js";
import { startTheme } from "./theme.js";
import { topBar } from "./topbar.js";

const app = document.getElementById("app");
let shown = null; // { key, close, route? }

/** Show the screen of the address. A screen that is already open only receives the new address. */
function show(anew = false) {
  if (!hasToken()) return askForToken();
  const route = here();
  const key = route.gateway ? "gateway" : route.context === null ? "library" : `context ${route.context}`;
  if (shown && shown.key === key && !anew) return shown.route?.(route);
  shown?.close?.();
  const host = el("main", { class: "main", id: "main", tabindex: "-1" });
  const bar = topBar(route.context);
  replace(app, el("a", { class: "skip", href: "#main", onclick: skip }, t("skip")), bar.element, host);
  const open = () => (route.gateway ? openGateway(host, bar) : openLibrary(host));
  shown = { key, ...(route.context === null ? open() : openContext(host, route, bar)) };
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function askForToken(wrong = false) {
  shown?.close?.();
  shown = null;
  const field = el("input", {
    type: "password",
    class: "field",
    autocomplete: "off",
    name: "token",
    "aria-label": t("token.label"),
  });
  const enter = (event) => {
    event.preventDefault();
    if (!field.value.trim()) return;
    keepToken(field.value.trim());
    show(true);
  };
  replace(
    app,
    topBar(null).element,
    el(
      "main",
      { class: "main gate" },
      el("h1", { class: "title" }, t("token.title")),
      el("p", { class: "lead" }, wrong ? t("token.wrong") : t("token.lead")),
      el(
        "form",
        { class: "inline-form", onsubmit: enter },
        field,
        button(t("token.enter"), enter, { type: "submit", class: "button primary" }),
      ),
    ),
  );
  field.focus();
}

function start() {
  startTheme();
  startLanguage();
  takeToken();
  listenToKeys();
  addEventListener("hashchange", () => {
    takeToken();
    show();
  });
  addEventListener("quire-language", () => show(true));
  addEventListener("quire-unauthorised", () => askForToken(true));
  show();
}

start();
