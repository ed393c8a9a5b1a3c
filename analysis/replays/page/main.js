/* Puts the parts together, and shows the state to consoles and tests. */

/** What `window.replay` offers: numbers and copies, nothing that could change the view. */
function publicState(state, map) {
  const { data } = state;
  const { players, npcs, facts } = data;
  const ofAll = ["row", "col", "health", "level", "damage", "target"];
  const ofPlayers = ["food", "water", "gold", "kills", "inflicted", "received", "frozen"];
  const values = (group, index, names) => Object.fromEntries(
    names.map((name) => [name, group.at(name, index, state.tick)]),
  );
  const common = (group, index) => ({
    id: group.ids[index], name: group.names[index], alive: group.alive(index, state.tick),
    ...values(group, index, ofAll),
  });
  const there = (group) => group.indices.filter((index) => group.present(index, state.tick));
  const player = (index) => ({
    ...common(players, index),
    policy: data.policyOf(index).name,
    ...values(players, index, ofPlayers),
    skills: Object.fromEntries(facts.skills.map((skill) => [skill, {
      level: players.at(`level.${skill}`, index, state.tick), experience: players.at(`experience.${skill}`, index, state.tick),
    }])),
    inventory: structuredClone(data.tables.inventories[players.at("inventory", index, state.tick)]),
    ...state.colouring(index),
  });
  return Object.freeze({
    get tick() { return state.tick; },
    get ticks() { return data.ticks; },
    get playing() { return state.playing; },
    get following() { return state.followed === null ? null : players.ids[state.followed]; },
    get colourBy() { return state.colourBy; },
    /** Agents that are in this tick's packet, the dead of this tick among them. */
    get agents() { return there(players).map(player); },
    get npcs() { return there(npcs).map((index) => ({ ...common(npcs, index), kind: data.npcKind(index).name })); },
    /** What is seen on each tile, a list of rows of material names. */
    get materials() {
      map.moveTiles();
      return Array.from({ length: data.rows }, (_, row) => Array.from(
        { length: data.cols }, (_, col) => facts.materials[map.clock.material(row * data.cols + col)].name,
      ));
    },
    get events() {
      return state.events.map((event) => ({
        tick: event.tick, kind: event.kind, agent: players.ids[event.player], other: event.other, text: data.describe(event),
      }));
    },
    /** Middle of an agent on the map's canvas, in CSS pixels. */
    place(id) {
      const entity = map.shown.find(({ group, index }) => group.ids[index] === id);
      return entity ? { x: entity.x, y: entity.y } : null;
    },
  });
}

async function start() {
  const state = new ViewState(await ReplayData.load());
  const map = new MapView(state);
  const timeline = new Timeline(state);
  const list = new AgentList(state);
  const panels = [new Controls(state, map), new AgentPanel(state), list, new Legend(state)];
  state.on(["followed"], () => {
    if (state.followed !== null) {
      map.approach();
      list.rows[state.followed].item.scrollIntoView({ block: "nearest" });
    }
    byId("legend").open = state.followed === null;
  });
  if (state.data.facts.clusters) state.set("colourBy", "cluster");
  drawOnChange(state, [map, timeline], panels);
  window.replay = publicState(state, map);
}

begin(start, failing("its replay", "render the replay again"));
