/* What the page has besides buttons and keys that move both replays: doses, the first difference, paths, the edited agents alone. */

class ComparedControls {
  constructor(state, views) {
    this.state = state;
    this.onlyDrawn = byId("only-drawn");
    this.dose = byId("dose"); // null where there is one dose only
    this.transport = new Transport(state, { slider: "slider", keys: this.keys(views[0]) });
    listenTo("to-difference", "click", () => this.toDifference());
    listenTo("show-paths", "click", () => this.showPaths());
    this.dose?.addEventListener("input", () => this.choose(Number(this.dose.value)));
    state.on(["chosen"], () => this.drawDose());
    this.drawDose();
    this.onlyDrawn.addEventListener("change", () => state.set("onlyDrawn", this.onlyDrawn.checked));
  }

  keys(view) {
    const { state } = this;
    return {
      ...zoomKeys(view),
      "d": () => this.toDifference(),
      "e": () => state.set("onlyDrawn", !state.onlyDrawn),
      "[": () => this.choose(state.chosen - 1),
      "]": () => this.choose(state.chosen + 1),
      "Escape": () => (state.followed === null ? window.parent.postMessage("Escape", "*") : state.follow(null)), // to a page around this one
    };
  }

  choose(number) {
    if (number in this.state.facts.films) this.state.choose(number).catch(unreadable);
  }

  toDifference() {
    const { firstTick } = this.state.film;
    if (firstTick !== null) this.transport.move(firstTick);
  }

  /** Zoom to all places where the chosen agent is in either arm. */
  showPaths() {
    const { state } = this, { followed } = state;
    const of = (property) => Object.values(state.replays).flatMap(({ players, ticks }) => range(0, ticks)
      .filter((tick) => players.present(followed, tick)).map((tick) => players.at(property, followed, tick)));
    const { smallest } = state.camera;
    state.camera.fitted = false;
    state.camera.fit(boxAround(of("row"), of("col"), 3));
    state.camera.smallest = smallest;
    state.changed("view");
  }

  draw() {
    this.transport.draw();
    this.onlyDrawn.checked = this.state.onlyDrawn;
  }

  drawDose() {
    const { film, chosen } = this.state;
    const marks = film.firstTick === null ? [] : [element("option", { value: String(film.firstTick) })];
    byId("difference-text").textContent = film.difference;
    byId("difference-mark").replaceChildren(...marks);
    byId("to-difference").hidden = film.firstTick === null;
    if (!this.dose) return;
    this.dose.value = String(chosen);
    byId("dose-value").textContent = rounded(film.dose, 6); // as the arm is called
    this.dose.setAttribute("aria-valuetext", rounded(film.dose, 6)); // its own value is the dose's number
  }
}
