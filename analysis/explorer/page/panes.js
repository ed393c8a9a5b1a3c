/* What can be put away to make room. */

const PANES = {
  map: "embedding", "looked-at": "pointer and selection", clusters: "clusters", motion: "what moves what", "life-views": "views of the life",
  simulated: "simulated lives", world: "world", "life-times": "time line",
};
const AWAY = { explorer: [], panel: ["looked-at", "world"] }; // at first, by layout
const HOLDERS = { aside: ["looked-at", "clusters"], "#life-here": ["life-views", "simulated", "world"] };

class Panes {
  constructor(state) {
    this.state = state;
    const there = Object.entries({ ...PANES, clusters: `${state.data.facts.word}s` }).filter(([id]) => byId(id));
    this.boxes = there.map(([id, name]) => {
      const box = element("input", { type: "checkbox", value: id, onchange: () => this.choose() });
      byId("pane-list").append(element("label", {}, box, ` ${name}`));
      return box;
    });
    const menu = byId("panes");
    document.addEventListener("pointerdown", ({ target }) => { if (!menu.contains(target)) menu.open = false; });
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !menu.open) return;
      event.stopPropagation(); // or the life would be closed too
      menu.open = false;
      menu.querySelector("summary").focus();
    });
    this.draw();
    listenTo("layout", "change", ({ target }) => { // with the panes that it shows at first
      state.away = AWAY[target.value];
      state.set("layout", target.value);
    });
    state.on(["away", "layout"], () => this.draw());
    state.on(["selection"], () => { if (state.selection) state.set("away", state.away.filter((id) => id !== "looked-at")); });
    state.on(["tick"], () => { // without a life, the embedding is all there is to go on from
      if (state.tick === null) state.set("away", state.away.filter((id) => id !== "map"));
    });
  }


  choose() { this.state.set("away", this.boxes.filter(({ checked }) => !checked).map(({ value }) => value)); }

  draw() {
    const { away, layout } = this.state;
    document.body.dataset.layout = layout;
    for (const box of this.boxes) {
      box.checked = !away.includes(box.value);
      byId(box.value).hidden = !box.checked;
    }
    for (const [holder, panes] of Object.entries(HOLDERS)) {
      document.querySelector(holder).hidden = panes.every((id) => away.includes(id) || !byId(id));
    }
  }
}
