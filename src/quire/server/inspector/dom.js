// Creation of elements. Content becomes text nodes and attribute values, never markup: no code of the inspector sets
// innerHTML, and no attribute that could run or load something is made from content.

const SVG = "http://www.w3.org/2000/svg";

/** Create an element. `props` are attributes; `on…` are listeners, `style` is an object of CSS properties. */
export function el(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

function fill(node, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(key.slice(2), value);
    else if (key === "style") setStyle(node, value);
    else if (key === "value") node.value = value;
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  put(node, children);
  return node;
}

function setStyle(node, styles) {
  for (const [name, value] of Object.entries(styles)) node.style.setProperty(name, value);
}

function put(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
}

/** Replace the children of a node. */
export function replace(node, ...children) {
  node.replaceChildren();
  put(node, children);
  return node;
}

const ICONS = {
  search: "M11 11l3.2 3.2M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10Z",
  close: "M4 4l8 8M12 4l-8 8",
  half: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Zm0 0v12",
  chevron: "M6 4l4 4-4 4",
  pin: "M6 2h4l-.6 4.4L12 9H4l2.6-2.6ZM8 9v5",
  help: "M6 6a2 2 0 1 1 2.8 1.8c-.6.3-.8.7-.8 1.4M8 11.6v.2M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13Z",
  back: "M10 4L6 8l4 4",
  flag: "M4 14V2.5h7.5L9.8 5.7l1.7 3.3H4",
  fork: "M5 2v12M5 9c0-3 6-1 6-5M11 4V2.5",
};

/** Create an icon. Screen readers ignore it; the control around it has a label. */
export function icon(name) {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", "0 0 16 16");
  drawing.setAttribute("class", "icon");
  drawing.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  drawing.append(path);
  return drawing;
}

/** Create a button with a text. */
export function button(label, onclick, props) {
  return el("button", { type: "button", class: "button", onclick, ...props }, label);
}

/** Call a function at most once per frame. */
export function framed(work) {
  let scheduled = false;
  return () => {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      work();
    });
  };
}

/** Run a function now. Calls during the run cause one more run after it. */
export function latest(work) {
  let busy = false;
  let again = false;
  return async () => {
    again = true;
    if (busy) return;
    busy = true;
    try {
      while (again) {
        again = false;
        await work();
      }
    } finally {
      busy = false;
    }
  };
}

/** Call a function after a pause of the given number of milliseconds without calls. */
export function settled(work, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}
