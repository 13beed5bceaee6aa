"""Draws the pictures of the documentation, as plain SVG.

usage: draw.py [--check]      --check: compare with the files that are there
"""
import html
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
INK, SOFT, LINE = "#1f2933", "#5f6b7a", "#8795a6"
BLUE, GREEN, SAND, ROSE, GREY = "#d8e6f6", "#d9eedd", "#f8ead0", "#f6dcdc", "#eef1f5"
EXPERTS = ["#d8e6f6", "#d9eedd", "#f8ead0", "#e7dcf3"]


class Drawing:
    def __init__(self, width, height, title):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="Helvetica, Arial, sans-serif" font-size="14" fill="{INK}">',
            f"<title>{html.escape(title)}</title>",
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
            f'<path d="M0 0 L10 5 L0 10 z" fill="{LINE}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>']

    def text(self, x, y, words, size=14, color=INK, anchor="middle", bold=False, mono=False):
        style = (' font-weight="bold"' if bold else "") + (' font-family="monospace"' if mono else "")
        self.parts.append(f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}" text-anchor="{anchor}"{style}>'
                          f"{html.escape(words)}</text>")

    def box(self, x, y, width, height, fill=GREY, lines=(), bold=True, size=14, dashed=False):
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{fill}" '
                          f'stroke="{LINE}"{dash}/>')
        step = size + 5
        first = y + height / 2 - (len(lines) - 1) * step / 2 + size * 0.35
        for i, line in enumerate(lines):
            self.text(x + width / 2, round(first + i * step, 1), line, size if i == 0 else size - 2,
                      INK if i == 0 else SOFT, bold=bold and i == 0)

    def cell(self, x, y, size, fill, word=""):
        self.parts.append(f'<rect x="{x}" y="{y}" width="{size[0]}" height="{size[1]}" fill="{fill}" stroke="{LINE}"/>')
        if word:
            self.text(x + size[0] / 2, y + size[1] / 2 + 4, word, 12)

    def arrow(self, x1, y1, x2, y2):
        self.parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{LINE}" stroke-width="1.6" '
                          'marker-end="url(#tip)"/>')

    def path(self, points):
        self.parts.append(f'<polyline points="{points}" fill="none" stroke="{LINE}" stroke-width="1.6" '
                          'marker-end="url(#tip)"/>')

    def finished(self):
        return "\n".join([*self.parts, "</svg>", ""])


def stages():
    """x to out, what each stage takes and gives, and which function it is."""
    d = Drawing(980, 330, "The stages of a Mixture-of-Experts layer")
    columns = [(30, "x", None), (150, "router", "moe_route"), (340, "dispatch", "moe_dispatch"), (530, "experts", "moe_experts"),
               (720, "combine", "moe_combine")]
    what = {"router": ["logits, score,", "the k largest"], "dispatch": ["rows of each", "expert, sorted"],
            "experts": ["gate, up,", "activation, down"], "combine": ["weighted sum", "in slot order"]}
    for x, name, function in columns:
        if function is None:
            d.box(x, 90, 70, 70, GREY, ["x", "[T, H]"])
            continue
        d.box(x, 80, 130, 90, BLUE, [name, *what[name]])
        d.text(x + 65, 68, function, 12, SOFT, mono=True)
    for x1, x2, above in ((100, 150, ""), (280, 340, "ids"), (470, 530, "offsets"), (660, 720, "rows")):
        d.arrow(x1, 125, x2 - 2, 125)
        d.text((x1 + x2) / 2, 117, above, 12, SOFT)
    d.box(896, 90, 70, 70, GREY, ["out", "[T, H]"])
    d.box(340, 225, 320, 62, GREEN, ["shared expert, its gate and scale", "latent projection, biases of slices"], size=13)
    d.box(720, 225, 130, 62, SAND, ["finish", "once, after the sum"], size=13)
    d.text(785, 305, "moe_finish", 12, SOFT, mono=True)
    d.path("65,160 65,256 338,256")
    d.arrow(660, 256, 718, 256)
    d.arrow(785, 170, 785, 223)
    d.path("850,256 931,256 931,162")
    d.text(215, 246, "x again", 12, SOFT)
    d.text(215, 200, "weights [T, k]", 12, SOFT)
    d.path("215,170 215,184 700,184 700,150 718,150")
    d.text(490, 30, "moe_forward is all of it; each stage is a function too", 15, INK, bold=True)
    return d.finished()


def rows(d, x, y, title, note, cells, width=64, height=22):
    d.text(x, y - 12, title, 13, INK, "start", bold=True)
    for i, (fill, word) in enumerate(cells):
        d.cell(x, y + i * height, (width, height), fill, word)
    d.text(x, y + len(cells) * height + 18, note, 12, SOFT, "start")


