"""The marks for agents and NPCs in films, with smooth edges."""

import functools

from PIL import Image, ImageDraw

from analysis.replays.colours import rgb

EDGE = "#101214"
"""Outline of every mark, so that it is visible on any ground."""
_EDGE_OF_SQUARES = "#ff6b5e"
_SMOOTH = 4
_CORNERS = {
    "triangle": ((0, -1.1), (1.1, 0.85), (-1.1, 0.85)),
    "diamond": ((0, -1.1), (1.1, 0), (0, 1.1), (-1.1, 0)),
    "square": ((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
}


@functools.cache
def sprite_of(shape: str, colour: str, radius: float) -> Image.Image:
    """Draw a shape at a larger scale and shrink it, which smooths its edges."""
    side = 2 * (int(1.5 * radius) + 2)
    image = Image.new("RGBA", (side * _SMOOTH, side * _SMOOTH), (*rgb(colour), 0))
    draw = ImageDraw.Draw(image)
    middle, r = side * _SMOOTH / 2, radius * _SMOOTH

    def disc(share: float, fill: str) -> None:
        draw.ellipse((middle - share * r, middle - share * r, middle + share * r, middle + share * r), fill=fill)

    if shape in ("disc", "ring"):
        layers = ((1.2, EDGE), (1.0, "#ffffff"), (0.78, colour)) if shape == "disc" else (
            (1.2, EDGE), (1.0, colour), (0.52, EDGE),
        )  # fmt: skip
        for share, fill in layers:
            disc(share, fill)
    elif shape == "cross":
        for width, fill in ((0.9 * r, EDGE), (0.45 * r, colour)):
            for slope in (1, -1):
                ends = (middle - r, middle - slope * r, middle + r, middle + slope * r)
                draw.line(ends, fill=fill, width=max(round(width), 2 * _SMOOTH))
    else:
        edge = _EDGE_OF_SQUARES if shape == "square" else EDGE
        for share, fill in ((1.25, edge), (0.9, colour)):
            draw.polygon([(middle + share * r * x, middle + share * r * y) for x, y in _CORNERS[shape]], fill=fill)
    return image.resize((side, side), Image.Resampling.LANCZOS)
