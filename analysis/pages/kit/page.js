/* What every page is made of: elements, a state that tells of its changes, and words. Text goes in as text, never as HTML. */

const byId = (id) => document.getElementById(id);

/** Listen to an element, where the page has it. */
function listenTo(id, what, act) { byId(id)?.addEventListener(what, act); }

/** Make an element: element("p", {class: "x"}, "text", child). */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** What the user looks at. Tells listeners of "change" what changed. */
class PageState extends EventTarget {
  constructor(data) {
    super();
    this.data = data;
  }

  changed(what) { this.dispatchEvent(new CustomEvent("change", { detail: what })); }

  /** Take another value, and tell; the same value is no change. */
  set(what, value) {
    if (this[what] === value) return;
    this[what] = value;
    this.changed(what);
  }

  on(what, act) {
    this.addEventListener("change", ({ detail }) => { if (what.includes(detail)) act(detail); });
  }
}

/** A part of the page that shows what the user looks at. */
class Panel {
  constructor(state) {
    this.state = state;
    this.data = state.data;
  }
}

/** What to call with an error: it says, in the element `loading`, what the page cannot show and what to do about it. */
function failing(what, remedy) {
  return (error) => {
    const loading = byId("loading");
    loading.hidden = false;
    loading.classList.add("failed");
    loading.textContent = `This page cannot show ${what}: ${error.message}. It needs a browser of 2024 or later; if yours is `
      + `newer, the file is damaged: ${remedy}.`;
  };
}

/** Start the page; while it starts, and if it cannot, the element `loading` is shown. */
async function begin(start, fail) {
  try {
    await start();
    byId("loading").hidden = true;
  } catch (error) {
    fail(error);
    throw error;
  }
}

/** A number with its sign, as text. */
function signed(value, digits = 2) { return withSign(value, (size) => size.toFixed(digits)); }

/** A number with its sign and as many digits that count. */
function rounded(value, digits = 3) { return withSign(value, (size) => String(Number(size.toPrecision(digits)))); }

function withSign(value, inWords) {
  return Number.isFinite(value) ? (value < 0 ? "−" : "+") + inWords(Math.abs(value)) : "–";
}

/** A number with as many digits that count; a whole one, which may be that of a cluster or tick, with all of its digits. */
function shortNumber(value, digits = 4) {
  if (value === null || Number.isNaN(value)) return "n/a";
  return String(Number.isInteger(value) ? value : Number(value.toPrecision(digits))).replace("-", "−").replace("Infinity", "∞");
}

/** A p-value or q. */
function probability(value) {
  if (Number.isNaN(value)) return "n/a";
  return value < 0.001 ? "<0.001" : value.toFixed(3);
}

/** "1 tick", "2 ticks". */
function counted(number, one, many = `${one}s`) { return `${number.toLocaleString("en")} ${number === 1 ? one : many}`; }

/** A row of a name, a bar and a number; the bar goes from `from` to `from + width`, in percent. */
function barRow(kind, name, number, { from = 0, width, colour = "", ...attributes }) {
  const style = `margin-left: ${from}%; width: ${Math.max(0, Math.min(100, width))}%; background: ${colour}`;
  return element(
    "div", { class: `barred ${kind}` }, element("span", {}, name),
    element("div", { class: "bar", ...attributes }, element("i", { style })),
    element("span", { class: "number" }, number),
  );
}

/** Bars side by side, the highest as high as their place; `titleOf` says what a value is. */
function histogram(values, label, titleOf) {
  const most = Math.max(...values) || 1;
  const bar = (value) => element("i", { title: titleOf(value), style: `height: ${(100 * value) / most}%` });
  return element("div", { class: "histogram", role: "img", "aria-label": label }, ...Array.from(values, bar));
}

const VITALS = ["health", "food", "water"];

/** A vital as a bar with its number. */
function vitalBar(name, value) {
  return barRow("vital", name, String(value), {
    width: value, colour: `var(--${name})`, role: "meter", "aria-label": name, "aria-valuemin": "0", "aria-valuemax": "100",
    "aria-valuenow": String(value),
  });
}
