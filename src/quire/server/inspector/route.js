// Addresses: `#/` is the library, `#/gateway` the sessions of the gateway, `#/c/NAME/TAB?page=usr-7` one context.

export const TABS = ["window", "pages", "model", "compare", "timeline", "search", "apps"];

/** Parse the address. */
export function here() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const [, kind, name, tab] = path.split("/");
  const given = new URLSearchParams(query ?? "");
  if (kind === "gateway") return { context: null, tab: null, gateway: true, given };
  if (kind !== "c" || !name) return { context: null, tab: null, given };
  return { context: decoded(name), tab: TABS.includes(tab) ? tab : "window", given };
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/** Return the address of a context's screen. */
export function address(context, tab = "window", given = {}) {
  const present = Object.entries(given).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = present.length ? `?${new URLSearchParams(present)}` : "";
  return `#/c/${encodeURIComponent(context)}/${tab}${query}`;
}

/** Navigate to an address. */
export function go(to) {
  location.hash = to;
}
