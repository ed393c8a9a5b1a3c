"use strict";

/* What the page has besides buttons and keys that move both replays: the first difference, paths, the edited agents alone. */

class ComparedControls {
  constructor(state, views) {
    this.state = state;
    this.onlyDrawn = byId("only-drawn");
    this.transport = new Transport(state, {
      slider: "slider", keys: this.keys(views[0]),
      clock: () => `tick ${state.tick.toLocaleString("en")} of ${state.last.toLocaleString("en")}`,
    });
    listenTo("to-difference", "click", () => this.toDifference());
    listenTo("show-paths", "click", () => this.showPaths());
    byId("to-difference").hidden = state.facts.firstTick === null;
    this.onlyDrawn.addEventListener("change", () => state.setOnlyDrawn(this.onlyDrawn.checked));
  }

  keys(view) {
    const { state } = this;
    return {
      ...zoomKeys(view),
      "d": () => this.toDifference(),
      "e": () => state.setOnlyDrawn(!state.onlyDrawn),
      "Escape": () => state.follow(null),
    };
  }

  toDifference() {
    if (this.state.facts.firstTick !== null) this.transport.move(this.state.facts.firstTick);
  }

  /** Zoom to all places where the chosen agent is in either arm. */
  showPaths() {
    const { state } = this;
    const bounds = { top: Infinity, left: Infinity, bottom: -Infinity, right: -Infinity };
    for (const side of SIDES) {
      const { players, ticks } = state.replays[side];
      for (let tick = 0; tick < ticks; tick++) {
        if (!players.present(state.followed, tick)) continue;
        const [row, col] = [players.at("row", state.followed, tick), players.at("col", state.followed, tick)];
        bounds.top = Math.min(bounds.top, row - 3);
        bounds.left = Math.min(bounds.left, col - 3);
        bounds.bottom = Math.max(bounds.bottom, row + 4);
        bounds.right = Math.max(bounds.right, col + 4);
      }
    }
    const { smallest } = state.camera;
    state.camera.fitted = false;
    state.camera.fit(bounds);
    state.camera.smallest = smallest;
    state.changed("view");
  }

  draw() {
    this.transport.draw();
    this.onlyDrawn.checked = this.state.onlyDrawn;
  }
}
