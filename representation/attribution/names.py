"""Names of attribution methods, for options and titles; nothing here needs torch."""

from typing import Literal

Method = Literal["gradient", "integrated", "smooth", "occlusion"]

TITLES: dict[Method, str] = {
    "gradient": "gradient times input", "integrated": "integrated gradients",
    "smooth": "gradient times input, smoothed", "occlusion": "occlusion by a counterfactual",
}  # fmt: skip
