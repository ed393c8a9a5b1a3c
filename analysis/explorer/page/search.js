/* The search box: features to colour by, clusters, lives, and points by what was done or happened there. */

const MOST_MATCHES = 12;
const COMPARISONS = {
  "<": (one, other) => one < other, "<=": (one, other) => one <= other, ">": (one, other) => one > other,
  ">=": (one, other) => one >= other, "=": (one, other) => one === other,
};

class SearchBox {
  constructor(state) {
    this.state = state;
    this.input = byId("find");
    this.list = byId("matches");
    this.input.addEventListener("input", () => this.draw());
    this.input.addEventListener("focus", () => this.draw());
    this.input.addEventListener("keydown", ({ key }) => {
      if (key === "Enter") this.list.querySelector("button")?.click();
    });
    listenTo("search", "keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation(); // or the life would be closed too
        this.close();
        this.input.focus();
      }
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], stops = [this.input, ...this.list.querySelectorAll("button")];
      if (!step) return;
      event.preventDefault();
      stops[Math.max(0, Math.min(stops.length - 1, stops.indexOf(document.activeElement) + step))].focus();
    });
    document.addEventListener("pointerdown", ({ target }) => { if (!byId("search").contains(target)) this.list.hidden = true; });
  }

  close() {
    this.input.value = "";
    this.draw();
  }

  /** What a text finds, best first. */
  matches(text) {
    const [, time] = text.match(/^\s*agent\b.*\btick\s+(\d+)\s*$/i) ?? [];
    if (time) return this.atTick(wordsOf(text).slice(0, -2), Number(time));
    const words = wordsOf(text), asksForAgent = /^agent \d/.test(words.join(" "));
    const named = this.named().filter((match) => holdsAll(match.text, words));
    const first = named.filter(({ kind, name }) => (asksForAgent && kind === "open") || (name && wordsOf(name).join(" ") === words.join(" ")));
    return [...this.compared(text), ...first, ...this.points(words), ...named.filter((match) => !first.includes(match))];
  }

  /** The lives of an agent that have a tick, as in `agent 15, episode 0, tick 12`. */
  atTick(words, time) {
    const { state } = this, { tables } = state.data;
    return this.lives().filter(({ text }) => holdsAll(text, words)).flatMap((life) => {
      const { start, end } = state.data.lifeOf(life.tick), at = tables.tick.subarray(start, end).indexOf(time);
      return at < 0 ? [] : [{ kind: "open", text: `${life.text}, tick ${time}`, act: () => state.set("tick", start + at) }];
    });
  }

  /** Select the points that a text finds, if it finds any. */
  select(text) { this.matches(text).find(({ kind }) => kind === "select")?.act(); }

  draw() {
    this.list.hidden = !wordsOf(this.input.value).length;
    if (this.list.hidden) return;
    const matches = this.matches(this.input.value);
    const more = matches.length - MOST_MATCHES;
    this.list.replaceChildren(
      ...matches.slice(0, MOST_MATCHES).map(({ kind, text, act }) => element("li", {}, element(
        "button", { type: "button", onclick: () => { act(); this.close(); this.input.blur(); } }, element("span", { class: "dim" }, kind), ` ${text}`,
      ))),
      ...(more > 0 ? [element("li", { class: "note" }, `and ${more.toLocaleString("en")} more: type another word`)] : []),
      ...(matches.length ? [] : [element("li", { class: "note" }, "nothing: try a feature, a cluster, an action, food < 10, or agent 15")]),
    );
  }

  /** Everything that has a name, and what picking it does. */
  named() {
    const { state } = this, { data } = state, { tables } = data;
    const colours = { feature: data.features, category: data.facts.categories, track: data.tracks };
    const by = (what) => ({ name, definition, run }, i) => ({
      kind: "colour by", name, text: `${name}: ${definition}${run ? ` (${run})` : ""}`, act: () => state.colour(`${what}.${i}`),
    });
    return [
      ...Object.entries(colours).flatMap(([what, some]) => some.map(by(what))),
      ...[...data.facts.clusters, data.facts.noise].map(({ label, description = `points in no ${data.facts.word}` }) => ({
        kind: "select", name: data.nameOf(label), text: `${state.called(label)}: ${description}`, act: () => state.selectCluster(label),
      })),
      ...data.maps.flatMap((map) => this.mapped(map)),
      ...(state.simulated?.lives ?? []).map(({ begin }) => ({
        kind: "open", text: `simulated life: agent ${tables.agent[begin]}, episode ${tables.episode[begin]}, from tick ${tables.tick[begin]}`,
        act: () => state.set("tick", begin),
      })),
      ...Array.from(document.querySelectorAll("#colour-by > option"), ({ text, value }) => ({
        kind: "colour by", name: text, text, act: () => state.colour(value),
      })),
      ...Array.from(document.querySelectorAll("#edits article"), (edit) => ({
        kind: "show", text: `edit in play: ${edit.querySelector("h3").textContent}`,
        act: () => { edit.closest("details").open = true; edit.scrollIntoView({ block: "nearest" }); },
      })),
      ...this.lives(),
    ];
  }

  lives() {
    const { state } = this, { tables, lifeStart } = state.data;
    return Array.from(lifeStart.subarray(0, -1), (tick) => ({
      kind: "open", tick, text: `agent ${tables.agent[tick]}, episode ${tables.episode[tick]}`, act: () => state.set("tick", tick),
    }));
  }

  /** The lives in which a run of saliency.py has maps, each from its first map on. */
  mapped({ of, run, numberAt }) {
    const { state } = this, { data } = state, { tables } = data;
    const first = new Map();
    for (const tick of numberAt.keys()) {
      const { start } = data.lifeOf(tick);
      if (!first.has(start)) first.set(start, tick);
    }
    return Array.from(first.values(), (tick) => ({
      kind: "open", text: `saliency map of ${of}: agent ${tables.agent[tick]}, episode ${tables.episode[tick]} (${run})`, act: () => state.set("tick", tick),
    }));
  }

  /** The points at which a feature, or a number of a further run, compares so with a number, as in `food < 10`. */
  compared(text) {
    const [, wanted, comparison, number] = text.toLowerCase().match(/^\s*(\w+)\s*(<=|>=|<|>|=)=?\s*(-?[\d.]+)\s*$/) ?? [];
    const { data } = this.state, limit = Number(number);
    const isWanted = ({ name }) => [wanted, `self_${wanted}`].includes(name.toLowerCase());
    const feature = data.features.find(isWanted), track = data.tracks.find(isWanted);
    if (!feature && !track) return [];
    const values = feature?.values ?? data.trackedAtPoints(track), fits = (point) => COMPARISONS[comparison](values[point], limit);
    const asked = `${wanted} ${comparison} ${limit}`;
    return this.fitting(fits, `with ${asked}`, [(feature ?? track).name], asked);
  }

  /** The points at which what was done, or one thing that happened, holds all words. */
  points(words) {
    const { data } = this.state, { tables } = data;
    const done = tables.phrases.map((text) => holdsAll(text, words));
    const happened = new Set();
    tables["event.words"].forEach((text, i) => { if (holdsAll(tables.events[text], words)) happened.add(tables["event.tick"][i]); });
    const fits = (point) => done[tables.words[tables["point.tick"][point]]] || happened.has(tables["point.tick"][point]);
    const by = data.features.filter(({ name }) => holdsAll(name, words)).map(({ name }) => name);
    return this.fitting(fits, `with “${words.join(" ")}” in actions or events`, by, words.join(" "));
  }

  /** What selects the points that fit, if any does; `by` and `words` as `selectPoints` takes them. */
  fitting(fits, which, by, words) {
    const count = this.state.data.tables["point.tick"].reduce((sum, _, point) => sum + fits(point), 0);
    const act = () => this.state.selectPoints(fits, `points ${which}`, by, words);
    return count ? [{ kind: "select", text: `${counted(count, "point")} ${which}`, act }] : [];
  }
}

function wordsOf(text) { return text.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean); }

/** Whether each word begins a word of the text; numbers must be whole. */
function holdsAll(text, words) {
  const own = wordsOf(text);
  return words.every((word) => own.some((other) => (/^\d+$/.test(word) ? other === word : other.startsWith(word))));
}
