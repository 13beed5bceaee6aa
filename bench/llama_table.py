"""Puts the runs of bench/results/llama_cpp-*.json into docs/llama_cpp.md, or holds the page to them.

usage: llama_table.py <root of the repository> [--write]
A row is a run with one polling: tokens per second of stock llama.cpp and with libmoe, and the median ratio of neighbours.
"""
import json
import pathlib
import sys

sys.dont_write_bytecode = True
import marked_block  # noqa: E402

PAGE, RESULTS = "docs/llama_cpp.md", "bench/results/llama_cpp-*.json"
MARKS = ("<!-- speed: written by bench/llama_table.py . --write -->\n", "<!-- end of speed -->\n")
HEAD = ("| model, layers, threads | polling | prompt of 512: stock, libmoe | ratio | 64 tokens one by one: stock, libmoe | ratio |\n"
        + "|--" * 6 + "|")


def row(run, result):
    options = "" if run.get("op_offload", True) else ", --no-op-offload"
    cells = [f"{run['model']}, {run['layers']}, {run['threads']}{options}", result["polling"]]
    for part in ("prompt", "decode"):
        cells += [f"{result[f'stock {part}']:.0f}, {result[f'libmoe {part}']:.0f}", f"{result[f'ratio {part}']:.2f}"]
    return "| " + " | ".join(cells) + " |"


def section(path):
    document = json.loads(path.read_text())
    assert document["schema"] == "libmoe.bench-llama-cpp.1", path
    runs = document["runs"]
    machines = {(r["processor"], r["n_processors"], r["commit"], r["date"][:10], r["ggml"], r.get("gpu"))
                for r in runs}
    assert len(machines) == 1, f"{path}: runs of several machines, commits or days"
    processor, n, commit, date, ggml, gpu = machines.pop()
    beside = f", all but the experts on one {gpu}" if gpu else ""
    title = f"{processor}, {n} cores{beside}, commit {commit}, {date}, ggml {ggml}: [results](../bench/results/{path.name})."
    return "\n".join([title, "", HEAD, *(row(run, result) for run in runs for result in run["results"])]) + "\n"


def main():
    root, is_written = pathlib.Path(sys.argv[1]), "--write" in sys.argv[2:]
    text = "\n".join(section(path) for path in sorted(root.glob(RESULTS)))
    marked_block.put(root / PAGE, MARKS, text, RESULTS, is_written)


if __name__ == "__main__":
    main()
