"""Charts as plain SVG: panels with axes, lines, stacked bars and one legend. The same data gives the same bytes."""
import html
import math

INK, SOFT, GRID = "#1f2933", "#5f6b7a", "#dde3ea"
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f5539", "#5f6b7a")
PANEL, PLOT, MARGIN = (470, 330), (385, 230), (68, 42)  # width and height; of the plot; its left and upper margin
WIDTH_OF_LETTER = 6.6


def number(value):
    return f"{value:.1f}".rstrip("0").rstrip(".")


def text(x, y, words, size=12, color=INK, anchor="middle", bold=False, turn=0):
    turned = f' transform="rotate({turn} {number(x)} {number(y)})"' if turn else ""
    weight = ' font-weight="bold"' if bold else ""
    return (f'<text x="{number(x)}" y="{number(y)}" font-size="{size}" fill="{color}" text-anchor="{anchor}"{weight}{turned}>'
            f"{html.escape(words)}</text>")


def segment(x1, y1, x2, y2, color, dashed=False, width=1.0):
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return (f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" stroke="{color}" '
            f'stroke-width="{width}"{dash}/>')


class Axis:
    """ticks: {value: words}; without them round numbers of the range."""

    def __init__(self, label, values, log=False, ticks=None, from_zero=False):
        self.label, self.log = label, log
        low, high = min(values), max(values)
        if from_zero:
            low = 0.0
        if log:
            low, high = low / 1.25, high * 1.25
        else:
            margin = 0.05 * (high - low) or 0.5
            low, high = (low if from_zero else low - margin), high + margin
        self.low, self.high = low, high
        wanted = ticks or {value: f"{value:g}" for value in self.round_values()}
        self.ticks = {value: words for value, words in wanted.items() if low <= value <= high}

    def round_values(self):
        if not self.log or self.high / self.low < 5:
            step = 10 ** math.floor(math.log10(self.high - self.low))
            step = next(s for s in (step / 5, step / 2, step, 2 * step) if (self.high - self.low) / s <= 8)
            return [round(i * step, 9) for i in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        digits = (1, 2, 5) if self.high / self.low < 300 else (1,)
        return [v for v in (float(f"{d}e{p}") for p in powers for d in digits) if self.low <= v <= self.high]

    def position(self, value):
        """0 at the low end, 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


class Panel:
    def __init__(self, title, x, y):
        self.title, self.x, self.y = title, x, y
        self.marks = []

    def point(self, x, y):
        return (MARGIN[0] + PLOT[0] * self.x.position(x), MARGIN[1] + PLOT[1] * (1 - self.y.position(y)))

    def line(self, points, color, dashed=False, dots=True):
        corners = [self.point(x, y) for x, y in sorted(points)]
        path = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.marks.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.8"{dash}/>')
        if dots:
            self.dots(points, color)

    def dots(self, points, color):
        for x, y in (self.point(*point) for point in sorted(points)):
            self.marks.append(f'<circle cx="{number(x)}" cy="{number(y)}" r="3" fill="{color}"/>')

    def note(self, x, y, lines):
        """Under a point."""
        at = self.point(x, y)
        self.marks += [text(at[0], at[1] + 16 + 11 * i, words, 10, SOFT) for i, words in enumerate(lines)]

    def stack(self, x, parts, width=26):
        """parts: (amount, color) from below"""
        bottom = 0.0
        for amount, color in parts:
            left, top = self.point(x, bottom + amount)
            height = self.point(x, bottom)[1] - top
            self.marks.append(f'<rect x="{number(left - width / 2)}" y="{number(top)}" width="{width}" '
                              f'height="{number(height)}" fill="{color}"/>')
            bottom += amount

    def drawn(self):
        left, top = MARGIN
        right, bottom = left + PLOT[0], top + PLOT[1]
        parts = [text((left + right) / 2, 26, self.title, 14, bold=True)]
        for value, words in self.x.ticks.items():
            x = left + PLOT[0] * self.x.position(value)
            parts += [segment(x, top, x, bottom, GRID), text(x, bottom + 17, words, 11, SOFT)]
        for value, words in self.y.ticks.items():
            y = bottom - PLOT[1] * self.y.position(value)
            parts += [segment(left, y, right, y, GRID), text(left - 7, y + 4, words, 11, SOFT, "end")]
        parts.append(f'<rect x="{left}" y="{top}" width="{PLOT[0]}" height="{PLOT[1]}" fill="none" stroke="{SOFT}"/>')
        parts += [text((left + right) / 2, bottom + 37, self.x.label),
                  text(18, (top + bottom) / 2, self.y.label, turn=-90)]
        return parts + self.marks


def legend(entries, width, y):
    """Lines of (words, color, dashed), and where they end."""
    parts, x = [], MARGIN[0]
    for words, color, dashed in entries:
        needed = 46 + WIDTH_OF_LETTER * len(words)
        if x + needed > width and x > MARGIN[0]:
            x, y = MARGIN[0], y + 20
        parts += [segment(x, y - 4, x + 24, y - 4, color, dashed, 3), text(x + 30, y, words, anchor="start")]
        x += needed
    return parts, y + 10


def figure(title, panels, entries, columns=2):
    width = PANEL[0] * columns
    keys, top = legend(entries, width, 52)
    height = top + PANEL[1] * math.ceil(len(panels) / columns)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
             f'font-family="Helvetica, Arial, sans-serif" fill="{INK}">', f"<title>{html.escape(title)}</title>",
             f'<rect width="{width}" height="{height}" fill="#ffffff"/>', text(width / 2, 26, title, 16, bold=True), *keys]
    for i, panel in enumerate(panels):
        x, y = i % columns * PANEL[0], top + i // columns * PANEL[1]
        parts += [f'<g transform="translate({x} {y})">', *panel.drawn(), "</g>"]
    return "\n".join([*parts, "</svg>", ""])
