/* The quantity that colours stand for, as a card: how it is spread, what it goes with, and where it is greatest; and edits of
   the memory in the running game: what was done to it. */

const BINS = 40;
const SHOWN = 6; // points at either end, of as many lives
const GOES_WITH = 5; // features, and as many numbers of further runs
const UPPER_SHARE = 0.05; // of the points

class QuantityCard {
  constructor(state, embedding) {
    this.state = state;
    this.embedding = embedding;
    this.section = byId("quantity");
    this.draw();
    state.on(["colourBy", "overlay", "names"], () => this.draw());
  }

  draw() {
    const quantity = this.embedding.quantity();
    this.section.hidden = !quantity;
    if (!quantity) return;
    const { data } = this.state, values = Float64Array.from(this.embedding.values());
    const sorted = Float64Array.from(values).sort(), upper = sorted[Math.floor((1 - UPPER_SHARE) * sorted.length)];
    const isGreat = (point) => values[point] >= upper && values[point] > sorted[0];
    const great = values.reduce((count, _, point) => count + isGreat(point), 0); // none where all are equal
    const extremes = [["Greatest", this.ordered(values, -1)], ["Least", this.ordered(values, 1)]];
    byId("quantity-name").textContent = quantity.name;
    byId("quantity-body").replaceChildren(
      element("p", { class: "dim" }, quantity.definition ?? ""),
      ...(values.every((value) => value === 0 || value === 1) ? this.share(values) : this.spread(values, quantity.unit)),
      element("p", { class: "note" }, "Goes with (r over all points, not tested):"),
      element("dl", {}, ...this.goesWith(quantity, values).flatMap(([name, r]) => [element("dt", {}, name), element("dd", {}, signed(r))])),
      ...extremes.flatMap(([end, points]) => [
        element("p", { class: "note" }, `${end} in these lives:`),
        stripOfViews(this.state, end, points.map((point) => data.tables["point.tick"][point])),
      ]),
      ...(great ? [element(
        "button", { type: "button", onclick: () => this.state.selectPoints(isGreat, `greatest ${quantity.name}`, [quantity.name]) },
        `Select the greatest ${counted(great, "point")}`,
      )] : []),
      ...editsOf(this.state.colourBy),
    );
  }

  /** Of what is 0 or 1, how often it is 1. */
  share(values) {
    const share = sumOf(values) / values.length;
    return [element("p", {}, `1 at ${(100 * share).toFixed(1)}% of the points, 0 at the others`)];
  }

  /** A histogram; of numbers that are mostly 0, of those that are not. */
  spread(values, unit) {
    const active = values.filter((value) => value !== 0), idle = values.length - active.length;
    const mostlyIdle = idle > values.length / 2 && active.length > 0, shown = mostlyIdle ? active : values;
    const [low, high] = ends(shown);
    const counts = new Array(BINS).fill(0);
    for (const value of shown) counts[Math.min(BINS - 1, Math.floor(((value - low) / (high - low || 1)) * BINS))] += 1;
    const range = `${shortNumber(low, 3)} to ${shortNumber(high, 3)}${unit ? ` ${unit}` : ""}`;
    return [
      histogram(counts, `Histogram, ${range}`, (count) => counted(count, "point")),
      element("p", { class: "note" }, range + (mostlyIdle ? `; 0 at ${((100 * idle) / values.length).toFixed(1)}% of the points, which the histogram leaves out` : "")),
    ];
  }

  /** The features with the largest correlations, then the numbers of further runs: [[name, r]]. */
  goesWith(quantity, values) {
    const { data } = this.state;
    return [data.features, data.numbersOfTracks()].flatMap((some) => {
      const others = some.filter(({ name }) => name !== quantity.name);
      const pairs = others.map(({ name, values: other }) => [name, correlation(values, other)]).filter(([, r]) => Number.isFinite(r));
      return pairs.sort(([, one], [, other]) => Math.abs(other) - Math.abs(one)).slice(0, GOES_WITH);
    });
  }

  /** The points with the least values, or with the greatest where `sign` is -1, one a life. */
  ordered(values, sign) {
    const { data } = this.state, ofLives = new Map();
    const order = Int32Array.from(values, (_, point) => point).sort((one, other) => sign * (values[one] - values[other]));
    for (const point of order) {
      const { start } = data.lifeOf(data.tables["point.tick"][point]);
      if (!ofLives.has(start)) ofLives.set(start, point);
      if (ofLives.size === SHOWN) break;
    }
    return [...ofLives.values()];
  }
}

/** The edits of what colours stand for, as elements. */
function editsOf(colourBy) {
  const number = colourBy.match(/^track\.(\d+)$/)?.[1];
  const own = Array.from(document.querySelectorAll("#edits article")).filter(({ dataset }) => dataset.tracks.split(" ").includes(number));
  return own.length ? [element("p", { class: "note" }, "Edited in play:"), ...own.map((edit) => edit.cloneNode(true))] : [];
}

/** The page of an intervention at a dose, over this one; it may run its own scripts, and reach nothing of this page. */
function showFilm(name, page, dose) {
  const frame = element("iframe", { title: `Twins of ${name}`, sandbox: "allow-scripts", name: `dose ${JSON.parse(dose)}`, srcdoc: page });
  const closed = new AbortController();
  const dialog = element("dialog", { class: "film", onclose: () => { closed.abort(); dialog.remove(); } },
    element("div", { class: "row" }, element("h2", {}, name), element("button", { type: "button", onclick: () => dialog.close() }, "Close")), frame);
  // A key that is pressed in the frame is not heard here, so the page in it says so.
  window.addEventListener("message", ({ source, data }) => { if (source === frame.contentWindow && data === "Escape") dialog.close(); }, { signal: closed.signal });
  document.body.append(dialog);
  dialog.showModal();
}

/** Pearson's r; NaN where a value is missing or one of them does not vary. */
function correlation(one, other) {
  const [ofOne, ofOther] = [one, other].map((values) => sumOf(values) / values.length);
  let [product, squares, otherSquares] = [0, 0, 0];
  for (let i = 0; i < one.length; i++) {
    const [a, b] = [one[i] - ofOne, other[i] - ofOther];
    product += a * b;
    squares += a * a;
    otherSquares += b * b;
  }
  return product / Math.sqrt(squares * otherSquares);
}
