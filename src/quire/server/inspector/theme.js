// Light and dark: what the system says, until somebody chooses.

const KEPT = "quire-theme";
const ORDER = ["auto", "light", "dark"];

export const currentTheme = () => localStorage.getItem(KEPT) ?? "auto";

export function startTheme() {
  document.documentElement.dataset.theme = currentTheme();
}

/** The next of system, light, dark. */
export function nextTheme() {
  const next = ORDER[(ORDER.indexOf(currentTheme()) + 1) % ORDER.length];
  localStorage.setItem(KEPT, next);
  startTheme();
  return next;
}
