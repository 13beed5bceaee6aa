"""Puts the tables of bench/results/peers.json into bench/peers.md, or holds them to it.

usage: peers_table.py <root of the repository> [--write]
Of each number of tokens a table: layers are rows, peers are columns in the order of the file. What was not measured is "-".
"""
import json
import pathlib
import sys

sys.dont_write_bytecode = True
import marked_block  # noqa: E402

PAGE, RESULTS = "bench/peers.md", "bench/results/peers.json"
MARKS = ("<!-- peers: written by bench/peers_table.py . --write -->\n", "<!-- end of peers -->\n")
PLAIN = "bf16"  # the format that others are compared with


def in_words(text):
    """Older results say product where the field says GEMM."""
    return text.replace("products", "GEMMs").replace("product", "GEMM")


def distinct(values):
    return list(dict.fromkeys(values))


class Row:
    """Microseconds of one layer, or of the same format in every model, by peer."""

    def __init__(self, name, times, floor):
        self.name, self.times, self.floor = name, times, floor
        self.best = min(times, key=times.get)
        self.us = times[self.best]

    def line(self, peers, plain):
        cells = [f"{self.times[peer]:.1f}" if peer in self.times else "-" for peer in peers]
        gain = f"{plain.us / self.us:.2f}" if plain else "-"
        return f"| {' | '.join([self.name, *cells, in_words(self.best), gain, f'{self.us / self.floor:.2f}'])} |"


def total_of(rows, name):
    """Of the peers that have every row; None where no peer has."""
    peers = [peer for peer in rows[0].times if all(peer in row.times for row in rows)]
    if not peers:
        return None
    return Row(f"**total** {name}", {peer: sum(row.times[peer] for row in rows) for peer in peers}, sum(row.floor for row in rows))


def table(results, n_tokens, peers):
    mine = [r for r in results if r["n_tokens"] == n_tokens]
    models, formats = (distinct(r[key] for r in mine) for key in ("model", "format"))
    peers = [peer for peer in peers if any(r["peer"] == peer for r in mine)]
    rows = {}
    for model in models:
        for form in formats:
            same = [r for r in mine if (r["model"], r["format"]) == (model, form)]
            if same:
                rows[model, form] = Row(f"{model} {form}", {r["peer"]: r["us"] for r in same}, same[0]["floor_us"])
    lines = [f"| T = {n_tokens}, us | {' | '.join(map(in_words, peers))} | best | bf16 / best | best / floor |",
             "|--" * (len(peers) + 4) + "|"]
    lines += [row.line(peers, rows.get((model, PLAIN))) for (model, _), row in rows.items()]
    if len(models) > 1:
        everywhere = [form for form in formats if all((model, form) in rows for model in models)]
        totals = {form: total_of([rows[model, form] for model in models], form) for form in everywhere}
        lines += [total.line(peers, totals.get(PLAIN)) for total in totals.values() if total]
    return lines


def legend(results, peers):
    for peer in peers:
        mine = [r for r in results if r["peer"] == peer]
        versions, notes = (distinct(r[key] for r in mine) for key in ("version", "note"))
        yield in_words(f"- {peer} {', '.join(versions)}: {' / '.join(notes)}")


def block(document):
    if document is None:
        return "Not measured yet.\n"
    results = document["results"]
    peers = distinct(r["peer"] for r in results)
    lines = [f"{document['device']['name']}, commit {document['commit']}, {document['date'][:10]}: [results](results/peers.json)."]
    if document["failures"]:
        lines[0] += f" {len(document['failures'])} cases failed."
    lines += ["", *legend(results, peers)]
    for n_tokens in sorted({r["n_tokens"] for r in results}):
        lines += ["", *table(results, n_tokens, peers)]
    return "\n".join(lines) + "\n"


def main():
    root = pathlib.Path(sys.argv[1])
    path = root / RESULTS
    document = json.loads(path.read_text()) if path.exists() else None
    marked_block.put(root / PAGE, MARKS, block(document), RESULTS, "--write" in sys.argv[2:])


if __name__ == "__main__":
    main()
