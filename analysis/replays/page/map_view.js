/* The canvas with the world: tiles, entities, attacks; zoom, pan, hover, click. */

const CLOSEST = 64; // pixels a tile, at most
const FOLLOWED_TILES = 31; // tiles across the view when an agent is picked
const TRAIL_TICKS = 40;
const RING = [[4.5, "#101214"], [2.2, "#ffd166"]];
const VOID = 0;

/** Where tiles are on the canvas, in CSS pixels. */
class Camera {
  scale = 4; // pixels a tile
  x = 0; // tile at the middle of the view
  y = 0;
  width = 1;
  height = 1;
  smallest = 1;
  fitted = true; // whether the whole map is to be shown, also when the canvas changes its size

  toScreen(row, col) {
    return { x: (col + 0.5 - this.x) * this.scale + this.width / 2, y: (row + 0.5 - this.y) * this.scale + this.height / 2 };
  }

  /** Row and column, with fractions, under a point of the canvas; a tile starts at its whole number. */
  toTile(x, y) {
    return { row: (y - this.height / 2) / this.scale + this.y, col: (x - this.width / 2) / this.scale + this.x };
  }

  /** Zoom so that the tile under a point stays there. */
  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const before = this.toTile(x, y);
    this.scale = Math.max(this.smallest, Math.min(CLOSEST, this.scale * factor));
    const after = this.toTile(x, y);
    this.x += before.col - after.col;
    this.y += before.row - after.row;
  }

  fit({ top, left, bottom, right }) {
    this.scale = Math.min(this.width / (right - left), this.height / (bottom - top));
    this.smallest = this.scale / 2;
    this.x = (left + right) / 2;
    this.y = (top + bottom) / 2;
  }
}

class MapView {
  /** Two views that share a camera show the same place. */
  constructor(state, data = state.data, prefix = "", camera = new Camera()) {
    this.state = state;
    this.canvas = byId(`${prefix}map-canvas`);
    this.context = this.canvas.getContext("2d");
    this.tooltip = byId(`${prefix}tooltip`);
    this.camera = camera;
    this.shown = [];
    this.pointer = null;
    this.show(data);
    const { rows, cols, tables: { tiles } } = data, known = [...tiles.keys()].filter((place) => tiles[place] !== VOID);
    // The part of the map that is not void, with a margin.
    this.bounds = known.length ? boxAround(known.map((place) => Math.floor(place / cols)), known.map((place) => place % cols), 1)
      : { top: 0, left: 0, bottom: rows, right: cols };
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    this.resize();
    this.listen();
  }

  /** Show a replay of the same map: one pixel a tile on a hidden canvas, repainted only where tiles change. */
  show(data) {
    this.data = data;
    this.clock = new TileClock(data);
    this.world = element("canvas", { width: data.cols, height: data.rows });
    this.worldContext = this.world.getContext("2d");
    data.tables.tiles.forEach((_, place) => this.paintTile(place));
    this.moveTiles();
  }

  paintTile(place) {
    this.worldContext.fillStyle = this.data.facts.materials[this.clock.material(place)].colour;
    this.worldContext.fillRect(place % this.data.cols, Math.floor(place / this.data.cols), 1, 1);
  }

  moveTiles() {
    if (this.clock.tick === this.state.tick) return;
    for (const place of this.clock.moveTo(this.state.tick)) this.paintTile(place);
  }

  // ---- where things are

  /** Place of an entity between two ticks; null if it is not there. */
  placeOf(group, index) {
    const { tick, fraction } = this.state;
    if (!group.present(index, tick)) return null;
    const [row, col] = [group.at("row", index, tick), group.at("col", index, tick)];
    if (fraction >= 1 || tick === 0 || !group.alive(index, tick - 1)) return { row, col };
    const part = Math.min(1, fraction * 1.6); // arrive early, and rest
    const [oldRow, oldCol] = [group.at("row", index, tick - 1), group.at("col", index, tick - 1)];
    return { row: oldRow + (row - oldRow) * part, col: oldCol + (col - oldCol) * part };
  }

