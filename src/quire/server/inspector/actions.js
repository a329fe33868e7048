// Operations on a page: asks for missing input, reports the result, and offers to undo it.

import { ask, notify } from "./dialog.js";
import { t } from "./i18n.js";

const MOST_EDITED = 200_000; // characters; a longer text is not edited in a form

/** Run an operation on a page. `onError` receives the error. */
export async function runOperation(session, page, operation, onError) {
  try {
    if (operation === "move") return askMove(session, page);
    if (operation === "edit") return await askEdit(session, page);
    if (operation === "remove") return askRemove(session, page);
    const [called, body] = operation === "cold" ? ["archive", { cold: true }] : [operation, undefined];
    const done = await session.operate(page.index, called, body);
    tell(session, operation, page, done);
  } catch (error) {
    onError(error);
  }
}

function tell(session, operation, page, done) {
  const words = t(`done.${operation}`, { page: page.index });
  const { seq } = done ?? {};
  notify(words, seq ? () => session.undo(seq) : null);
}

function askMove(session, page) {
  ask({
    title: t("move.title", { page: page.index }),
    lead: page.name,
    fields: [
      {
        name: "target",
        label: t("move.target"),
        hint: t("move.target.hint"),
        suggestions: (session.info.segments ?? []).map((segment) => segment.root),
      },
      { name: "before", label: t("move.before"), hint: t("move.before.hint") },
    ],
    confirm: t("op.move"),
    act: async ({ target, before }) => {
      const done = await session.operate(page.index, "move", { target: target.trim(), before: before.trim() || null });
      tell(session, "move", page, done);
      if (done.page && done.page.index !== page.index) session.select(done.page.index);
    },
  });
}

async function askEdit(session, page) {
  const full = await session.api.page(page.index, { max_chars: MOST_EDITED });
  const text = full.form === "text" && full.detail_chars <= MOST_EDITED;
  const fields = [
    { name: "name", label: t("field.name"), value: full.name },
    { name: "description", label: t("field.description"), value: full.description, rows: 3 },
  ];
  if (text) fields.push({ name: "detail", label: t("field.detail"), value: full.detail, rows: 10 });
  ask({
    title: t("edit.title", { page: page.index }),
    fields,
    confirm: t("save"),
    act: async (values) => {
      const changed = Object.fromEntries(Object.entries(values).filter(([key, value]) => value !== (full[key] ?? "")));
      if (!Object.keys(changed).length) return;
      const done = await session.api.edit(page.index, changed);
      await session.refresh();
      tell(session, "edit", page, done);
    },
  });
}

function askRemove(session, page) {
  ask({
    title: t("remove.title", { page: page.index }),
    lead: page.folder ? t("remove.folder") : t("remove.leaf"),
    confirm: t("op.remove"),
    danger: true,
    act: async () => {
      const done = await session.api.remove(page.index);
      session.select(null);
      await session.refresh();
      tell(session, "remove", page, done);
    },
  });
}
