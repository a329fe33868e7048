// Texts with a very long line: a browser takes seconds to wrap one, so they are drawn in blocks. The rest is drawn on
// request.

import { button, el } from "./dom.js";
import { t } from "./i18n.js";

const PIECE = 10_000; // characters of a line that a browser can wrap quickly
const STEP = 10; // pieces that are added at a time

/** Show a text. If a line is too long, show its first piece and a button for more. `opened` is the screen's Map of the
    number of characters shown so far, because the text is redrawn at every change. `key` is the key of a text that may
    change. */
export function longText(text, props, opened, key = text) {
  const whole = el("pre", props);
  if (!hasLongLine(text)) {
    whole.append(text);
    return whole;
  }
  let shown = 0;
  const addUntil = (wanted) => {
    while (shown < text.length && shown < wanted) {
      const end = endOf(text, shown + PIECE);
      whole.append(el("span", { class: "piece" }, text.slice(shown, end)));
      shown = end;
    }
  };
  const words = () => t("content.more", { n: text.length - shown });
  addUntil(Math.max(PIECE, opened.get(key) ?? 0));
  if (shown >= text.length) return whole;
  const more = button(words(), addOn, { class: "button small show-more" });
  function addOn() {
    addUntil(shown + STEP * PIECE);
    opened.set(key, shown);
    if (shown < text.length) more.textContent = words();
    else more.remove();
  }
  return [whole, more];
}

/** Show one whole line of a text, in blocks if it is too long. */
export function longLine(text) {
  if (!hasLongLine(text)) return text;
  const pieces = [];
  for (let from = 0; from < text.length; ) {
    const end = endOf(text, from + PIECE);
    pieces.push(el("span", { class: "piece" }, text.slice(from, end)));
    from = end;
  }
  return pieces;
}

function hasLongLine(text) {
  for (let from = 0; text.length - from > PIECE; ) {
    const end = text.indexOf("\n", from);
    if (end < 0 || end - from > PIECE) return true;
    from = end + 1;
  }
  return false;
}

/** Return a valid end for a piece: not inside a surrogate pair. */
function endOf(text, end) {
  return /[\uD800-\uDBFF]/.test(text[end - 1] ?? "") ? end + 1 : end;
}