  /** All entities that are there: [{group, index, x, y, row, col}], those that share a tile side by side. */
  layOut() {
    const shown = [], { tick } = this.state;
    for (const group of [this.data.npcs, this.data.players]) {
      for (const index of group.indices) {
        const place = this.placeOf(group, index);
        if (!place) continue;
        const tile = group.at("row", index, tick) * this.data.cols + group.at("col", index, tick);
        const { x, y } = this.camera.toScreen(place.row, place.col);
        shown.push({ group, index, tile, alive: group.alive(index, tick), x, y });
      }
    }
    for (const entities of Map.groupBy(shown, ({ tile }) => tile).values()) {
      if (entities.length === 1) continue;
      entities.forEach((entity, i) => {
        const angle = (2 * Math.PI * i) / entities.length;
        entity.x += 0.24 * this.camera.scale * Math.cos(angle);
        entity.y += 0.24 * this.camera.scale * Math.sin(angle);
      });
    }
    return shown;
  }

  /** A player, as it is shown on the map; undefined if it is not there. */
  shownPlayer(player) { return this.shown.find(({ group, index }) => group === this.data.players && index === player); }

  /** How large an entity is drawn that is a player. */
  radiusOf() { return this.radius(); }

  labelOf(player) { return this.data.players.names[player]; }

  radius() { return Math.max(4.4, Math.min(0.38 * this.camera.scale, 15)); }

  // ---- drawing

  draw() {
    this.moveTiles();
    if (this.state.centred) this.centre();
    const { camera } = this;
    cleared(this.canvas);
    this.drawTiles();
    this.shown = this.layOut();
    this.drawTrail();
    const visible = this.shown.filter(({ x, y }) => x > -20 && y > -20 && x < camera.width + 20 && y < camera.height + 20);
    this.drawAttacks();
    for (const entity of visible) this.drawEntity(entity);
    this.drawFollowed();
    const { ping, tick } = this.state;
    if (ping?.tick === tick) {
      const { x, y } = camera.toScreen(ping.row, ping.col);
      drawRing(this.context, x, y, this.radius() + 11, RING);
    }
    this.showTooltip();
  }

  drawTiles() {
    const { context, camera } = this;
    const { x, y } = camera.toScreen(-0.5, -0.5);
    context.imageSmoothingEnabled = camera.scale < 1;
    context.drawImage(this.world, x, y, this.data.cols * camera.scale, this.data.rows * camera.scale);
    if (camera.scale < 11) return;
    const from = camera.toTile(0, 0);
    const to = camera.toTile(camera.width, camera.height);
    for (let row = Math.max(0, Math.floor(from.row)); row < Math.min(this.data.rows, to.row); row++) {
      for (let col = Math.max(0, Math.floor(from.col)); col < Math.min(this.data.cols, to.col); col++) {
        this.drawTileMark(row, col);
      }
    }
  }

  /** Up close, a mark on what can be harvested or was. */
  drawTileMark(row, col) {
    const place = row * this.data.cols + col;
    const full = this.data.tables.tiles[place];
    if (this.data.facts.harvested[full] === full) return;
    const { x, y } = this.camera.toScreen(row, col);
    drawTileMark(this.context, this.data.facts.materials[full].name, this.clock.harvested[place] !== 0, x, y, this.camera.scale);
  }

  drawEntity({ group, index, x, y, alive }) {
    const radius = this.radiusOf(group, index);
    const isPlayer = group === this.data.players;
    const look = isPlayer ? this.state.colouring(index) : this.data.npcKind(index);
    if (!alive) {
      drawShape(this.context, "cross", x, y, radius, look.colour, "#101214");
    } else if (isPlayer) {
      drawPlayer(this.context, x, y, radius, look);
      if (this.camera.scale >= 18) this.drawHealth(x, y, radius, group.at("health", index, this.state.tick));
      if (this.camera.scale >= 30) this.drawText(String(group.ids[index]), x, y - radius - 5);
    } else {
      drawNpc(this.context, x, y, Math.max(2.2, Math.min(0.28 * this.camera.scale, 11)), look);
    }
  }

  drawHealth(x, y, radius, health) {
    if (health >= 100) return;
    const width = 2 * radius;
    this.context.fillStyle = "#101214";
    this.context.fillRect(x - radius - 1, y + radius + 2, width + 2, 5);
    this.context.fillStyle = health > 50 ? "#7fce8e" : health > 25 ? "#ffd166" : "#ff6b5e";
    this.context.fillRect(x - radius, y + radius + 3, (width * health) / 100, 3);
  }

