// The JSON API, one function per call. Every failure is an ApiError with a text that can be shown.

import { t } from "./i18n.js";

const KEPT = "quire-token";

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Move the token from the address (`#token=…&context=…`) to this tab's storage. Return the context named there. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.replace(/^#/, ""));
  if (!given.has("token")) return null;
  keepToken(given.get("token"));
  const context = given.get("context");
  history.replaceState(null, "", context ? `#/c/${encodeURIComponent(context)}` : "#/");
  return context;
}

export function keepToken(token) {
  sessionStorage.setItem(KEPT, token);
}

export function hasToken() {
  return sessionStorage.getItem(KEPT) !== null;
}

/** Send a request with the token; the body of the response is not read yet. */
export async function request(method, path, { query, body, signal } = {}) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEPT) ?? ""}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path + asQuery(query), {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", t("error.unreachable"));
  }
  if (!response.ok) throw await failure(response);
  return response;
}

async function failure(response) {
  if (response.status === 401) dispatchEvent(new Event("quire-unauthorised"));
  try {
    const { error } = await response.json();
    return new ApiError(response.status, error.code, error.message);
  } catch {
    return new ApiError(response.status, "error", t("error.status", { n: response.status }));
  }
}

function asQuery(query) {
  const given = Object.entries(query ?? {}).filter(
    ([, value]) => value !== undefined && value !== null && value !== "",
  );
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

async function json(method, path, options) {
  const end = underWay();
  try {
    return await (await request(method, path, options)).json();
  } finally {
    end();
  }
}

const SLOW = 250; // milliseconds after which the page shows that it is waiting
let waiting = 0;

/** Show a progress indicator if a request takes long. Return a function that removes it. */
function underWay() {
  const show = () => {
    waiting += 1;
    document.body.classList.add("waiting");
    return true;
  };
  let shown = false;
  const timer = setTimeout(() => (shown = show()), SLOW);
  return () => {
    clearTimeout(timer);
    if (shown) waiting -= 1;
    document.body.classList.toggle("waiting", waiting > 0);
  };
}

export const listGatewaySessions = () => json("GET", "/api/gateway/sessions");
export const chooseGatewayMode = (name, mode) => json("POST", "/api/gateway/mode", { body: { name, mode } });
export const listContexts = (query) => json("GET", "/api/contexts", { query });

/** The calls on one context. */
export function book(name) {
  const root = `/api/contexts/${encodeURIComponent(name)}`;
  const page = (index) => `${root}/pages/${encodeURIComponent(index)}`;
  const get = (path, query) => json("GET", path, { query });
  const post = (path, body = {}) => json("POST", path, { body });
  return {
    events: `${root}/events`,
    info: () => get(root),
    pages: (query) => get(`${root}/pages`, query),
    page: (index, query) => get(page(index), query),
    operate: (index, operation, body) => post(`${page(index)}/${operation}`, body),
    edit: (index, body) => json("PATCH", page(index), { body }),
    remove: (index) => json("DELETE", page(index)),
    view: (query) => get(`${root}/view`, query),
    sent: (query) => get(`${root}/sent`, query),
    diff: (query) => get(`${root}/diff`, query),
    why: (index, query) => get(`${root}/why/${encodeURIComponent(index)}`, query),
    history: (query) => get(`${root}/history`, query),
    undo: (seq) => post(`${root}/undo`, { seq }),
    previewRollback: (to) => get(`${root}/rollback`, { to }),
    rollback: (to) => post(`${root}/rollback`, { to }),
    checkpoint: (label) => post(`${root}/checkpoint`, { name: label }),
    fork: (label, at) => post(`${root}/fork`, { name: label, at }),
    search: (query) => get(`${root}/search`, query),
    windows: () => get(`${root}/windows`),
    act: (id, action, body) => post(`${root}/windows/${encodeURIComponent(id)}/${encodeURIComponent(action)}`, body),
  };
}
