/* The points that were selected with the lasso, the box or a cluster's button: how they differ from the rest. */

class SelectionPanel extends Panel {
  constructor(state) {
    super(state);
    this.lives = livesOfPoints(state.data.tables);
    this.panel = byId("selection");
    this.body = byId("selection-body");
    this.run = 0;
    this.rows = this.further = null;
    listenTo("save-selection", "click", () => this.save());
    listenTo("clear-selection", "click", () => state.select(null));
    state.on(["selection"], () => this.update());
  }

  async update() {
    const { selection } = this.state;
    const run = ++this.run;
    this.rows = this.further = null;
    this.panel.hidden = selection === null;
    if (!selection) return;
    const { selectionName } = this.state;
    byId("selection-name").textContent = `${selectionName[0].toUpperCase()}${selectionName.slice(1)} against the rest`;
    byId("looked-at").scrollTop = 0;
    this.body.replaceChildren(this.heading(selection), element("p", { role: "status" }, "Testing…"));
    const rows = await compareSelection(this.data, this.lives, selection, () => run === this.run);
    if (!rows) return;
    this.rows = rows;
    const shown = element("div", { class: "rows", tabindex: "0", role: "group", "aria-label": "Differences" }, this.table(rows));
    this.body.replaceChildren(this.heading(selection), shown);
    const numbers = this.data.numbersOfTracks();
    const further = numbers.length && await compareQuantities(this.data, numbers, this.lives, selection, () => run === this.run);
    if (!further) return;
    this.further = further;
    shown.append(element("p", { class: "note" }, "Numbers of further runs, corrected by themselves and not given time:"), this.table(further));
  }

  save() {
    const { facts, tables } = this.data;
    const records = Array.from(this.state.selection, (point) => tables["point.row"][point]);
    saveFile(facts, "selection", { kind: facts.selectionKind, folder: facts.folder, selected: this.state.selectionName, records });
  }

  /** Select the points that such a file names; returns how many of them are not here. */
  load({ records, selected }) {
    const rows = new Set(Array.isArray(records) ? records : []), { tables } = this.data;
    this.state.selectPoints((point) => rows.has(tables["point.row"][point]), typeof selected === "string" ? selected.slice(0, 200) : "selected points");
    return rows.size - (this.state.selection?.length ?? 0);
  }

  heading(selection) {
    const { tables } = this.data;
    const lives = new Set(Array.from(selection, (point) => this.data.lifeOf(tables["point.tick"][point]).start)).size;
    const share = ((100 * selection.length) / this.data.count).toFixed(1);
    return element("p", {}, element("b", {}, `${counted(selection.length, "point")} (${share}%) of ${counted(lives, "life", "lives")}`));
  }

  /** Strongest effects first; last the features that the points were selected by, which must differ. */
  table(rows) {
    const by = new Set(this.state.selectedBy);
    const sorted = rows.toSorted((one, other) => by.has(one.name) - by.has(other.name) || (Math.abs(other.d) || 0) - (Math.abs(one.d) || 0));
    const heads = [["mean", "mean of the selected points"], ["rest", "mean of all others"],
      ["d", "Cohen's d against all others"], ["p", "test by shifts within lives"], ["q", "p corrected for all features"],
      ["q given time", "the same with tick and age held constant, where q is up to 0.05"]];
    return element(
      "table", {},
      element("thead", {}, element("tr", {}, ...heads.map(([text, title]) => element("th", { title, scope: "col" }, text)))),
      ...sorted.map((row) => this.lines(row)),
    );
  }


  /** A feature's name, and its numbers under it: side by side they would be wider than the panel. */
  lines(row) {
    const [held, needed] = row.informative < FEWEST_LIVES ? [counted(row.informative, "life", "lives"), FEWEST_LIVES]
      : [counted(row.episodes ?? 0, "episode"), FEWEST_EPISODES];
    const untested = Number.isNaN(row.p) ? `only ${held} with information: at least ${needed} are needed` : null;
    const givenTime = row.q <= LEVEL && row.qGivenTime !== undefined ? probability(row.qGivenTime) : "";
    const numbers = [shortNumber(row.mean, 3), shortNumber(row.rest, 3), effectSize(row.d), probability(row.p), probability(row.q), givenTime];
    return element(
      "tbody", { "data-feature": row.name, class: row.qGivenTime <= LEVEL ? "kept" : null, title: untested },
      element("tr", {}, element("th", { scope: "rowgroup", colspan: String(numbers.length) }, row.name,
        ...(this.state.selectedBy.includes(row.name) ? [element("span", { class: "dim" }, " (selected by it)")] : []))),
      element("tr", {}, ...numbers.map((text) => element("td", {}, text))),
    );
  }
}

function effectSize(value) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "n/a" : shortNumber(value);
  const text = Math.abs(value).toFixed(2);
  return (text === "0.00" ? "" : value < 0 ? "−" : "+") + text;
}
