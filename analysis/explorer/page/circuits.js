/* The graph of a circuit: boxes from what is read to the logits, and lines as wide as their share of the read-out. */

const BOX_ROW = 36, BOX_HEIGHT = 27, HEADING = 16; // CSS pixels
const WIDEST_LINE = 12; // CSS pixels, of a line that is all of the read-out
const SHORTEST_NAMES = 78; // CSS pixels of a box, below which names are cut

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

class Circuits {
  constructor(facts) {
    this.facts = facts;
    this.number = 0;
    this.svg = byId("circuit-graph");
    listenTo("of-direction", "change", ({ target }) => { this.number = Number(target.value); this.resize(); });
    new ResizeObserver(() => this.resize()).observe(this.svg.parentElement);
  }

  get graph() { return this.facts.circuits[this.number]; }

  resize() {
    const { graph } = this, columns = this.facts.circuitColumns;
    this.width = this.svg.parentElement.clientWidth;
    if (!this.width) return; // put away
    this.height = HEADING + BOX_ROW * Math.max(...graph.boxes.map((column) => column.length));
    this.step = this.width / columns.length;
    this.boxWidth = Math.min(110, this.step - 14);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.svg.setAttribute("height", this.height);
    this.svg.setAttribute("aria-label", `Circuit of ${graph.direction}`);
    const headings = columns.map((name, i) => drawn("text", { x: this.x(i), y: 10, class: "heading" }, name));
    this.lines = graph.lines.map((line) => this.line(line));
    const boxes = graph.boxes.flatMap((column, i) => column.map((box, row) => this.box(box, i, row)));
    this.svg.replaceChildren(...headings, ...this.lines, ...boxes);
    this.tell(null);
  }

  x(column) { return (column + 0.5) * this.step; }

  y(column, row) { return HEADING + (this.height - HEADING) * (row + 0.5) / this.graph.boxes[column].length; }

  line({ column, start, end, share }) {
    const row = (i, name) => this.graph.boxes[i].findIndex((box) => box.name === name);
    const [x, to] = [this.x(column) + this.boxWidth / 2, this.x(column + 1) - this.boxWidth / 2], middle = (x + to) / 2;
    const [y, toY] = [this.y(column, row(column, start)), this.y(column + 1, row(column + 1, end))];
    return drawn("path", {
      d: `M${x} ${y}C${middle} ${y} ${middle} ${toY} ${to} ${toY}`, class: share > 0 ? "up" : "down",
      "stroke-width": Math.max(0.7, WIDEST_LINE * Math.min(1, Math.abs(share))),
    });
  }

  box(box, column, row) {
    const [x, y] = [this.x(column), this.y(column, row)], letters = Math.floor(this.boxWidth / 5.2);
    const name = this.boxWidth < SHORTEST_NAMES && box.name.length > letters ? `${box.name.slice(0, letters - 1)}…` : box.name;
    const number = box.value === null ? [] : [drawn("text", { x, y: y + 9 }, box.random === null ? box.value.toFixed(2) : signed(box.value))];
    const made = drawn(
      "g", { tabindex: 0, role: "img", "aria-label": this.describe(box, column) },
      drawn("rect", { x: x - this.boxWidth / 2, y: y - BOX_HEIGHT / 2, width: this.boxWidth, height: BOX_HEIGHT, rx: 4 }),
      drawn("text", { x, y: y + (number.length ? -2 : 3) }, name), ...number,
    );
    for (const event of ["mouseenter", "focus"]) made.addEventListener(event, () => this.tell(box, column));
    for (const event of ["mouseleave", "blur"]) made.addEventListener(event, () => this.tell(null));
    return made;
  }

  describe({ name, value, low, high, random }, column) {
    if (value === null) return `${name}: ${this.graph.direction} after ${counted(this.graph.ticks, "tick")}`;
    const digits = random === null ? (number) => number.toFixed(2) : signed;
    const interval = low === null ? "" : ` (${digits(low)} to ${digits(high)} over lives)`;
    if (random !== null) {
      return `${name}: the logit moves by ${digits(value)}${interval} along with a standard deviation of the read-out, `
        + `by ${random.toFixed(2)} as far along random directions`;
    }
    const ends = this.graph.lines.filter((line) => line.column === column && line.start === name && column < 2)
      .sort((one, two) => Math.abs(two.share) - Math.abs(one.share)).map(({ end, share }) => `${end} ${share.toFixed(2)}`);
    return `${name}: ${digits(value)}${interval} of the read-out's variance${ends.length ? `; to ${ends.join(", ")}` : ""}`;
  }

  /** Say what a box holds, and let only its lines stand out. */
  tell(box, column) {
    const { graph } = this;
    byId("circuit-text").textContent = box ? this.describe(box, column)
      : `${graph.layer} after ${counted(graph.ticks, "tick")} of ${graph.lives} lives. Shares of the read-out's variance; `
        + "red works against the others. Point at a box.";
    graph.lines.forEach(({ column: from, start, end }, i) => {
      const own = !box || (from === column && start === box.name) || (from + 1 === column && end === box.name);
      this.lines[i].classList.toggle("pale", !own);
    });
  }
}
