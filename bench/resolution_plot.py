# SPDX-License-Identifier: Apache-2.0
"""A plot of scores against 2^-K, as SVG text: both axes logarithmic, a panel for each precision.

Colours say the mode and shapes say it again, for who cannot tell the colours apart or prints grey.
"""
from __future__ import annotations

import math
from typing import Callable, Dict, List, Tuple

Curve = Dict[int, float]  # K -> score

WIDTH, HEIGHT = 420, 320  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 34, 48  # its margins
STYLES = {  # mode -> colour, marker
    "bound": ("#b2182b", "square"),
    "envelope": ("#e08214", "diamond"),
    "own": ("#1b7837", "triangle"),
    "local": ("#2166ac", "circle"),
}
SHAPES = {"square": "M-3 -3h6v6h-6z", "diamond": "M0 -4.2l4.2 4.2l-4.2 4.2l-4.2 -4.2z",
          "triangle": "M0 -4l4 7h-8z", "circle": "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z"}
LEAST = 1e-2  # scores below are drawn there


class Panel:
    def __init__(self, title: str, curves: Dict[str, Curve], left: float, highest: int):
        self.title, self.curves, self.left = title, curves, left
        self.highest = highest  # power of ten at the top
        self.lowest = round(math.log10(LEAST))
        sizes = [k for curve in curves.values() for k in curve]
        self.first, self.last = min(sizes), max(sizes)

    def x(self, k: float) -> float:
        share = (k - self.first) / max(1, self.last - self.first)
        return self.left + LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, score: float) -> float:
        power = math.log10(max(score, LEAST))
        share = (power - self.lowest) / (self.highest - self.lowest)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def draw(self) -> List[str]:
        return [*self._axes(), *(part for mode, curve in self.curves.items()
                                 for part in self._curve(mode, curve))]

    def _axes(self) -> List[str]:
        right, bottom = self.x(self.last), HEIGHT - BOTTOM
        parts = [text(self.left + LEFT, TOP - 14, self.title, "start", weight="bold"),
                 text((self.x(self.first) + right) / 2, HEIGHT - 10,
                      "the output is off by a factor 1 + 2", "middle", power="-K")]
        for power in range(self.lowest, self.highest + 1):
            level = self.y(10.0 ** power)
            parts.append(line(self.x(self.first), level, right, level, "#dddddd"))
            parts.append(text(self.left + LEFT - 6, level + 4, "10", "end", power=str(power)))
        for k in range(self.first, self.last + 1, 2):
            parts.append(line(self.x(k), bottom, self.x(k), bottom + 4, "#444444"))
            parts.append(text(self.x(k), bottom + 18, "2", "middle", power=f"-{k}"))
        limit = self.y(1)
        parts.append(line(self.x(self.first), limit, right, limit, "#000000", dashes="5 3"))
        parts.append(text(right, limit - 5, "limit", "end"))
        return parts

    def _curve(self, mode: str, curve: Curve) -> List[str]:
        colour, marker = STYLES[mode]
        points = [(self.x(k), self.y(score)) for k, score in sorted(curve.items())]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        marks = "".join(mark(x, y, marker, colour) for x, y in points)
        return [f'<polyline points="{path}" fill="none" stroke="{colour}"/>{marks}']


def text(x: float, y: float, words: str, anchor: str, power: str = "", weight: str = "") -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    raised = f'<tspan dy="-4" font-size="8">{power}</tspan>' if power else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{bold}>{words}{raised}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{colour}"{dashed}/>')


def mark(x: float, y: float, marker: str, colour: str) -> str:
    return f'<path d="{SHAPES[marker]}" transform="translate({x:.1f} {y:.1f})" fill="{colour}"/>'


def legend(modes: List[str], place: Callable[[int], Tuple[float, float]]) -> List[str]:
    parts = []
    for number, mode in enumerate(modes):
        x, y = place(number)
        colour, marker = STYLES[mode]
        parts += [mark(x, y, marker, colour), text(x + 9, y + 4, mode, "start")]
    return parts


def plot(panels: Dict[str, Dict[str, Curve]]) -> str:
    """precision -> mode -> K -> score."""
    largest = max(score for curves in panels.values() for curve in curves.values()
                  for score in curve.values())
    highest = math.ceil(math.log10(largest))
    drawn = [Panel(f"{title}: score of the module's output", curves, WIDTH * number, highest)
             for number, (title, curves) in enumerate(panels.items())]
    modes = list(next(iter(panels.values())))
    right = drawn[0].x(drawn[0].last)
    key = legend(modes, lambda number: (right - 70, TOP + 10 + 16 * number))
    width = WIDTH * len(drawn)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}" '
        f'viewBox="0 0 {width} {HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{HEIGHT}" fill="#ffffff"/>',
        *(part for panel in drawn for part in panel.draw()), *key, "</svg>", ""])
