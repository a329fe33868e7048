// A comparison of two texts line by line.

const MOST = 1_500_000; // cells of the table; a larger middle part is shown as removed and added

/** Return the lines of both texts as [{ op: "same" | "removed" | "added" | "skip", text }]. */
export function lineChanges(before, after) {
  const old = before.split("\n");
  const now = after.split("\n");
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < now.length - head && old.at(-1 - tail) === now.at(-1 - tail)) tail += 1;
  const middle = between(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
  return [...shortened(old.slice(0, head), "end"), ...middle, ...shortened(old.slice(old.length - tail), "start")];
}

/** Keep only the few equal lines next to a change. */
function shortened(lines, keep) {
  const same = (text) => ({ op: "same", text });
  if (lines.length <= 4) return lines.map(same);
  const skip = { op: "skip", text: "⋯" };
  return keep === "end" ? [skip, ...lines.slice(-3).map(same)] : [...lines.slice(0, 3).map(same), skip];
}

function between(old, now) {
  if (old.length * now.length > MOST)
    return [...old.map((text) => ({ op: "removed", text })), ...now.map((text) => ({ op: "added", text }))];
  const lengths = table(old, now);
  const found = [];
  let left = 0;
  let right = 0;
  while (left < old.length || right < now.length) {
    if (left < old.length && right < now.length && old[left] === now[right]) {
      found.push({ op: "same", text: old[left] });
      left += 1;
      right += 1;
    } else if (right >= now.length || (left < old.length && lengths[left + 1][right] >= lengths[left][right + 1])) {
      found.push({ op: "removed", text: old[left] });
      left += 1;
    } else {
      found.push({ op: "added", text: now[right] });
      right += 1;
    }
  }
  return found;
}

/** Return a table: for each pair of positions, the length of the longest common subsequence of the lines after them. */
function table(old, now) {
  const lengths = Array.from({ length: old.length + 1 }, () => new Uint32Array(now.length + 1));
  for (let left = old.length - 1; left >= 0; left -= 1) {
    for (let right = now.length - 1; right >= 0; right -= 1) {
      lengths[left][right] =
        old[left] === now[right]
          ? lengths[left + 1][right + 1] + 1
          : Math.max(lengths[left + 1][right], lengths[left][right + 1]);
    }
  }
  return lengths;
}
