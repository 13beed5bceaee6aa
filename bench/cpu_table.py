"""Puts the tables of bench/results/cpu-*.json into docs/performance.md and draws their figures, or holds both to them.

usage: cpu_table.py <root of the repository> [--write]
Of each machine a table of the cases on the most threads that were measured: of a call of one token the rate of weight bytes and
its ratio to the read rate, then the speed over that of each peer at T = 1, 16 and 512. And a figure: the ratio to the read rate against T. The best
call is compared with the best read and the best call of a peer: other programs disturb single calls of each. ik_llama.cpp with
weights as they are and repacked is one peer, the faster of both. What was not measured is "-". Cases whose activations are bytes
have rows of their own, and are not in the figure.
"""
import json
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "studies"))
import chart  # noqa: E402
import marked_block  # noqa: E402
from cpu_results import peers_of  # noqa: E402

PAGE, RESULTS = "docs/performance.md", "bench/results/cpu-*.json"
MARKS = ("<!-- cpu: written by bench/cpu_table.py . --write -->\n", "<!-- end of cpu -->\n")
TOKENS = (1, 16, 512)
DRAWN = "qwen3-30b"
# Columns, and the peers whose fastest is meant.
COLUMNS = {"ggml": ("ggml",), "ik": ("ik", "ik-rtr")}
# The panels of a figure: formats that a reader compares, not more than there are colors.
PANELS = (
    ("8 bits and more", ("bf16", "f16", "q8_0", "fp8_128x128")),
    ("4 to 6 bits", ("q6_k", "q5_k", "q4_k", "q4_0", "mxfp4", "nvfp4", "int4_g128")),
    ("codebooks", ("iq4_xs", "iq2_xs", "kbit5", "kbit4", "kbit3", "kbit2")),
)


def distinct(values):
    return list(dict.fromkeys(values))


def threads_in_words(n):
    return f"{n} thread" + ("s" if n > 1 else "")


def of_most_threads(document):
    """The cases without a filter on as many threads as any has, in the default type of x."""
    results = [r for r in document["results"] if not r["kernels"] and r["x_type"] == "bf16"]
    most = max((r["n_threads"] for r in results), default=0)
    return most, [r for r in results if r["n_threads"] == most]


def words_of(result):
    return result["format"] + (", packed" if result.get("packed") else "") + (", int8" if result["int8"] else "")


def columns_of(document):
    """Those whose peers were there; ggml's without any."""
    there = peers_of(document)
    return [column for column, peers in COLUMNS.items() if any(peer in there for peer in peers)] or ["ggml"]


def over_peer(result, column):
    measured = peers_of(result) if result else {}
    ratios = [measured[peer]["ratio_best"] for peer in COLUMNS[column] if peer in measured]
    return f"{min(ratios):.2f}" if ratios else "-"


def table(document):
    most, results = of_most_threads(document)
    by_case = {(r["model"], words_of(r), r["n_tokens"]): r for r in results}
    columns = columns_of(document)
    titles = [f"speed / {column}, T = 1 | 16 | 512" for column in columns]
    lines = [f"| {threads_in_words(most)} | GB/s, T = 1 | / read rate | {' | '.join(titles)} | GFLOP/s, T = 512 |",
             "|--" * (4 + 3 * len(columns)) + "|"]
    for model, form in distinct((r["model"], words_of(r)) for r in results):
        one, few, many = (by_case.get((model, form, n)) for n in TOKENS)
        cells = [f"{one['gb_per_s_best']:.1f}", f"{one['ratio_best']:.2f}"] if one else ["-", "-"]
        cells += [over_peer(r, column) for column in columns for r in (one, few, many)]
        cells.append(f"{many['gflops_best']:.0f}" if many else "-")
        lines.append(f"| {model} {form} | {' | '.join(cells)} |")
    return lines


