"""Pictures of what one agent sees at a tick of a dump, in the look of replays."""

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from activation_store.schema import TILE_COLUMNS
from analysis.features.choices import DIRECTIONS, STEPS
from analysis.features.observed import Observed
from analysis.features.surroundings import NPC_TYPES
from analysis.materials import PALETTE
from analysis.replays.colours import NPC_COLOURS, NPC_SHAPES
from analysis.replays.frames import ATTACK, DIM, GROUND, RING, TEXT, VITALS, font, shortened
from analysis.replays.sprites import EDGE, sprite_of

SIZE = 256
"""Width and height of a frame in pixels."""
_SIDE = 15
_VIEW = 210
_TILE = _VIEW / _SIDE
_LEFT = (SIZE - _VIEW) // 2
_FULL = 100
_KINDS = {number: kind for kind, number in NPC_TYPES.items()}


@dataclass(frozen=True, eq=False)
class AgentFrames:
    """Draws what agents saw: terrain, entities, vitals, move and target.

    Attributes:
        seen: records with tiles.
        colour: of the agent itself, `#rrggbb`.
    """

    seen: Observed
    policy: str
    colour: str

    def draw(self, record: int, title: str) -> np.ndarray:
        """Return the frame of a record, (256, 256, 3) uint8, with a title above."""
        image = Image.new("RGB", (SIZE, SIZE), GROUND)
        material = self.seen.records.tile[record, :, TILE_COLUMNS.index("material")].reshape(_SIDE, _SIDE)
        ground = Image.fromarray(PALETTE[material]).resize((_VIEW, _VIEW), Image.Resampling.NEAREST)
        image.paste(ground, (_LEFT, 18))
        draw = ImageDraw.Draw(image)
        self._draw_entities(image, draw, record)
        self._draw_own(image, draw, record)
        draw.rectangle((0, 0, SIZE, 17), fill=GROUND)
        draw.rectangle((0, 18 + _VIEW, SIZE, SIZE), fill=GROUND)
        tick = f"tick {self.seen.records.tick[record]}"
        room = SIZE - 18 - draw.textlength(tick, font=font(12))
        draw.text((6, 9), shortened(draw, title, room, 12), fill=TEXT, font=font(12), anchor="lm")
        draw.text((SIZE - 6, 9), tick, fill=DIM, font=font(12), anchor="rm")
        self._draw_vitals(draw, record)
        return np.asarray(image)

    def _at(self, down: float, right: float) -> tuple[float, float]:
        """The middle of a tile in pixels, so many tiles down and right of the agent."""
        return _LEFT + (_SIDE / 2 + right) * _TILE, 18 + (_SIDE / 2 + down) * _TILE

    def _draw_entities(self, image: Image.Image, draw: ImageDraw.ImageDraw, record: int) -> None:
        seen, (start, end) = self.seen, self.seen.records.entity.offsets[record : record + 2]
        own = seen.own_rows[record]
        row, col, kind = (seen.entity(name) for name in ("row", "col", "npc_type"))
        target = int(seen.target_rows[record])
        for place in range(int(start), int(end)):
            down, right = int(row[place] - row[own]), int(col[place] - col[own])
            if place == own or max(abs(down), abs(right)) > _SIDE // 2:
                continue
            x, y = self._at(down, right)
            named = _KINDS.get(int(kind[place]))
            colour, shape = (NPC_COLOURS[named], NPC_SHAPES[named]) if named else ("#f4f4f4", "disc")
            if place == target:
                draw.line((*self._at(0, 0), x, y), fill=ATTACK, width=2)
                draw.rectangle((x - 8, y - 8, x + 8, y + 8), outline=ATTACK, width=2)
            sprite = sprite_of(shape, colour, 5.0 if named else 5.5)
            image.paste(sprite, (round(x - sprite.width / 2), round(y - sprite.height / 2)), sprite)

    def _draw_own(self, image: Image.Image, draw: ImageDraw.ImageDraw, record: int) -> None:
        x, y = self._at(0, 0)
        sprite = sprite_of("disc", self.colour, 6.0)
        image.paste(sprite, (round(x - sprite.width / 2), round(y - sprite.height / 2)), sprite)
        for width, colour in ((4, EDGE), (2, RING)):
            draw.ellipse((x - 9, y - 9, x + 9, y + 9), outline=colour, width=width)
        move = int(self.seen.option("Move.Direction")[record])
        if move < len(DIRECTIONS):
            down, right = STEPS[DIRECTIONS[move]]
            tip, base = (x + 21 * right, y + 21 * down), (x + 10 * right, y + 10 * down)
            draw.line((*base, *tip), fill=RING, width=3)
            side = (7 * down, 7 * right)
            draw.polygon(
                (
                    (tip[0] + 5 * right, tip[1] + 5 * down),
                    (tip[0] - 3 * right + side[0], tip[1] - 3 * down + side[1]),
                    (tip[0] - 3 * right - side[0], tip[1] - 3 * down - side[1]),
                ),
                fill=RING,
            )

    def _draw_vitals(self, draw: ImageDraw.ImageDraw, record: int) -> None:
        y, width = 18 + _VIEW + 8, SIZE // len(VITALS)
        for place, (vital, colour) in enumerate(VITALS.items()):
            value, x = int(self.seen.own(vital)[record]), place * width
            draw.text((x + 6, y), vital, fill=DIM, font=font(10), anchor="lm")
            start, end = x + 40, x + width - 4
            draw.rectangle((start, y - 3, end, y + 3), fill="#2a3038")
            if value > 0:
                draw.rectangle((start, y - 3, start + (end - start) * min(value, _FULL) / _FULL, y + 3), fill=colour)
        agent = f"agent {self.seen.records.agent_id[record]}, episode {self.seen.records.episode[record]}"
        room = SIZE - 18 - draw.textlength(agent, font=font(10))
        draw.text((6, SIZE - 7), shortened(draw, self.policy, room, 10), fill=TEXT, font=font(10), anchor="lm")
        draw.text((SIZE - 6, SIZE - 7), agent, fill=DIM, font=font(10), anchor="rm")


def black_frame() -> np.ndarray:
    """Return a black frame, (256, 256, 3) uint8."""
    return np.zeros((SIZE, SIZE, 3), np.uint8)