  drawText(text, x, y) {
    const { context } = this;
    context.font = "600 11px system-ui, sans-serif";
    context.textAlign = "center";
    const half = context.measureText(text).width / 2 + 3;
    x = Math.max(half, Math.min(this.camera.width - half, x)); // whole, also beside the edge
    context.lineWidth = 3;
    context.strokeStyle = "#101214d0";
    context.strokeText(text, x, y);
    context.fillStyle = "#ffffff";
    context.fillText(text, x, y);
  }

  drawAttacks() {
    const at = new Map(this.shown.map((entity) => [entity.group.ids[entity.index], entity]));
    const scale = Math.max(0.7, Math.min(1.6, this.camera.scale / 14));
    for (const entity of this.shown) {
      const target = at.get(entity.group.at("target", entity.index, this.state.tick));
      if (!target) continue;
      const style = this.data.facts.styles[entity.group.at("style", entity.index, this.state.tick)];
      drawAttack(this.context, entity, target, style, scale, this.radius());
    }
  }

  drawTrail() {
    const { followed, tick } = this.state;
    if (followed === null) return;
    const { players } = this.data;
    this.context.lineWidth = Math.max(1.5, this.camera.scale * 0.09);
    this.context.lineCap = "round";
    for (let back = Math.min(TRAIL_TICKS, tick); back > 0; back--) {
      const [from, to] = [tick - back, tick - back + 1];
      if (!players.present(followed, from) || !players.present(followed, to)) continue;
      const start = this.camera.toScreen(players.at("row", followed, from), players.at("col", followed, from));
      const end = to === tick ? this.shownPlayer(followed)
        : this.camera.toScreen(players.at("row", followed, to), players.at("col", followed, to));
      this.context.globalAlpha = 1 - back / (TRAIL_TICKS + 1);
      this.context.strokeStyle = "#101214";
      this.context.beginPath();
      this.context.moveTo(start.x, start.y);
      this.context.lineTo(end.x, end.y);
      this.context.stroke();
    }
    this.context.globalAlpha = 1;
  }

  drawFollowed() {
    const { followed } = this.state;
    if (followed === null) return;
    const shown = this.shownPlayer(followed), { x, y } = shown ?? this.lastPlace();
    drawRing(this.context, x, y, this.radius() + 4, RING);
    this.drawText(this.labelOf(followed) + (shown ? "" : " (died here)"), x, y - this.radius() - 9);
  }

  /** Where the followed agent was last seen, or first. */
  lastPlace() {
    const { players } = this.data;
    const { followed, tick } = this.state;
    let seen = players.lastSeen(followed, tick);
    if (seen < 0) seen = players.tables.present.subarray(followed * this.data.ticks).indexOf(1);
    return this.camera.toScreen(players.at("row", followed, seen), players.at("col", followed, seen));
  }


  // ---- the view

  resize() {
    if (!this.canvas.clientWidth || !this.canvas.clientHeight) return;
    Object.assign(this.camera, sized(this.canvas));
    if (this.camera.fitted) this.camera.fit(this.bounds);
    this.state.changed("view");
  }

  fit() {
    this.camera.fitted = true;
    this.state.set("centred", false);
    this.camera.fit(this.bounds);
    this.state.changed("view");
  }

  zoom(factor, x, y) {
    this.camera.fitted = false;
    if (this.state.centred) [x, y] = [undefined, undefined];
    this.camera.zoom(factor, x, y);
    this.state.changed("view");
  }

  pan(byX, byY) {
    this.camera.fitted = false;
    this.state.set("centred", false);
    this.camera.x -= byX / this.camera.scale;
    this.camera.y -= byY / this.camera.scale;
    this.state.changed("view");
  }

  /** Come close to an agent that was picked, unless the view is close already. */
  approach() {
    const wanted = Math.min(this.camera.width, this.camera.height) / FOLLOWED_TILES;
    if (this.camera.scale < wanted) this.camera.scale = wanted;
    this.camera.fitted = false;
  }

  centre() {
    const place = this.placeOf(this.data.players, this.state.followed);
    if (!place) return;
    this.camera.x = place.col + 0.5;
    this.camera.y = place.row + 0.5;
  }

  // ---- pointer

