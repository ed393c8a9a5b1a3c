/* The clusters: what the analysis says of each, and what people call it; kept in the browser, exported, imported.
   Files are imported here, of labels and of selections. */

const LABELS_KIND = "labels of clusters";

class ClusterPanel {
  constructor(state, selection) {
    this.state = state;
    this.selection = selection;
    this.facts = state.data.facts;
    this.message = byId("labels-message");
    this.inputs = new Map();
    byId("cluster-list").append(...this.facts.clusters.map((cluster) => this.item(cluster)), this.noise());
    listenTo("export-labels", "click", () => (
      saveFile(this.facts, "labels", { kind: LABELS_KIND, labelsKey: this.facts.labelsKey, labels: this.state.names })
    ));
    const file = byId("import-file");
    file.addEventListener("change", async () => {
      if (file.files.length) this.importFile(await file.files[0].text());
      file.value = "";
    });
    this.restore();
  }

  item(cluster) {
    const input = element("input", {
      type: "text", maxlength: "200", placeholder: "your label", "aria-label": `Label of ${this.state.data.nameOf(cluster.label)}`,
      onchange: () => this.take({ ...this.state.names, [cluster.label]: input.value.trim() }),
    });
    this.inputs.set(cluster.label, input);
    return element(
      "li", { "data-cluster": String(cluster.label) },
      this.head(cluster, this.state.data.nameOf(cluster.label), `records, ${(100 * cluster.share).toFixed(1)}%`),
      element("p", { class: "dim" }, cluster.description),
      cluster.compared ? element("p", { class: "dim" }, `Differences that survive: ${cluster.surviving}; given tick and age: ${cluster.survivingGivenTime}`) : null,
      input,
    );
  }

  noise() {
    const { noise, word } = this.facts;
    if (!noise.records) return "";
    return element("li", {}, this.head({ ...noise, symbol: "circle" }, noise.name, `records in no ${word}`));
  }

  head(group, name, records) {
    return element(
      "div", { class: "row" }, swatchOf(group), element("b", {}, name),
      element("span", { class: "dim" }, `${group.records.toLocaleString("en")} ${records}`),
      element("button", { type: "button", onclick: () => this.select(group.label) }, "Select"),
    );
  }

  select(label) {
    this.state.selectCluster(label);
    const list = byId("cluster-list"), item = list.querySelector(`[data-cluster="${label}"]`);
    if (item) list.scrollTop += item.getBoundingClientRect().top - list.getBoundingClientRect().top;
  }

  // ---- labels of people

  /** Take labels, and keep them. Pages opened from disk may have no storage: then the page says that it does not. */
  take(names) {
    for (const [label, input] of this.inputs) input.value = names[label] ?? "";
    this.state.set("names", Object.fromEntries(Object.entries(names).filter(([, text]) => text)));
    try {
      localStorage.setItem(this.storageKey(), JSON.stringify(this.state.names));
      this.say("");
    } catch {
      this.say("This browser keeps nothing for pages opened from disk: export your labels before you close the page.");
    }
  }

  restore() {
    try {
      const kept = localStorage.getItem(this.storageKey());
      if (kept) this.take(checkedNames(JSON.parse(kept), this.inputs));
    } catch {
      this.say("");
    }
  }


  storageKey() { return `explorer labels ${this.facts.labelsKey}`; }

  say(text) { this.message.textContent = text; }


  importFile(text) {
    let content;
    try {
      content = JSON.parse(text);
    } catch {
      this.say("That file is not JSON: choose one that this page has exported.");
      return;
    }
    // Labels are about this page's groups, a selection about the run's points.
    const wantedKey = content?.kind === LABELS_KIND ? this.facts.labelsKey : this.facts.runKey;
    if (content?.kind !== LABELS_KIND && content?.kind !== this.facts.selectionKind) {
      this.say("That file holds no labels of clusters and no selection: choose one that this page has exported or saved.");
    } else if (content.runKey !== this.facts.runKey || (content.labelsKey ?? content.runKey) !== wantedKey) {
      this.say(`That file is of another run (${content.run}): it would name the wrong clusters or points.`);
    } else if (content.kind === this.facts.selectionKind) {
      const missing = this.selection.load(content);
      this.say(missing ? `${counted(missing, "point")} of that selection ${missing === 1 ? "is" : "are"} not in this page.` : "");
    } else {
      this.take(checkedNames(content.labels, this.inputs));
    }
  }
}

/** Only texts, only of clusters that there are. */
function checkedNames(names, clusters) {
  const kept = [...clusters.keys()].filter((label) => typeof names?.[label] === "string" && names[label].trim());
  return Object.fromEntries(kept.map((label) => [label, names[label].trim().slice(0, 200)]));
}

/** A cluster's mark as in the scatter. */
function swatchOf({ colour, symbol }) {
  const shape = { "triangle-up": "triangle", "x": "cross" }[symbol] ?? symbol; // others are circles
  return markCanvas((context) => drawShape(context, shape, 8, 8, 5, colour, "#ffffff"));
}
