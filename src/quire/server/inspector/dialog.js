// Dialogs and notices: a dialog with a form, a line that reports a result, a box that reports an error.

import { button, el, icon, replace } from "./dom.js";
import { t } from "./i18n.js";

let opened = 0;

/** Show a dialog with a title and a body. Return the dialog. */
export function sheet(title, ...body) {
  const name = `sheet-${(opened += 1)}`;
  const box = el(
    "dialog",
    { class: "sheet", "aria-labelledby": name, onclose: () => box.remove() },
    el(
      "div",
      { class: "sheet-top" },
      el("h2", { id: name }, title),
      button(icon("close"), () => box.close(), { class: "icon-button", "aria-label": t("close") }),
    ),
    body,
  );
  document.body.append(box);
  box.showModal();
  return box;
}

/**
 * Ask for input before an action. `fields` are { name, label, value, type, hint, rows, suggestions }. `act(values)`
 * runs the action; an error is shown in the dialog, which stays open.
 */
export function ask({ title, lead, body, fields = [], confirm, danger = false, act }) {
  const wrong = el("div", { role: "alert" });
  const inputs = fields.map(makeField);
  const submit = button(confirm, null, { type: "submit", class: danger ? "button danger" : "button primary" });
  const run = async (event) => {
    event.preventDefault();
    submit.disabled = true;
    try {
      await act(Object.fromEntries(inputs.map(({ name, input }) => [name, input.value])));
      box.close();
    } catch (error) {
      replace(wrong, problem(error));
    }
    submit.disabled = false;
  };
  const form = el(
    "form",
    { class: "sheet-form", onsubmit: run },
    lead ? el("p", { class: "lead" }, lead) : null,
    body,
    inputs.map(({ row }) => row),
    wrong,
    el(
      "div",
      { class: "sheet-end" },
      button(t("cancel"), () => box.close()),
      submit,
    ),
  );
  const box = sheet(title, form);
  (inputs[0]?.input ?? submit).focus();
}

function makeField({ name, label, value = "", type = "text", hint, rows, suggestions }) {
  const props = { class: "field", name, value, id: `field-${name}` };
  const list = suggestions?.length
    ? el(
        "datalist",
        { id: `list-${name}` },
        suggestions.map((one) => el("option", { value: one })),
      )
    : null;
  const input = rows
    ? el("textarea", { ...props, rows })
    : el("input", { ...props, type, autocomplete: "off", list: list ? `list-${name}` : null });
  const row = el(
    "div",
    { class: "form-row" },
    el("label", { for: props.id }, label),
    input,
    list,
    hint ? el("small", {}, hint) : null,
  );
  return { name, input, row };
}

/** Return an element with the text of an error, for the place where it happened. */
export function problem(error, again) {
  return el(
    "div",
    { class: "problem", role: "alert" },
    el("p", {}, error.message),
    el(
      "div",
      { class: "problem-end" },
      error.code ? el("code", {}, error.code) : null,
      again ? button(t("again"), again, { class: "button small" }) : null,
    ),
  );
}

/** Report a result in the status line; `undo` adds a button to undo it. */
export function notify(words, undo) {
  document.querySelector(".notice")?.remove();
  const line = el("div", { class: "notice", role: "status" }, el("span", {}, words));
  if (undo) {
    const back = button(
      t("undo"),
      async () => {
        try {
          await undo();
          line.remove();
        } catch (error) {
          notify(error.message);
        }
      },
      { class: "button small" },
    );
    line.append(back);
  }
  document.body.append(line);
  setTimeout(() => line.remove(), undo ? 9000 : 5000);
}
