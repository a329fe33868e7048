// Messages of every provider's format as readable blocks: the role, and texts, calls and results.

import { el } from "./dom.js";
import { named, t } from "./i18n.js";
import { longText } from "./long.js";

/** Return the role of a message, for its heading. */
export function speakerOf(message) {
  if (message.role === "tool" || message.type === "function_call_output") return "tool";
  if (message.type === "function_call" || message.type === "reasoning") return "assistant";
  const blocks = Array.isArray(message.content) ? message.content : [];
  if (message.role === "user" && blocks.length && blocks.every((block) => block?.type === "tool_result")) return "tool";
  return message.role ?? message.type ?? "";
}

/** Return a message as [{ kind, label, text }]; kind is text, call, result or other. */
export function blocksOf(message) {
  if (typeof message === "string") return [{ kind: "text", text: message }];
  if (message.type === "function_call") return [call(message.name, message.call_id, message.arguments)];
  if (message.type === "function_call_output") return [result(message.call_id, message.output)];
  const blocks = contentBlocks(message.content, message.role === "tool" ? message.tool_call_id : null);
  for (const one of message.tool_calls ?? [])
    blocks.push(call(one.function?.name ?? one.name, one.id, one.function?.arguments ?? one.arguments));
  if (!blocks.length && message.type && message.type !== "message") return [other(message.type, message)];
  return blocks;
}

function contentBlocks(content, callId) {
  if (content === null || content === undefined) return [];
  if (typeof content === "string") return callId ? [result(callId, content)] : [{ kind: "text", text: content }];
  return [content]
    .flat()
    .map((block) => (callId && typeof block?.text === "string" ? result(callId, block.text) : contentBlock(block)));
}

function contentBlock(block) {
  if (typeof block === "string") return { kind: "text", text: block };
  if (typeof block?.text === "string") return { kind: "text", text: block.text };
  if (block?.type === "tool_use") return call(block.name, block.id, block.input);
  if (block?.type === "tool_result") return result(block.tool_use_id, block.content);
  if (block?.type === "thinking") return { kind: "other", label: "thinking", text: String(block.thinking ?? "") };
  return other(block?.type ?? "", block);
}

const call = (name, id, given) => ({
  kind: "call",
  label: `${name ?? ""}`,
  id,
  text: typeof given === "string" ? pretty(given) : JSON.stringify(given ?? {}, null, 2),
});
const result = (id, given) => ({ kind: "result", label: "", id, text: plain(given) });
const other = (label, value) => ({ kind: "other", label, text: JSON.stringify(value, null, 2) });

/** Indent arguments that are valid JSON; return others unchanged. */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function plain(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return content === undefined || content === null ? "" : JSON.stringify(content, null, 2);
  return content
    .map((block) => (typeof block === "string" ? block : (block?.text ?? JSON.stringify(block))))
    .join("\n");
}

/** Create the element of a block; `opened` is the state of long texts, see longText. */
export function drawBlock({ kind, label, id, text }, opened) {
  const heading =
    kind === "text"
      ? null
      : el(
          "div",
          { class: "block-top" },
          el("b", {}, [named("block", kind), label].filter(Boolean).join(" ")),
          id ? el("span", { class: "mono dim" }, id) : null,
        );
  return el(
    "div",
    { class: `block ${kind}` },
    heading,
    longText(text, { class: kind === "text" ? "text" : "text mono" }, opened),
  );
}

/** Return a message as one line, for lists. */
export function lineOf(message) {
  const blocks = blocksOf(message);
  const text = blocks.map(({ kind, label, text: content }) => (kind === "call" ? `${label} ${content}` : content)).join(" ");
  return text.replace(/\s+/g, " ").slice(0, 240) || t("content.empty");
}
