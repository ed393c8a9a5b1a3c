/* Time: it plays, pauses, and is moved by buttons, a slider and keys. */

/** A state with ticks from 0 to `last`, which subclasses say; changes of `at` are told as "tick", and less as "fraction". */
class TimedState extends PageState {
  at = 0;
  fraction = 1; // how far things have come from the last tick's place to this one's
  playing = false;
  speed = 5; // ticks a second
  runs = 0;

  get timeInWords() { return `tick ${this.at.toLocaleString("en")} of ${this.last.toLocaleString("en")}`; }

  seek(at) {
    this.at = Math.max(0, Math.min(this.last, Math.round(at)));
    this.fraction = 1;
    this.changed("tick");
  }

  /** Let time pass while playing. */
  advance(seconds) {
    const before = this.at;
    const position = this.at + this.fraction + seconds * this.speed;
    if (position >= this.last + 1) {
      this.at = this.last;
      this.setPlaying(false);
    } else {
      // A tick's own place is reached at its fraction 1, which is the next tick's 0.
      this.at = Math.floor(position);
      this.fraction = position - this.at;
    }
    this.changed(this.at === before ? "fraction" : "tick");
  }

  setPlaying(playing) {
    if (playing === this.playing) return;
    if (playing && this.at === this.last) this.seek(0);
    this.playing = playing;
    if (playing) this.run();
    else this.fraction = 1;
    this.changed("playing");
  }

  run() {
    const mine = ++this.runs; // pausing and playing again within a frame must not make two of them
    let before = performance.now();
    const frame = (now) => {
      if (!this.playing || this.runs !== mine) return;
      this.advance(Math.max(0, Math.min(0.25, (now - before) / 1000)));
      before = now;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }
}

const TYPING = "select, textarea, input[type=search], input[type=text]";
const TAKES_SPACE = "button, summary, input[type=checkbox]";
const TIME_KEYS = { " ": "play", "ArrowLeft": "back", "ArrowRight": "forward", "Home": "to-start", "End": "to-end" };

/** What moves time, as far as the page has it: the buttons play, back, forward, to-start and to-end, the speed, a slider. */
class Transport {
  /**
   * Options: the slider's id; what the clock says, if not the tick; the page's own keys, an act each, which come
   * before those of time and are told whether Shift is held; whether moving by slider and to the ends pauses, as
   * single steps do; whether to ignore a key.
   */
  constructor(state, { slider, clock = () => state.timeInWords, keys = {}, pausing = true, ignored = () => false }) {
    Object.assign(this, { state, slider: byId(slider), clock, keys, pausing, ignored });
    this.acts = {
      "play": () => state.setPlaying(!state.playing),
      "back": (far) => this.step(far ? -10 : -1), "forward": (far) => this.step(far ? 10 : 1),
      "to-start": () => this.move(0), "to-end": () => this.move(state.last),
    };
    for (const [id, act] of Object.entries(this.acts)) listenTo(id, "click", () => act());
    this.slider.addEventListener("input", () => this.move(Number(this.slider.value)));
    listenTo("speed", "change", ({ target }) => state.set("speed", Number(target.value)));
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("change", ({ target }) => { // what was chosen with the mouse gives the keys back to time
      if (target.matches("select, input[type=radio]") && !target.matches(":focus-visible")) target.blur();
    });
  }

  move(at) {
    if (this.pausing) this.state.setPlaying(false);
    this.state.seek(at);
  }

  step(ticks) {
    this.state.setPlaying(false);
    this.state.seek(this.state.at + ticks);
  }

  key(event) {
    const { target, key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || this.ignored(event)) return;
    if (target.matches(TYPING) && key !== "Escape") return;
    // What is focused answers to its own keys: a button or box to the space bar, a slider of something else to arrows.
    if (key === " " && target.matches(TAKES_SPACE)) return;
    if (target !== this.slider && target.matches("input[type=range]") && key.startsWith("Arrow")) return;
    const name = key.length === 1 ? key.toLowerCase() : key;
    const act = this.keys[name] ?? this.acts[TIME_KEYS[name]];
    if (!act) return;
    event.preventDefault();
    act(event.shiftKey);
  }

  draw() {
    const { at, last, playing } = this.state;
    this.slider.max = String(last);
    this.slider.value = String(at);
    this.slider.setAttribute("aria-valuetext", this.clock());
    byId("clock")?.replaceChildren(this.clock());
    byId("play").textContent = playing ? "" : "▶"; // few fonts have a pause sign: the style draws it
    byId("play").setAttribute("aria-label", playing ? "Pause" : "Play");
  }
}