  listen() {
    const { canvas } = this;
    const pointers = new Map();
    let moved = 0;
    canvas.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, pointIn(canvas, event));
      moved = 0;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const point = pointIn(canvas, event);
      const before = pointers.get(event.pointerId);
      if (before) {
        const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, other]) => other);
        moved += Math.hypot(point.x - before.x, point.y - before.y);
        if (others.length) {
          const [other] = others, spread = (one) => Math.hypot(one.x - other.x, one.y - other.y); // of a pinch
          if (spread(before) > 0) this.zoom(spread(point) / spread(before), (point.x + other.x) / 2, (point.y + other.y) / 2);
        } else if (moved > 4) this.pan(point.x - before.x, point.y - before.y);
        pointers.set(event.pointerId, point);
        canvas.classList.toggle("dragging", moved > 4);
      }
      this.pointer = point;
      this.state.changed("pointer");
    });
    canvas.addEventListener("lostpointercapture", ({ pointerId }) => {
      pointers.delete(pointerId);
      canvas.classList.remove("dragging");
    });
    canvas.addEventListener("click", (event) => { if (moved <= 4) this.click(pointIn(canvas, event)); });
    canvas.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.state.changed("pointer");
    });
    canvas.addEventListener("wheel", (event) => {
      if (!this.wheelZooms(event)) return;
      event.preventDefault();
      const { x, y } = pointIn(canvas, event);
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      this.zoom(Math.exp(-Math.max(-200, Math.min(200, event.deltaY * lines)) * 0.0022), x, y);
    }, { passive: false });
  }

  wheelZooms() { return true; }


  /** The entity under a point, players first; null if there is none. */
  entityAt({ x, y }) {
    const farOf = (entity) => Math.hypot(entity.x - x, entity.y - y) + (entity.group === this.data.players ? 0 : 4);
    return nearest(this.shown, farOf, this.radius() + 5);
  }

  click(point) {
    const entity = this.entityAt(point);
    if (entity && entity.group === this.data.players) this.state.follow(entity.index);
  }

  showTooltip() {
    const { pointer, tooltip, camera } = this;
    const tile = pointer && camera.toTile(pointer.x, pointer.y);
    const [row, col] = tile ? [Math.floor(tile.row), Math.floor(tile.col)] : [-1, -1];
    const outside = row < 0 || col < 0 || row >= this.data.rows || col >= this.data.cols;
    tooltip.hidden = outside;
    const over = pointer && this.entityAt(pointer);
    this.canvas.classList.toggle("on-agent", Boolean(over && over.group === this.data.players));
    if (outside) return;
    tooltip.textContent = this.tooltipText(row, col, over);
    const { offsetWidth, offsetHeight } = tooltip;
    tooltip.style.left = `${Math.max(4, Math.min(pointer.x + 14, camera.width - offsetWidth - 4))}px`;
    tooltip.style.top = `${pointer.y + 16 + offsetHeight > camera.height ? pointer.y - offsetHeight - 10 : pointer.y + 16}px`;
  }

  tooltipText(row, col, over) {
    const place = row * this.data.cols + col;
    const { materials } = this.data.facts;
    const material = this.clock.material(place);
    const was = this.clock.harvested[place] ? ` (was ${materials[this.data.tables.tiles[place]].name})` : "";
    const standing = this.shown.filter(({ tile }) => tile === place);
    if (over && !standing.includes(over)) standing.push(over);
    const lines = standing.slice(0, 8).map((entity) => this.describe(entity));
    if (standing.length > 8) lines.push(`and ${standing.length - 8} more`);
    return [`row ${row}, column ${col}: ${materials[material].name}${was}`, ...lines].join("\n");
  }

  describe({ group, index, alive }) {
    const { tick, colourBy } = this.state;
    const vitals = alive ? `health ${group.at("health", index, tick)}, level ${group.at("level", index, tick)}` : "dies";
    if (group !== this.data.players) return `${group.names[index]}: ${this.data.npcKind(index).name} NPC, ${vitals}`;
    const { label, solid } = this.state.colouring(index), cluster = `, ${label}${solid ? "" : " (propagated)"}`;
    return `${group.names[index]}: ${vitals}${colourBy === "cluster" ? cluster : ""}`;
  }
}

/** The buttons that zoom, and the keys that do. */
function zoomKeys(map) {
  const acts = { "zoom-in": () => map.zoom(1.4), "zoom-out": () => map.zoom(1 / 1.4), "zoom-fit": () => map.fit() };
  for (const [id, act] of Object.entries(acts)) listenTo(id, "click", act);
  return { "+": acts["zoom-in"], "=": acts["zoom-in"], "-": acts["zoom-out"], "0": acts["zoom-fit"] };
}