def heading(name, document):
    machine = document["machine"]
    reads = ", ".join(f"{rate['gb_per_s']:.1f} GB/s with {threads_in_words(rate['n_threads'])}" for rate in document["read_rates"])
    text = (f"{machine['cpu']}, {machine['n_cores']} cores, commit {document['commit']}, {document['date'][:10]}: "
            f"[results](../bench/results/{name}.json). It reads {reads}.")
    for peer in distinct((column, peer["version"], peer["variant"]) for column, peers in COLUMNS.items()
                         for name, peer in peers_of(document).items() if name in peers):
        text += " {} {} ({}).".format(*peer)
    if document["failures"]:
        text += f" {len(document['failures'])} measurements failed."
    return text


def series(results, form):
    return [(r["n_tokens"], r["ratio_best"]) for r in results if (r["model"], words_of(r)) == (DRAWN, form)]


def title(name, document):
    most, results = of_most_threads(document)
    found = [ratio for _, formats in PANELS for form in formats for n, ratio in series(results, form) if n == 1]
    speed = f"{min(found):.2f} to {max(found):.2f} of the read rate at T = 1, " if found else ""
    return f"{name}: {DRAWN} in every format, {speed}{threads_in_words(most)}"


def figure(name, document):
    """None without anything to draw."""
    _, results = of_most_threads(document)
    drawn = [(words, [(form, series(results, form)) for form in formats if series(results, form)]) for words, formats in PANELS]
    points = [point for _, lines in drawn for _, line in lines for point in line]
    if not points:
        return None
    tokens = sorted({n for n, _ in points})
    panels, keys = [], []
    for words, lines in drawn:
        x = chart.Axis("tokens of a call", tokens, log=True, ticks={n: str(n) for n in tokens})
        y = chart.Axis("weight bytes a second / read rate", [ratio for _, ratio in points] + [1.0], log=True)
        panel = chart.Panel(words, x, y)
        panel.line([(tokens[0], 1.0), (tokens[-1], 1.0)], chart.INK, dashed=True, dots=False)
        for i, (form, line) in enumerate(lines):
            panel.line(line, chart.COLORS[i])
            panel.marks.append(label(panel, line, form, chart.COLORS[i], i))
        panels.append(panel)
    keys = [("read rate", chart.INK, True)]
    return chart.figure(title(name, document), panels, keys, columns=3)


def label(panel, line, words, color, i):
    """In the lower left corner of the panel, where lines that fall do not go: the panels have different formats."""
    left, bottom = chart.MARGIN[0] + 10, chart.MARGIN[1] + chart.PLOT[1] - 10
    return chart.text(left, bottom - 15 * i, words, 11, color, "start", bold=True)


def block(documents):
    if not documents:
        return "Not measured yet.\n"
    lines = []
    for name, document in documents.items():
        lines += ["", heading(name, document), "", *table(document)]
        if figure(name, document):
            lines += ["", f"![{title(name, document)}](pictures/{name}.svg)"]
    return "\n".join(lines[1:]) + "\n"


def pictures(root, documents):
    """{path: text}; None: a file that must not be there."""
    made = {path: None for path in (root / "docs/pictures").glob("cpu-*.svg")}
    made.update({root / f"docs/pictures/{name}.svg": figure(name, document) for name, document in documents.items()})
    return made


def main():
    root, is_written = pathlib.Path(sys.argv[1]), "--write" in sys.argv[2:]
    paths = sorted(root.glob(RESULTS), key=lambda path: (len(path.name), path.name))
    documents = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    made, text = pictures(root, documents), block(documents)
    marked_block.put(root / PAGE, MARKS, text, RESULTS, is_written)
    for path, drawing in made.items():
        if is_written and drawing is None:
            path.unlink(missing_ok=True)
        elif is_written:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(drawing, encoding="utf-8")
        elif drawing != (path.read_text(encoding="utf-8") if path.exists() else None):
            sys.exit(f"{path.relative_to(root)} is not what the results make: cpu_table.py . --write")


if __name__ == "__main__":
    main()
