// Texts in English and Chinese: the browser's language at first, then the user's choice.

import en from "./words-en.js";
import zh from "./words-zh.js";

const KEPT = "quire-language";
const WORDS = { en, zh };

let language = localStorage.getItem(KEPT) ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
if (!WORDS[language]) language = "en";

export const currentLanguage = () => language;

/** Return the text for a key, with `{name}` replaced; `key_one` if n is 1 and the language has it. */
export function t(key, values = {}) {
  const words = WORDS[language];
  const found = (values.n === 1 && words[`${key}_one`]) || words[key] || en[key] || key;
  return found.replace(/\{(\w+)\}/g, (_, name) => {
    const value = values[name];
    return typeof value === "number" ? number(value) : String(value ?? "");
  });
}

/** Return the text for a name of the API (a state, an operation), or the name itself if there is none. */
export function named(group, value) {
  const key = `${group}.${String(value).toLowerCase()}`;
  return WORDS[language][key] ?? en[key] ?? String(value);
}

export function chooseLanguage(chosen) {
  language = chosen;
  localStorage.setItem(KEPT, chosen);
  document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";
  dispatchEvent(new Event("quire-language"));
}

export function startLanguage() {
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
}

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export const number = (value) => whole.format(value);

/** Format a share as a percentage with at least one significant digit. */
export function percent(part, all) {
  if (!all) return "0%";
  const share = (100 * part) / all;
  return `${share > 0 && share < 10 ? share.toFixed(1) : Math.round(share)}%`;
}

/** Format a time for people: relative within a day, else the date. */
export function when(iso) {
  if (!iso) return "";
  const time = new Date(iso);
  const seconds = (Date.now() - time.getTime()) / 1000;
  const locale = language === "zh" ? "zh-CN" : "en";
  if (seconds < 45) return t("time.now");
  const relative = new Intl.RelativeTimeFormat(locale, { numeric: "auto", style: "short" });
  if (seconds < 3600) return relative.format(-Math.round(seconds / 60), "minute");
  if (seconds < 86400) return relative.format(-Math.round(seconds / 3600), "hour");
  return new Intl.DateTimeFormat(locale, { dateStyle: "medium" }).format(time);
}

/** Format a time to the second. */
export function exactly(iso) {
  const locale = language === "zh" ? "zh-CN" : "en-GB";
  return iso ? new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "medium" }).format(new Date(iso)) : "";
}

/** Format the time of day, for lists that show the day separately. */
export function clock(iso) {
  return iso ? new Date(iso).toLocaleTimeString("en-GB") : "";
}
