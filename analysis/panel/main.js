"use strict";

/* Puts the parts together, and shows the state to consoles and tests. */

const ROOM_FOR_MARKS = 900; // CSS pixels

/** What `window.panel` offers: numbers and copies. */
function publicState(state, scatter, lines) {
  const { data } = state, { tables } = data;
  const tickOf = (tick) => ({
    tick: tables.tick[tick], behaviour: data.behaviour(tick), own: tables.own[tick] !== 0, materials: Array.from(data.view(tick)),
    others: data.others(tick), action: data.action(tick), ...data.vitals(tick), value: tables.value?.[tick],
    components: data.facts.components.map((_, k) => data.component(k, tick)),
    probabilities: Object.fromEntries(Object.keys(data.facts.probabilities).map((head) => [head, data.probabilities(head, tick)])),
    maps: data.maps.map((maps) => Array.from({ length: maps.lags + 1 }, (_, later) => maps.at(tick, later))),
  });
  return Object.freeze({
    count: data.count, ticks: data.ticks,
    get rollout() { return state.rollout; },
    get at() { return state.at; },
    get playing() { return state.playing; },
    get behaviour() { return state.behaviour; },
    get component() { return state.component; },
    get neighbours() { return strongest(state); },
    get map() { return state.map; },
    get rowHeight() { return lines.row; },
    shown: () => Array.from({ length: data.count }, (_, i) => i).filter((i) => state.shown(i)),
    of: (rollout) => ({
      simulated: data.source(rollout).simulated, agent: tables["rollout.agent"][rollout], episode: tables["rollout.episode"][rollout],
      main: tables["rollout.main"][rollout], x: tables["rollout.x"][rollout], y: tables["rollout.y"][rollout],
      ticks: Array.from({ length: tables["rollout.ticks"][rollout] }, (_, i) => tickOf(data.starts[rollout] + i)),
    }),
    placeOf: (rollout) => {
      const { left, top } = scatter.canvas.getBoundingClientRect(), { x, y } = scatter.placeOf(rollout);
      return { x: left + x, y: top + y };
    },
    matrices: (behaviour, lag) => {
      const all = Array.from({ length: data.components }, (_, k) => k);
      const table = (value) => all.map((later) => all.map((earlier) => value(behaviour, lag, later, earlier)));
      return { r: table((...at) => data.correlation(...at)), jacobian: table((...at) => data.jacobian(...at)) };
    },
  });
}

const fail = failing("its rollouts", "build it again with panel.py");

/** Unpack what the first picture does not need. */
async function rest(state) {
  try {
    await state.data.unpackAll();
    state.set("whole", true);
    document.body.dataset.whole = String(Math.round(performance.now()));
  } catch (error) {
    fail(error);
  }
}

async function start() {
  const state = new PanelState(await PanelData.load());
  const parts = [new Scatter(state), new Player(state), new Lines(state), new Matrices(state)];
  new BehaviourList(state);
  if (state.data.facts.circuits.length) parts.push(new Circuits(state.data.facts));
  listenTo("colour-by", "change", ({ target }) => state.set("colourBy", target.value));
  listenTo("from", "change", ({ target }) => state.set("from", target.value));
  byId("view-legend").append(...viewLegend(state.data));
  byId("marks").open = window.innerHeight >= ROOM_FOR_MARKS;
  state.rollout = Math.max(0, Array.from({ length: state.data.count }, (_, i) => i).findIndex((i) => state.mapped(i)));
  await state.data.unpack(state.rollout);
  byId("loading").hidden = true;
  const resize = () => parts.forEach((part) => part.resize());
  resize();
  window.addEventListener("resize", resize);
  window.panel = publicState(state, parts[0], parts[2]);
  requestAnimationFrame(() => requestAnimationFrame(() => { document.body.dataset.drawn = String(Math.round(performance.now())); }));
  setTimeout(rest, 50, state);
}

begin(start, fail);
