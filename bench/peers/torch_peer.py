"""What the programs have in common that time another library's GEMMs by torch and put them beside the layers that moe-bench has timed on the
same card just before.

A layer has two sets of random weights that take turns; with more than some ten tokens a set is several times the L2. Calls are replayed from a
CUDA graph, each with even random ids of its own; the median of the replays counts. Results that are zero or not finite are a failure."""

import argparse
import importlib.metadata
import json
import statistics
import time

N_SETS, N_CALLS, N_REPLAYS = 2, 4, 20
QUANTIZED = "_fp8"  # behind a format's name where activations are E4M3


def arguments(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", nargs="+", help="JSON of moe-bench")
    parser.add_argument("--json", required=True)
    parser.add_argument("--seconds", type=float, default=600, help="begin no new case after that long, and list the rest as failures")
    return parser.parse_args()


def version_of(*packages):
    """The version of the last one; None, and the reason printed, where one of them is missing."""
    try:
        return [importlib.metadata.version(package) for package in packages][-1]
    except importlib.metadata.PackageNotFoundError as error:
        print(f"skipped: {error}")
        return None


def even_ids(torch, n_tokens, n_experts, top_k):
    """Of every call."""
    return [torch.randn((n_tokens, n_experts), device="cuda").topk(top_k, 1).indices.int() for _ in range(N_CALLS)]


def replayed_us(torch, calls, outputs):
    """Microseconds of one of the N_CALLS calls that `calls` makes."""
    calls()
    torch.cuda.synchronize()
    for out in outputs:
        if not torch.isfinite(out).all() or not out.any():
            raise RuntimeError("the output is zero or not finite")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls()
    times = []
    for _ in range(N_REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / N_CALLS)
    return statistics.median(times[2:])


def is_wanted(one):
    """Kernels that were forced count where activations are E4M3: plans take those of four bits only so."""
    return one["mode"] == "ids" and not one["zipf"] and (not one["kernels"] or "activation_quantization" in one)


def make_sets(make_matrices, form, shape):
    """The N_SETS of the first matrices of a layer, and those of the second ones."""
    hidden, intermediate, n_experts, _ = shape
    sizes = ((2 * intermediate, hidden), (hidden, intermediate))
    return [[make_matrices(form, n_experts, *size) for _ in range(N_SETS)] for size in sizes]


def measure(args, peer, formats, make_matrices, time_case):
    """peer: name, version and note of its results. formats: those with activations as given, and, with QUANTIZED behind the name, those with
    activations in E4M3. make_matrices(format, experts, rows, columns) returns random weights, time_case(sets, format, shape, n_tokens)
    microseconds; shape is hidden, intermediate, experts, top_k. Returns the exit status."""
    runs = []
    for path in args.measured:
        with open(path) as file:
            runs.append(json.load(file))
    results, failures = [], []
    made_for = made = None
    begin = time.monotonic()
    for one in (one for run in runs for one in run["results"] if is_wanted(one)):
        form = one["format"] + (QUANTIZED if "activation_quantization" in one else "")
        shape = tuple(one["shape"][key] for key in ("hidden", "intermediate", "n_experts", "top_k"))
        if form not in formats:
            continue
        if time.monotonic() - begin > args.seconds:
            failures.append(f"{one['case']}: no time was left")
            continue
        case = {"model": one["model"], "format": form, "n_tokens": one["n_tokens"], "floor_us": one["floor_us"]}
        try:
            if made_for != (form, shape):
                made_for = made = None
                made = make_sets(make_matrices, form, shape)
                made_for = form, shape
            us = time_case(made, form, shape, one["n_tokens"])
        except Exception as error:  # another library's: whatever it throws is a case that was not measured
            failures.append(f"{one['case']}: {error}")
            print(failures[-1])
            continue
        results.append({"peer": "libmoe", "version": runs[0]["version"], **case, "us": one["us"], "note": "dispatch, experts, combine"})
        results.append({"peer": peer["name"], "version": peer["version"], **case, "us": us, "note": peer["note"]})
        print(f"{one['case']:60} libmoe {one['us']:8.1f}  {peer['name']} {us:8.1f}  {one['us'] / us:5.2f}", flush=True)
    heading = {key: runs[0][key] for key in ("commit", "date", "version", "device", "read_floor", "dense_tflops")}
    with open(args.json, "w") as file:
        json.dump({"schema": "libmoe.peers.1", **heading, "results": results, "failures": failures}, file, indent=1)
        file.write("\n")
    return 1 if failures else 0