def layouts():
    """The same four tokens and two slots each, in every layout of rows."""
    d = Drawing(980, 440, "The layouts of rows")
    d.text(490, 28, "Four tokens a b c d, k = 2, three experts: the rows in every layout", 15, INK, bold=True)
    chosen = {"a": (0, 2), "b": (1, 0), "c": (0, 1), "d": (2, 0)}
    rows(d, 30, 90, "TOKENS", "x [T, H] and ids [T, k]", [(GREY, f"x {t}") for t in chosen])
    for i, ids in enumerate(chosen.values()):
        for j, expert in enumerate(ids):
            d.cell(100 + 32 * j, 90 + 22 * i, (32, 22), EXPERTS[expert], str(expert))
    d.text(132, 78, "ids", 12, SOFT)
    sorted_rows = [(expert, t) for expert in range(3) for t, ids in chosen.items() if expert in ids]
    rows(d, 240, 90, "SORTED, packed", "offsets 0 4 6 8; row ids t k + j", [(EXPERTS[e], f"{t} {e}") for e, t in sorted_rows])
    blocked = []
    for expert in range(3):
        mine = [(EXPERTS[e], f"{t} {e}") for e, t in sorted_rows if e == expert]
        blocked += mine + [("#ffffff", "-1")] * (-len(mine) % 4)
    rows(d, 470, 90, "SORTED, blocks of 4", "offsets 0 4 8 12", blocked)
    d.text(740, 78, "BATCHED, capacity 4", 13, INK, "start", bold=True)
    for expert in range(3):
        mine = [f"{t} {e}" for e, t in sorted_rows if e == expert]
        for i in range(4):
            word = mine[i] if i < len(mine) else ""
            d.cell(740 + 74 * expert, 90 + 22 * i, (64, 22), EXPERTS[expert] if word else "#ffffff", word)
        d.text(772 + 74 * expert, 196, f"expert {expert}", 12, SOFT)
    d.text(740, 216, "counts 4 2 2", 12, SOFT, "start")
    d.text(740, 270, "PER_SLOT, an output", 13, INK, "start", bold=True)
    for i, (t, ids) in enumerate(chosen.items()):
        for j, expert in enumerate(ids):
            d.cell(740 + 74 * j, 282 + 22 * i, (64, 22), EXPERTS[expert], f"{t} {expert}")
    d.text(740, 388, "[T, k, H], unweighted", 12, SOFT, "start")
    d.text(30, 270, "REDUCED, an output", 13, INK, "start", bold=True)
    for i, t in enumerate(chosen):
        d.cell(30, 282 + 22 * i, (64, 22), SAND, f"out {t}")
    d.text(30, 388, "[T, H]: sum over j of weight j times row j", 12, SOFT, "start")
    d.text(490, 425, "The number is the expert, the colour too; white is padding, which is neither read nor written.", 12, SOFT)
    return d.finished()


def plan():
    """What goes into a plan, what it decides, and what is made for it."""
    d = Drawing(980, 430, "A plan explained")
    d.text(490, 28, "A plan: everything that is decided, decided once", 15, INK, bold=True)
    given = [["layer", "sizes, routing rule, activation"], ["formats", "of every matrix"], ["slice", "experts, features, or all"],
             ["device", "CPU, CUDA or AUTO"], ["types", "x, out, intermediate"], ["max_tokens", "the largest T of a call"]]
    for i, lines in enumerate(given):
        d.box(30, 60 + 58 * i, 220, 48, BLUE, lines, size=13)
        d.arrow(250, 84 + 58 * i, 326, 84 + 58 * i)
    d.box(330, 60, 320, 338, GREY)
    d.text(490, 86, "moe_plan, immutable", 14, INK, bold=True)
    facts = [(0, "device cpu 0, 2 threads: requested"), (0, "stage route: cpu_any_f32_route_ref"),
             (0, "stage experts: avx512_dense_f32_experts"), (1, "* avx512_dense_f32_experts:"),
             (2, "the first of the list that applies"), (1, "- avx2_dense_f32_experts: applies, but"),
             (2, "one before it is expected to be faster"), (0, "weights 1208483840 bytes, layout 100f..."),
             (0, "workspace 234112 bytes for 1 tokens")]
    for i, (depth, line) in enumerate(facts):
        d.text(344 + 14 * depth, 120 + 26 * i, line, 11.5, INK, "start", mono=True)
    d.text(490, 372, "moe_plan_explain says it as text and as JSON,", 12, SOFT)
    d.text(490, 388, "every candidate with its reason", 12, SOFT)
    made = [(GREEN, ["weights", "in the plan's layout; layout id"], "shared by any plan of that id"),
            (GREEN, ["workspace", "scratch, one for each stream"], "serves every plan that fits"),
            (SAND, ["forward", "no allocation, no waiting"], "from any thread")]
    for i, (fill, lines, note) in enumerate(made):
        y = 76 + 110 * i
        d.arrow(650, y + 30, 726, y + 30)
        d.box(730, y, 220, 60, fill, lines, size=13)
        d.text(840, y + 78, note, 12, SOFT)
    return d.finished()


def main(arguments):
    different = []
    for draw in (stages, layouts, plan):
        path, text = HERE / f"{draw.__name__}.svg", draw()
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            different.append(f"{path} is not what draw.py draws")
    print("\n".join(different) or "3 pictures")
    raise SystemExit(1 if different else 0)


main(sys.argv[1:])
