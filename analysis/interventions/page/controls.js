"use strict";

/* Buttons, the slider and the keyboard of both replays. */

class ComparedControls {
  constructor(state, views) {
    this.state = state;
    this.views = views;
    this.play = document.getElementById("play");
    this.slider = document.getElementById("slider");
    this.clock = document.getElementById("clock");
    this.speed = document.getElementById("speed");
    this.onlyDrawn = document.getElementById("only-drawn");
    this.listen();
  }

  listen() {
    const { state } = this;
    const onClick = {
      "play": () => state.setPlaying(!state.playing),
      "back": () => this.step(-1),
      "forward": () => this.step(1),
      "to-difference": () => this.toDifference(),
      "show-paths": () => this.showPaths(),
      "zoom-in": () => this.views[0].zoom(1.4),
      "zoom-out": () => this.views[0].zoom(1 / 1.4),
      "zoom-fit": () => this.views[0].fit(),
    };
    for (const [id, action] of Object.entries(onClick)) document.getElementById(id).addEventListener("click", action);
    document.getElementById("to-difference").hidden = state.facts.firstTick === null;
    this.slider.addEventListener("input", () => this.seek(Number(this.slider.value)));
    this.speed.addEventListener("change", () => state.setSpeed(Number(this.speed.value)));
    this.onlyDrawn.addEventListener("change", () => state.setOnlyDrawn(this.onlyDrawn.checked));
    document.addEventListener("keydown", (event) => this.key(event));
  }

  seek(tick) {
    this.state.setPlaying(false);
    this.state.seek(tick);
  }

  step(ticks) { this.seek(this.state.tick + ticks); }

  toDifference() {
    if (this.state.facts.firstTick !== null) this.seek(this.state.facts.firstTick);
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

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { target, key } = event;
    if (target.matches("select") && key !== "Escape") return;
    if (key === " " && target.matches("button, summary, input[type=checkbox]")) return;
    const action = this.keyAction(event);
    if (!action) return;
    event.preventDefault();
    action();
  }

  keyAction({ key, shiftKey }) {
    const { state } = this;
    const stride = shiftKey ? 10 : 1;
    return {
      " ": () => state.setPlaying(!state.playing),
      "ArrowLeft": () => this.step(-stride),
      "ArrowRight": () => this.step(stride),
      "Home": () => this.seek(0),
      "End": () => this.seek(state.data.ticks - 1),
      "d": () => this.toDifference(),
      "e": () => state.setOnlyDrawn(!state.onlyDrawn),
      "+": () => this.views[0].zoom(1.4),
      "=": () => this.views[0].zoom(1.4),
      "-": () => this.views[0].zoom(1 / 1.4),
      "0": () => this.views[0].fit(),
      "Escape": () => state.follow(null),
    }[key.length === 1 ? key.toLowerCase() : key];
  }

  draw() {
    const { tick, playing, data, onlyDrawn } = this.state;
    this.slider.value = String(tick);
    this.clock.textContent = `tick ${tick.toLocaleString("en")} of ${(data.ticks - 1).toLocaleString("en")}`;
    this.play.textContent = playing ? "❚❚" : "▶";
    this.play.setAttribute("aria-label", playing ? "Pause" : "Play");
    this.onlyDrawn.checked = onlyDrawn;
  }
}
