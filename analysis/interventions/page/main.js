/* Puts the parts together, and shows the state to consoles and tests. */

/** What `window.compared` offers: numbers and copies, nothing that could change the view. */
function publicState(state, views) {
  const { players } = state.data;
  const view = (side) => views[SIDES.indexOf(side)];
  return Object.freeze({
    get tick() { return state.tick; },
    get ticks() { return state.data.ticks; },
    get playing() { return state.playing; },
    get dose() { return state.film.dose; },
    get following() { return state.followed === null ? null : players.ids[state.followed]; },
    /** Agents and NPCs that are on a map, by id, with the middle of each on its canvas in CSS pixels. */
    shown(side) {
      return view(side).shown.map(({ group, index, x, y, alive }) => ({
        id: group.ids[index], x, y, alive,
        row: group.at("row", index, state.tick), col: group.at("col", index, state.tick),
      }));
    },
  });
}

const unreadable = failing("its replays", "run intervene.py report again");

async function start() {
  const facts = factsIn("compared-facts");
  const [unedited, edited] = await Promise.all(["unedited", `edited-${facts.shown}`].map((name) => ReplayData.load(name)));
  const state = new ComparedState(facts, { unedited, edited });
  const views = SIDES.map((side) => new ArmView(state, side));
  byId("legend").append(...mapLegend(state.data.facts));
  const panels = [new ComparedControls(state, views), new ArmHeadings(state), new AgentTable(state)];
  state.on(["pointer"], () => {
    state.set("hovered", views.map((view) => view.hoveredPlayer()).find((player) => player !== null) ?? null);
  });
  drawOnChange(state, views, panels);
  const wanted = facts.films.findIndex(({ dose }) => window.name === `dose ${dose}`); // of a page that shows this one
  if (wanted >= 0) {
    state.choose(wanted).catch(unreadable);
    byId("replays").scrollIntoView();
  }
  window.compared = publicState(state, views);
}

begin(start, unreadable);
