// The positions of the items of a view on the map. Pure functions without DOM access.

/**
 * Place items in reading order, row after row, so that the area of each is its share of the capacity.
 *
 * Neighbouring items of one kind that are too small to see (below `least` of a row) are merged.
 * Return groups of { items, tokens, start, bars: [{ row, from, to }] }; `from` and `to` are parts of a row's width.
 */
export function layOut(items, capacity, rows, least = 0.004) {
  const scale = rows / Math.max(1, capacity);
  let at = 0;
  return gathered(items, least / scale).map((group) => {
    const start = at;
    at += group.tokens;
    return { ...group, start, bars: barsOf(start * scale, at * scale, rows) };
  });
}

/** Merge neighbouring items of one kind that are too small to see. */
function gathered(items, least) {
  const groups = [];
  for (const item of items) {
    const last = groups.at(-1);
    if (last && last.kind === kindOf(item) && (last.tokens < least || item.tokens < least)) {
      last.items.push(item);
      last.tokens += item.tokens;
    } else {
      groups.push({ kind: kindOf(item), items: [item], tokens: item.tokens });
    }
  }
  return groups;
}

const kindOf = (item) => `${item.page ? item.segment : ""} ${item.how}`;

/** Cut a range at the ends of rows. */
export function barsOf(from, to, rows) {
  const bars = [];
  for (let row = Math.floor(from); row < rows && row < to; row += 1) {
    const left = Math.max(0, from - row);
    const right = Math.min(1, to - row);
    if (right > left) bars.push({ row, from: left, to: right });
  }
  return bars;
}

/** Return the changed pages of two views: [{ page, name, segment, before, after, tokens }], the largest first. */
export function changesBetween(before, after) {
  const was = byPage(before);
  const is = byPage(after);
  const folds = after.filter((item) => item.page?.includes("…")).map((item) => item.page);
  const changes = [];
  for (const page of new Set([...was.keys(), ...is.keys()])) {
    const old = was.get(page);
    const now = is.get(page);
    if (old?.how === now?.how && old?.tokens === now?.tokens) continue;
    const known = now ?? old;
    changes.push({
      page,
      name: known.name,
      segment: known.segment,
      before: old?.how ?? null,
      after: now?.how ?? (folds.some((span) => isIn(page, span)) ? "folded" : null),
      tokens: (now?.tokens ?? 0) - (old?.tokens ?? 0),
    });
  }
  return changes.sort((one, other) => Math.abs(other.tokens) - Math.abs(one.tokens));
}

/** Return whether a page belongs to a span (the pages of a fold have numbers between its ends). */
function isIn(page, span) {
  const [first, last] = span.split("…").map(placeOf);
  const [segment, number] = placeOf(page);
  return segment === first[0] && number >= first[1] && number <= last[1];
}

function placeOf(index) {
  const [, segment, number] = /^(.*?)-?(\d+)$/.exec(index) ?? [null, index, "0"];
  return [segment, Number(number)];
}

function byPage(items) {
  const found = new Map();
  for (const item of items) {
    const key = item.page ?? `(${item.how})`;
    const held = found.get(key);
    if (held) held.tokens += item.tokens;
    else found.set(key, { ...item });
  }
  return found;
}
