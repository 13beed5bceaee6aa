"""Runs models in a process of its own, because a backend that ggml has loaded stays.

    python3 run_models.py LIBRARIES TASKS.json RESULTS.npz      with the plug-in where GGML_BACKEND_PATH names it

A task has a name, a path, and options: tokens per sequence, sequences, threads, polling (of a thread pool that is attached
then), use_mmap, watch (the routing scores, or every value: then each operation is a graph of its own)."""
import ctypes
import json
import os
import re
import sys

import numpy as np

import libllama
import models

COUNTS = ("graphs", "chains", "slot_chains", "matrices", "loops", "shared")
# Scores that experts are chosen by, in the order in which a graph may have them.
SCORES = re.compile(r"ffn_moe_(logits|logits_biased|probs_biased)-(\d+)$")


class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in COUNTS]


def counts_of_plugin():
    path = os.environ.get("GGML_BACKEND_PATH")
    counts = Counts()
    if path:
        ctypes.CDLL(path).moe_ggml_get_counts(ctypes.byref(counts))
    return np.array([getattr(counts, name) for name in COUNTS], np.int64)


def token_of(sequence, position):
    return (13 * sequence + 7 * position + 3) % models.N_VOCABULARY


class Scores:
    """Distance of the last chosen expert from the first that was not, per token and layer."""

    def __init__(self, top_k, n_experts):
        self.top_k, self.n_experts = top_k, n_experts
        self.last, self.gaps = {}, []

    def watch(self, name, values):
        match = SCORES.match(name)
        if values is not None and match:
            self.last[match[2]] = values.reshape(-1, self.n_experts)
        return bool(match)

    def end_of_decode(self):
        ordered = [-np.sort(-scores, axis=1) for scores in self.last.values()]
        self.gaps.append(np.min([o[:, self.top_k - 1] - o[:, self.top_k] for o in ordered], axis=0))
        self.last = {}


def run(library, task):
    sequences, length = task.get("sequences", 6), task.get("tokens", 5)
    model = libllama.Model(library, task["path"], task.get("use_mmap", True))
    scores = Scores(*task["routing"]) if task.get("watch") == "scores" else None
    watch = scores.watch if scores else (lambda name, values: True) if task.get("watch") == "all" else None
    context = libllama.Context(model, sequences, length + 1, task.get("threads", 1), on_value=watch,
                               n_batch=max(512, sequences * length))
    if "polling" in task:
        context.attach_pool(task["threads"], task["polling"])
    before = counts_of_plugin()
    prompt = [(s, p, token_of(s, p)) for s in range(sequences) for p in range(length)]
    last = [(s, length, token_of(s, length)) for s in range(sequences)]
    found = {}
    for part, tokens in (("prompt", prompt), ("decode", last)):
        status = context.decode(tokens)
        if status != 0:
            raise RuntimeError(f"{task['name']}: llama_decode answered {status}")
        found[part] = context.logits(len(tokens))
        if scores:
            scores.end_of_decode()
    found["counts"] = counts_of_plugin() - before
    found["splits"] = np.array(context.n_splits())
    if scores:
        found["gaps"] = np.concatenate(scores.gaps)
    context.close()
    model.close()
    return found


def main():
    folder, tasks, results = sys.argv[1:]
    library = libllama.Llama(folder)
    everything = {"devices": np.array(sorted(library.devices()))}
    for task in json.load(open(tasks)):
        everything |= {f"{task['name']}/{key}": value for key, value in run(library, task).items()}
    np.savez(results, **everything)


if __name__ == "__main__":
    main()
