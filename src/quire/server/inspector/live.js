// Live changes: server-sent events over fetch, so that the token is sent in a header and not in a URL.

import { request } from "./api.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 8000;

/**
 * Report every change and the state of the connection. Reconnects by itself. Return a function that ends it.
 * Each connection first reports `null`: the changes before it are unknown, so the caller loads its data again.
 */
export function follow(path, onChange, onState) {
  const ending = new AbortController();
  run(path, ending.signal, onChange, onState);
  return () => ending.abort();
}

async function run(path, signal, onChange, onState) {
  let wait = FIRST_WAIT;
  while (!signal.aborted) {
    try {
      const response = await request("GET", path, { signal });
      wait = FIRST_WAIT;
      onState(true);
      onChange(null);
      for await (const change of changes(response.body)) onChange(change);
    } catch (error) {
      if (signal.aborted || error.status === 401 || error.status === 404) break;
    }
    if (signal.aborted) return;
    onState(false);
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(wait * 2, LONGEST_WAIT);
  }
  if (!signal.aborted) onState(false);
}

async function* changes(body) {
  let text = "";
  for await (const piece of pieces(body)) {
    text += piece;
    const blocks = text.split(/\r?\n\r?\n/);
    text = blocks.pop();
    for (const block of blocks) {
      const data = block.split(/\r?\n/).filter((line) => line.startsWith("data:"));
      if (data.length) yield JSON.parse(data.map((line) => line.slice(5)).join("\n"));
    }
  }
}

async function* pieces(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
