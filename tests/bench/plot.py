"""An SVG of ratio, achieved bandwidth and achieved FLOPs by M; needs nothing but the standard library."""

import html
import math

WIDTH, HEIGHT = 460, 330
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 34, 40
LEGEND_LINE = 15
COLOURS = ("#1b6ca8", "#d1495b", "#3a7d44", "#8e6c8a", "#e0912f", "#30a5a5", "#7a4b1e", "#5b5bd6",
           "#b0335f", "#6b8e23", "#2f4f4f", "#c71585", "#008080", "#a0522d", "#4682b4", "#808000")
# One dash pattern per shape of a format.
DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 4", "10 4")


class Axis:
    """Logarithmic or linear numbers to pixels."""

    def __init__(self, low, high, from_pixel, to_pixel, logarithmic):
        self.forward = math.log2 if logarithmic else float
        self.low, self.high = self.forward(low), self.forward(high)
        if self.high <= self.low:
            self.high = self.low + 1
        self.from_pixel, self.to_pixel = from_pixel, to_pixel

    def __call__(self, value):
        share = (self.forward(value) - self.low) / (self.high - self.low)
        return self.from_pixel + share * (self.to_pixel - self.from_pixel)


def nice_ticks(high):
    """About five round values from 0 to `high`."""
    step = 10 ** math.floor(math.log10(high / 5))
    step *= next(factor for factor in (1, 2, 5, 10) if high / (step * factor) <= 6)
    return [step * i for i in range(int(high / step) + 1)]


def powers_of_two(low, high):
    return [2.0 ** i for i in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]


def styles(series):
    """{(format, N, K): (colour, dash)}: a colour per format, a dash per shape."""
    formats = sorted({key[0] for key in series})
    counts = {}
    for key in series:
        counts[key[1:]] = counts.get(key[1:], 0) + 1
    shapes = sorted(counts, key=lambda shape: (-counts[shape], shape))  # the commonest is solid
    return {key: (COLOURS[formats.index(key[0]) % len(COLOURS)], DASHES[shapes.index(key[1:]) % len(DASHES)])
            for key in sorted(series)}


def panel(index, title, unit, series, style, guide=None):
    """One diagram; `series` maps a layer to [(M, value)]."""
    left = index * WIDTH + LEFT
    values = [v for line in series.values() for _, v in line]
    tokens = [m for line in series.values() for m, _ in line]
    parts = [f'<text x="{left}" y="20" class="title">{html.escape(title)}</text>']
    if not values:
        return parts + [f'<text x="{left}" y="{TOP + 40}">no points</text>']
    marks = values + ([guide] if guide else [])
    high, low = max(marks) * 1.05, min(marks)
    wide = guide is not None and high > 4 * guide  # ratios far above 1 would flatten the rest
    x = Axis(min(tokens), max(tokens), left, (index + 1) * WIDTH - RIGHT, logarithmic=True)
    y = Axis(low / 1.05 if wide else 0, high, HEIGHT - BOTTOM, TOP, logarithmic=wide)
    for tick in powers_of_two(low, high) if wide else nice_ticks(high):
        parts.append(f'<line x1="{left}" x2="{x.to_pixel}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" class="grid"/>')
        parts.append(f'<text x="{left - 6}" y="{y(tick) + 4:.1f}" class="right">{tick:g}</text>')
    for m in sorted(set(tokens)):
        parts.append(f'<text x="{x(m):.1f}" y="{HEIGHT - BOTTOM + 16}" class="middle">{m}</text>')
    parts.append(f'<text x="{(left + x.to_pixel) / 2:.0f}" y="{HEIGHT - 6}" class="middle">M (tokens); {unit}</text>')
    if guide:
        parts.append(f'<line x1="{left}" x2="{x.to_pixel}" y1="{y(guide):.1f}" y2="{y(guide):.1f}" class="guide"/>')
    for layer, line in series.items():
        colour, dash = style[layer]
        path = " ".join(f"{x(m):.1f},{y(v):.1f}" for m, v in sorted(line))
        parts.append(f'<polyline points="{path}" stroke="{colour}" stroke-dasharray="{dash}" class="line"/>')
        parts += [f'<circle cx="{x(m):.1f}" cy="{y(v):.1f}" r="2" fill="{colour}"/>' for m, v in line]
    return parts


def collect(points, field):
    series = {}
    for p in points:
        if p[field] is not None:
            series.setdefault((p["format"], p["N"], p["K"]), []).append((p["M"], p[field]))
    return series


def legend(style):
    parts = []
    for i, (layer, (colour, dash)) in enumerate(style.items()):
        x = LEFT + i % 3 * WIDTH
        y = HEIGHT + 14 + i // 3 * LEGEND_LINE
        parts.append(f'<line x1="{x}" x2="{x + 34}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" '
                     f'stroke-dasharray="{dash}" class="line"/>')
        parts.append(f'<text x="{x + 40}" y="{y}">{html.escape(layer[0])} {layer[1]}×{layer[2]}</text>')
    return parts


def draw(points, conditions):
    """The whole SVG for points as compare.points() gives them."""
    style = styles({(p["format"], p["N"], p["K"]): None for p in points})
    height = HEIGHT + 24 + (len(style) + 2) // 3 * LEGEND_LINE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{3 * WIDTH}" height="{height}" '
        f'viewBox="0 0 {3 * WIDTH} {height}">',
        f'<desc>{html.escape(conditions["device"])}, {html.escape(conditions["date"])}</desc>',
        '<style>text{font:11px sans-serif;fill:#222}.title{font-weight:bold;font-size:13px}.right{text-anchor:end}'
        '.middle{text-anchor:middle;font-size:10px}.grid{stroke:#ddd}.guide{stroke:#222;stroke-dasharray:4 3}'
        '.line{fill:none;stroke-width:1.6}</style>',
        f'<rect width="{3 * WIDTH}" height="{height}" fill="#fff"/>',
    ]
    parts += panel(0, "Time against the best rival", "ours / best, 1 = equal", collect(points, "ratio"), style, 1.0)
    parts += panel(1, "Bytes moved", "GB/s", collect(points, "gb_per_s"), style)
    parts += panel(2, "Arithmetic", "TFLOP/s", collect(points, "tflops"), style)
    return "\n".join(parts + legend(style) + ["</svg>", ""])
