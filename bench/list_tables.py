"""The tables of docs/performance.md of the lists other than hopper: formats and mixes, shapes, float16, portable kernels; from ids, even routing."""
import goal_rules
import list_goals
from regimes import us_and_floor

MODEL = "qwen3-30b"
TOKENS = (1, 8, 32, 512, 8192)
CARDS = ("h200", "h100")  # the first that has results


def told_us(us):
    return f"{us:.1f}" if us < 100 else f"{us:.0f}"


def heading(first):
    yield f"| {first} | {' | '.join(f'T = {t}' for t in TOKENS)} |"
    yield "|--" * (1 + len(TOKENS)) + "|"


def rows(run, labels, cell):
    """A row for each label, a name of a case without T; cells of cases that are not there, or have nothing to be compared with, are empty."""
    for label, like in labels.items():
        cells = []
        for t in TOKENS:
            case = run.results.get(goal_rules.name_of({**like, "n_tokens": t}))
            try:
                cells.append(cell(case) if case else "-")
            except goal_rules.NotMeasured:
                cells.append("-")
        yield f"| {label} | {' | '.join(cells)} |"


def labelled(run, label, holds_for):
    """{label: a case of it}, in the order of the results."""
    found = {}
    for r in run.results.values():
        if r["mode"] == "ids" and r["zipf"] == 0 and holds_for(r):
            found.setdefault(label(r), r)
    return found


def formats(run):
    yield from heading(MODEL)
    yield from rows(run, labelled(run, lambda r: r["format"], lambda r: r["model"] == MODEL), us_and_floor)


def shapes(run):
    def size_of(r):
        return next((size for size in list_goals.SIZES if r["shape"][size] % list_goals.GRID), None)

    def cell(r):
        return f"{told_us(r['us'])} ({r['us'] / list_goals.next_on_grid(run, r, size_of(r))['us']:.2f})"

    yield from heading("size, format")
    yield from rows(run, labelled(run, lambda r: f"{size_of(r)} {r['shape'][size_of(r)]}, {r['format']}", size_of), cell)


def fp16(run):
    def cell(r):
        other = [{**r, "x_type": "f16", "intermediate_type": kind} for kind in ("bf16", "f16")]
        found = [run.results.get(goal_rules.name_of(one)) for one in other]
        return ", ".join(f"{one['us'] / r['us']:.2f}" if one else "-" for one in found)

    yield from heading("weights")
    yield from rows(run, labelled(run, lambda r: f"{r['model']}, {r['format']}", lambda r: r["x_type"] == "bf16"), cell)


def portable(run):
    def cell(r):
        own = run.like(r, kernels="")
        return f"{told_us(r['us'])} ({r['us'] / own['us']:.2f})"

    yield from heading("model, weights")
    yield from rows(run, labelled(run, lambda r: f"{r['model']}, {r['format']}", lambda r: r["kernels"]), cell)


def fp8(run):
    def cell(r):
        return f"{told_us(r['us'])} ({r['us'] / list_goals.as_given(run, r)['us']:.2f})"

    yield from heading("model, weights")
    yield from rows(run, labelled(run, lambda r: f"{r['model']}, {r['format']}", list_goals.is_quantized), cell)


TABLES = {"formats": formats, "shapes": shapes, "fp16": fp16, "fp8": fp8, "portable": portable}
WORDS = {
    "formats": "Microseconds, and time over floor.",
    "shapes": "Microseconds, and time over that of the layer with the next size on the grid of 64.",
    "fp16": "Time over that of x in bfloat16: with intermediates in bfloat16, and in float16.",
    "fp8": "Microseconds with activations as E4M3, and time over that with activations as given in the same run.",
    "portable": "Microseconds of the portable kernels, and time over that of Hopper's own in the same run.",
}


def document_of(name, read):
    """(document, path) of a list on the first card that has results; read gives None for a path without a file."""
    for card in CARDS:
        path = f"bench/results/{name}-{card}.json"
        if document := read(path):
            return document, path
    return None, None


def block(name, read):
    document, path = document_of(name, read)
    if document is None:
        return ["Not measured: no result file."]
    run = goal_rules.Run(document, path, is_hopper=False)
    label = (f"{WORDS[name]} {document['device']['name']}, commit {document['commit']}, {document['date'][:10]}, from ids, even routing: "
             f"[results](../{path}).")
    return [label, "", *TABLES[name](run)]
