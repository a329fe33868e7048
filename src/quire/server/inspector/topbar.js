// The top bar: location, connection state, language, theme, help.

import { button, el, icon, replace } from "./dom.js";
import { chooseLanguage, currentLanguage, t } from "./i18n.js";
import { showHelp } from "./keys.js";
import { currentTheme, nextTheme } from "./theme.js";

/** Create the bar, and `live(up)` to show whether changes arrive. */
export function topBar(context) {
  const state = el("span", { class: "live", role: "status", hidden: true });
  const bar = el(
    "header",
    { class: "top" },
    el("a", { class: "brand", href: "#/", "aria-label": t("library") }, mark(), el("span", {}, "quire")),
    el(
      "nav",
      { class: "crumbs", "aria-label": t("crumbs") },
      context === null
        ? null
        : [
            el("a", { href: "#/" }, t("library")),
            el("span", { class: "slash", "aria-hidden": "true" }, "/"),
            el("b", {}, context),
          ],
    ),
    state,
    languages(),
    themeButton(),
    button(icon("help"), showHelp, { class: "icon-button", "aria-label": t("help"), title: `${t("help")}  ?` }),
  );
  return {
    element: bar,
    live(up) {
      state.hidden = false;
      state.classList.toggle("down", !up);
      replace(state, el("i", { "aria-hidden": "true" }), el("span", {}, up ? t("live") : t("live.down")));
    },
  };
}

function mark() {
  return el("img", { src: "/static/mark.svg", alt: "", width: "22", height: "22" });
}

function languages() {
  const one = (code, label) =>
    button(label, () => chooseLanguage(code), {
      class: "switch",
      lang: code,
      "aria-pressed": String(currentLanguage() === code),
    });
  return el("div", { class: "switches", role: "group", "aria-label": t("language") }, one("en", "EN"), one("zh", "中"));
}

function themeButton() {
  const label = () => t("theme", { value: t(`theme.${currentTheme()}`) });
  const made = button(icon("half"), () => change(), {
    class: "icon-button",
    id: "theme",
    "aria-label": label(),
    title: label(),
  });
  const change = () => {
    nextTheme();
    made.setAttribute("aria-label", label());
    made.setAttribute("title", label());
  };
  return made;
}
