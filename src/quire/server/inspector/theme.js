// Light and dark theme: the system's setting, until the user chooses.

const KEPT = "quire-theme";
const ORDER = ["auto", "light", "dark"];

export const currentTheme = () => localStorage.getItem(KEPT) ?? "auto";

export function startTheme() {
  document.documentElement.dataset.theme = currentTheme();
}

/** Switch to the next of system, light, dark. */
export function nextTheme() {
  const next = ORDER[(ORDER.indexOf(currentTheme()) + 1) % ORDER.length];
  localStorage.setItem(KEPT, next);
  startTheme();
  return next;
}
