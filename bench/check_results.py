"""Holds bench/results/*.json against their schemas, and the schemas against documents that are wrong.

usage: check_results.py <folder bench>
Beyond the schema: times in order, times_floor and the case's name as the other fields have them,
no case twice, read floors that ascend; of peers one floor for a layer and no peer twice; of the CPU
its rates and ratios, and a peer that computes the same layer; of llama.cpp ratios of its rates. Documents of this file are changed in
one field at a time, and every change must be refused, so that the test means something before there
are results.
"""
import copy
import json
import pathlib
import sys

sys.dont_write_bytecode = True
from cpu_results import peers_of  # noqa: E402
from goal_rules import name_of  # noqa: E402

try:
    import jsonschema
except ImportError:
    sys.exit("the Python module jsonschema is missing: install the package python3-jsonschema")

SAMPLE = {
    "schema": "libmoe.bench.3",
    "commit": "0123abc",
    "date": "2000-01-01T00:00:00Z",
    "version": "0.1.0",
    "device": {
        "name": "a device of this test",
        "multiprocessors": 100,
        "l2_bytes": 50000000,
        "memory_bytes": 80000000000,
        "clock_khz_max": 1500000,
        "driver_cuda": 13000,
        "runtime_cuda": 13000,
    },
    "read_floor": [{"bytes": 1e6, "us": 4.0}, {"bytes": 1e9, "us": 400.0}],
    "dense_tflops": 500.0,
    "results": [
        {
            "case": "a-model/nvfp4/ids/T8/zipf1.2/unfused/experts:*_a_kernel",
            "model": "a-model",
            "shape": {"hidden": 64, "intermediate": 32, "n_experts": 4, "top_k": 2, "shared_intermediate": 32},
            "format": "nvfp4",
            "mode": "ids",
            "n_tokens": 8,
            "zipf": 1.2,
            "unfused": True,
            "x_type": "bf16",
            "intermediate_type": "bf16",
            "kernels": "experts:*_a_kernel",
            "kernel": "sm80_nvfp4_bf16_generic_gate_up",
            "us": 20.0,
            "us_lowest": 19.0,
            "us_highest": 30.0,
            "floor_us": 10.0,
            "times_floor": 2.0,
            "weight_bytes": 2e7,
            "tb_per_s": 1.0,
            "flops": 1e9,
            "tflops": 50.0,
            "workspace_bytes": 1e6,
            "n_sets": 3,
            "n_calls": 24,
            "n_launches": 2.0,
            "stages": [
                {"stage": "experts", "us": 15.0, "us_lowest": 14.0, "us_highest": 16.0, "bytes": 2e7, "flops": 1e9}
            ],
        }
    ],
    "failures": [],
}
# Optional in the schema, so that the sample has it in a case of its own.
SAMPLE["results"].append({**copy.deepcopy(SAMPLE["results"][0]), "case": "a-model/nvfp4/ids/T8/zipf1.2/unfused/activations_fp8/experts:*_a_kernel",
                          "activation_quantization": "fp8"})


PEERS_SAMPLE = {
    **{key: value for key, value in SAMPLE.items() if key != "results"},
    "schema": "libmoe.peers.1",
    "results": [
        {
            "peer": peer,
            "version": "0.1.0",
            "model": "a-model",
            "format": "nvfp4",
            "n_tokens": 8,
            "us": us,
            "floor_us": 10.0,
            "note": "from ids to the sum",
        }
        for peer, us in (("ours", 12.0), ("theirs", 14.0))
    ],
}


CPU_SAMPLE = {
    **{key: SAMPLE[key] for key in ("commit", "date", "version", "failures")},
    "schema": "libmoe.bench-cpu.3",
    "machine": {
        "cpu": "a processor of this test",
        "isa": ["avx2", "avx512f"],
        "n_processors": 4,
        "n_cores": 2,
        "l2_bytes": 1000000,
        "l3_bytes": 30000000,
        "memory_bytes": 80000000000,
        "huge_pages": "madvise",
        "load": 0.5,
    },
    "read_rates": [{"n_threads": 1, "gb_per_s": 30.0}, {"n_threads": 2, "gb_per_s": 50.0}],
    "peers": [
        {"name": "ggml", "version": "0.25.1", "variant": "an_isa"},
        {"name": "ik", "version": "0123abc", "variant": "another_isa"},
    ],
    "results": [
        {
            "case": "a-model/q4_k+q6_k/bf16/T8/2threads",
            "model": "a-model",
            "shape": {"hidden": 256, "intermediate": 512, "n_experts": 4, "top_k": 2},
            "format": "q4_k+q6_k",
            "x_type": "bf16",
            "n_tokens": 8,
            "n_threads": 2,
            "int8": False,
            "kernels": "",
            "kernel": "avx2_q4_k_int8x2_gemv_gate_up",
            "n_sets": 3,
            "n_calls": 24,
            "weight_bytes": 2e7,
            "us": 500.0,
            "us_best": 480.0,
            "gb_per_s": 40.0,
            "gb_per_s_best": 41.0,
            "read_gb_per_s": 48.0,
            "read_gb_per_s_best": 50.0,
            "ratio": 0.83,
            "ratio_best": 0.82,
            "flops": 12582912.0,
            "gflops": 25.165824,
            "gflops_best": 26.2144,
            "peers": [
                {
                    "name": name,
                    "format": "q4_k+q6_k",
                    "buffer": buffer,
                    "us": us,
                    "us_best": us - 10.0,
                    "gb_per_s": 2e4 / us,
                    "gb_per_s_best": 25.3,
                    "ratio": us / 500.0,
                    "ratio_best": 1.6205533596837944,
                    "error": 0.01,
                }
                for name, buffer, us in (("ggml", "CPU_REPACK+CPU", 800.0), ("ik", "CPU", 820.0))
            ],
        }
    ],
}


def in_second_form(document):
    """Results of the CPU as version 2 has them, with their first peer alone."""
    made = copy.deepcopy(document)
    made["schema"] = made["schema"][:-1] + "2"
    made["peer"] = made.pop("peers")[0]
    for r in made["results"]:
        r["peer"] = {key: value for key, value in r.pop("peers")[0].items() if key != "name"}
    return made


CPU_SECOND_SAMPLE = in_second_form(CPU_SAMPLE)

LLAMA_CPP_SAMPLE = {
    "schema": "libmoe.bench-llama-cpp.1",
    "runs": [
        {
            "commit": "0123abc",
            "date": "2000-01-01T00:00:00Z",
            "processor": "a processor of this test",
            "n_processors": 2,
            "ggml": "0.25.1",
            "package": "3.22.1",
            "model": "a-model",
            "layers": 4,
            "threads": 2,
            "rounds": 5,
            "results": [
                {
                    "polling": "50",
                    "stock prompt": 100.0,
                    "libmoe prompt": 210.0,
                    "ratio prompt": 2.1,
                    "stock decode": 50.0,
                    "libmoe decode": 55.0,
                    "ratio decode": 1.1,
                },
            ],
        },
    ],
}


def problems(document, validator):
    """What is wrong with a document; empty for a good one."""
    error = jsonschema.exceptions.best_match(validator.iter_errors(document))
    if error:
        return [f"{'/'.join(map(str, error.absolute_path))}: {error.message}"]
    if document["schema"] == LLAMA_CPP_SAMPLE["schema"]:
        return list(llama_cpp_disagrees(document))
    if document["schema"] in (CPU_SAMPLE["schema"], CPU_SECOND_SAMPLE["schema"]):
        return list(cpu_disagrees(document))
    found = []
    sizes = [point["bytes"] for point in document["read_floor"]]
    if sizes != sorted(set(sizes)):
        found.append("read_floor does not ascend")
    return found + list((peers_disagree if document["schema"] == PEERS_SAMPLE["schema"] else cases_disagree)(document["results"]))


def llama_cpp_disagrees(document):
    """Ratios are medians of neighbours, rates medians of all, so they agree roughly."""
    seen = set()
    for run in document["runs"]:
        for result in run["results"]:
            case = (run["model"], run["layers"], run["threads"], run.get("gpu"), run.get("op_offload", True),
                    result["polling"])
            if case in seen:
                yield f"{case} twice"
            seen.add(case)
            for part in ("prompt", "decode"):
                if not 0.7 < result[f"ratio {part}"] * result[f"stock {part}"] / result[f"libmoe {part}"] < 1.4:
                    yield f"{case}: the ratio of {part} is not that of its rates"


def cpu_disagrees(document):
    threads = [rate["n_threads"] for rate in document["read_rates"]]
    if threads != sorted(set(threads)):
        yield "read_rates does not ascend"
    names = [result["case"] for result in document["results"]]
    yield from (f"{name}: twice" for name in sorted(set(names)) if names.count(name) > 1)
    yield from twice(document.get("peers", []))
    for r in document["results"]:
        if r["n_threads"] not in threads:
            yield f"{r['case']}: no read rate of its threads"
        yield from (f"{r['case']}: {problem}" for problem in twice(r.get("peers", [])))
        for name in peers_of(r).keys() - peers_of(document).keys():
            yield f"{r['case']}: a peer {name} that is not named"
        yield from (f"{r['case']}: {problem}" for problem in cpu_disagreements(r))


def twice(peers):
    names = [peer["name"] for peer in peers]
    return (f"the peer {name} twice" for name in sorted(set(names)) if names.count(name) > 1)


def cpu_disagreements(r):
    shape, peers = r["shape"], peers_of(r)
    threads = f"{r['n_threads']}thread" + ("s" if r["n_threads"] > 1 else "")
    name = f"{r['model']}/{r['format']}/{r['x_type']}/T{r['n_tokens']}/{threads}"
    name += ("/int8" if r["int8"] else "") + ("/packed" if r.get("packed") else "") + (f"/{r['kernels']}" if r["kernels"] else "")
    if r["case"] != name:
        yield f"the other fields say {name}"
    if r["n_sets"] * shape["n_experts"] < shape["top_k"]:
        yield "more experts than there are"
    if r["ratio_best"] > 1.5:
        yield f"ratio_best is {r['ratio_best']}: what beats the read rate by far was measured wrongly"
    for what, timed in (("", r), *((f"{name}'s ", peer) for name, peer in peers.items())):
        if timed["us_best"] > timed["us"]:
            yield f"{what}us_best is above us"
        if timed["gb_per_s_best"] < timed["gb_per_s"]:
            yield f"{what}gb_per_s_best is below gb_per_s"
    wanted = [
        (r, "flops", 6.0 * r["n_tokens"] * shape["top_k"] * shape["hidden"] * shape["intermediate"]),
        (r, "gflops", r["flops"] / r["us"] / 1e3),
        (r, "gflops_best", r["flops"] / r["us_best"] / 1e3),
        (r, "ratio_best", r["gb_per_s_best"] / r["read_gb_per_s_best"]),
    ]
    for peer in peers.values():
        wanted.append((peer, "ratio_best", r["gb_per_s_best"] / peer["gb_per_s_best"]))
    for where, key, expected in wanted:
        if abs(where[key] - expected) > 1e-6 * expected:
            yield f"{key} is {where[key]}, the other fields say {expected}"


def cases_disagree(results):
    names = [result["case"] for result in results]
    yield from (f"{name}: twice" for name in sorted(set(names)) if names.count(name) > 1)
    for result in results:
        yield from (f"{result['case']}: {problem}" for problem in disagreements(result))


def peers_disagree(results):
    floors, seen = {}, set()
    for r in results:
        layer = (r["model"], r["format"], r["n_tokens"])
        name = f"{r['peer']}, {r['model']}/{r['format']}/T{r['n_tokens']}"
        if (r["peer"], layer) in seen:
            yield f"{name}: twice"
        seen.add((r["peer"], layer))
        if floors.setdefault(layer, r["floor_us"]) != r["floor_us"]:
            yield f"{name}: the layer has another floor above"
        if r["us"] < 0.5 * r["floor_us"]:
            yield f"{name}: what beats the floor by far was measured wrongly"


def disagreements(r):
    if r["case"] != name_of(r):
        yield f"the other fields say {name_of(r)}"
    stages = r.get("stages", [])
    for timed in (r, *stages):
        if not timed["us_lowest"] <= timed["us"] <= timed["us_highest"]:
            yield f"us {timed['us']} is not between {timed['us_lowest']} and {timed['us_highest']}"
    if len({stage["stage"] for stage in stages}) != len(stages):
        yield "a stage is there twice"
    for key, expected in (
        ("times_floor", r["us"] / r["floor_us"]),
        ("tb_per_s", r["weight_bytes"] / r["us"] / 1e6),
        ("tflops", r["flops"] / r["us"] / 1e6),
    ):
        if abs(r[key] - expected) > 1e-6 * expected:
            yield f"{key} is {r[key]}, the other fields say {expected}"


def objects(node, path=()):
    """Paths of all objects of a document."""
    if isinstance(node, dict):
        yield path
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from objects(child, path + (key,))


def at(document, path):
    for key in path:
        document = document[key]
    return document


def changed(path, change, sample=SAMPLE):
    document = copy.deepcopy(sample)
    change(at(document, path))
    return document


def mutations_of(sample):
    """Those that any document has."""
    for path in objects(sample):
        for key, value in at(sample, path).items():
            where = "/".join(map(str, path + (key,)))
            yield f"without {where}", changed(path, lambda node: node.pop(key), sample)
            wrong = [value] if isinstance(value, (str, dict)) else str(value)
            yield f"{where} of another type", changed(path, lambda node: node.update({key: wrong}), sample)
            if isinstance(value, (int, float)):
                yield f"{where} below zero", changed(path, lambda node: node.update({key: -value}), sample)
        where = "/".join(map(str, path)) or "the document"
        yield f"{where} with a field more", changed(path, lambda node: node.update(more=1), sample)
    yield "another schema", changed((), lambda d: d.update(schema=sample["schema"][:-1] + "9"), sample)
    yield "no commit", changed((), lambda d: d.update(commit="unknown"), sample)
    for ascending in {"read_floor", "read_rates"} & sample.keys():
        yield f"{ascending} descends", changed((ascending,), lambda all: all.reverse(), sample)


def second_with_quantized(document):
    """In other respects as the second schema wants it."""
    document["schema"] = "libmoe.bench.2"
    for r in document["results"]:
        for key in ("x_type", "intermediate_type", "n_launches"):
            del r[key]


def mutations():
    yield from mutations_of(SAMPLE)
    result = ("results", 0)
    yield "the first schema with fields of the second", changed((), lambda d: d.update(schema="libmoe.bench.1"))
    yield "no time at all", changed(result, lambda r: r.update(us=0, us_lowest=0))
    yield "far below the floor", changed(result, lambda r: r.update(floor_us=100.0, times_floor=0.2))
    yield "a ratio that is not one", changed(result, lambda r: r.update(times_floor=1.1))
    yield "a rate that is not one", changed(result, lambda r: r.update(tb_per_s=4.0))
    yield "times out of order", changed(result, lambda r: r.update(us_lowest=21.0))
    yield "times of a stage out of order", changed((*result, "stages", 0), lambda s: s.update(us_lowest=15.5))
    yield "a stage that is none", changed((*result, "stages", 0), lambda s: s.update(stage="router"))
    yield "a stage twice", changed((*result, "stages"), lambda all: all.append(all[0]))
    yield "the second schema with fields of the third", changed((), lambda d: d.update(schema="libmoe.bench.2"))
    yield "the second schema with quantized activations", changed((), second_with_quantized)
    yield "a plan of another name", changed(result, lambda r: r.update(unfused=False))
    yield "x in a type that the name lacks", changed(result, lambda r: r.update(x_type="f16"))
    yield "an intermediate in a type that the name lacks", changed(result, lambda r: r.update(intermediate_type="f16"))
    yield "quantized activations that the name lacks", changed(result, lambda r: r.update(activation_quantization="fp8"))
    yield "a quantization that is none", changed(("results", 1), lambda r: r.update(
        activation_quantization="int3", case=r["case"].replace("fp8", "int3")))
    yield "a type that is none", changed(result, lambda r: r.update(x_type="f64"))
    yield "formats of four matrices", changed(result, lambda r: r.update(format="a+b+c+d", case=r["case"].replace("nvfp4", "a+b+c+d")))
    yield "a name for something else", changed(result, lambda r: r.update(n_tokens=9))
    yield "a mode that is none", changed(result, lambda r: r.update(mode="graph"))
    yield "a kernel of the CPU", changed(result, lambda r: r.update(kernel="avx2_dense_f32_experts"))
    yield "a time that is no number", changed(result, lambda r: r.update(us=None))
    yield "a case twice", changed(("results",), lambda all: all.append(all[0]))


def mutations_of_peers():
    def of_second(**fields):
        return changed(("results", 1), lambda r: r.update(fields), PEERS_SAMPLE)

    yield from mutations_of(PEERS_SAMPLE)
    yield "the schema of cases", changed((), lambda d: d.update(schema=SAMPLE["schema"]), PEERS_SAMPLE)
    yield "a peer twice", of_second(peer="ours")
    yield "two floors of a layer", of_second(floor_us=11.0)
    yield "far below the floor", of_second(us=4.0)
    yield "no time at all", of_second(us=0)
    yield "a peer without a name", of_second(peer="")
    yield "a name that breaks a table", of_second(peer="a | b")
    yield "a note of two lines", of_second(note="a\nb")
    yield "a model that is no word", of_second(model="A model")
    yield "half a token", of_second(n_tokens=0.5)


def mutations_of_cpu():
    def of_result(**fields):
        return changed(("results", 0), lambda r: r.update(fields), CPU_SAMPLE)

    def of_peer(**fields):
        return changed(("results", 0, "peers", 1), lambda p: p.update(fields), CPU_SAMPLE)

    yield from mutations_of(CPU_SAMPLE)
    yield from mutations_of(CPU_SECOND_SAMPLE)
    yield "a name for something else", of_result(n_tokens=16, flops=2 * 12582912.0, gflops=2 * 25.165824, gflops_best=2 * 26.2144)
    yield "flops of something else", of_result(flops=1e7, gflops=20.0, gflops_best=1e4 / 480)
    yield "a rate that is not one", of_result(gflops=26.0)
    yield "a best time that is not the best", of_result(us_best=510.0, gflops_best=12582.912 / 510)
    yield "a best rate that is not the best", of_result(gb_per_s_best=39.0, ratio_best=0.78)
    yield "a ratio that is not one", of_result(ratio_best=0.9)
    yield "far above the read rate", of_result(read_gb_per_s_best=20.0, ratio_best=2.05)
    yield "a kernel of no family", of_result(kernel="gemv")
    yield "threads without a read rate", of_result(n_threads=3, case="a-model/q4_k+q6_k/bf16/T8/3threads")
    yield "a time that is no number", of_result(us=None)
    yield "a peer that computes something else", of_peer(error=0.9)
    yield "a peer that computes nothing", of_peer(error=0.0)
    yield "a peer's ratio that is not one", of_peer(ratio_best=1.0)
    yield "a peer's best time that is not the best", of_peer(us_best=900.0)
    yield "a peer of no name", of_peer(name="another")
    yield "a peer that is not named", changed(("peers",), lambda all: all.pop(), CPU_SAMPLE)
    yield "a peer named twice", changed(("peers",), lambda all: all.append(all[0]), CPU_SAMPLE)
    yield "a peer twice", changed(("results", 0, "peers"), lambda all: all.append(all[0]), CPU_SAMPLE)
    yield "the second schema with peers of the third", changed((), lambda d: d.update(schema=CPU_SECOND_SAMPLE["schema"]), CPU_SAMPLE)
    yield "the third schema with a peer of the second", changed((), lambda d: d.update(schema=CPU_SAMPLE["schema"]), CPU_SECOND_SAMPLE)
    yield "the second schema with a peer that is not named", changed((), lambda d: d.update(peer=None), CPU_SECOND_SAMPLE)
    yield "the second schema with another peer", changed(("peer",), lambda p: p.update(name="ik"), CPU_SECOND_SAMPLE)
    yield "a case twice", changed(("results",), lambda all: all.append(all[0]), CPU_SAMPLE)


def is_of_peers(path):
    return path.name.startswith("peers")


def mutations_of_llama_cpp():
    def of_result(**fields):
        return changed(("runs", 0, "results", 0), lambda r: r.update(fields), LLAMA_CPP_SAMPLE)

    yield from mutations_of(LLAMA_CPP_SAMPLE)
    yield "a ratio that the rates have not", of_result(**{"ratio decode": 2.0})
    yield "no tokens", of_result(**{"stock prompt": 0})
    yield "a polling that is none", of_result(polling="often")
    yield "a run twice", changed((), lambda d: d.update(runs=2 * d["runs"]), LLAMA_CPP_SAMPLE)


def is_of_llama_cpp(path):
    return path.name.startswith("llama_cpp-")


def is_of_cpu(path):
    return path.name.startswith("cpu-")


# (schema, good document, wrong ones, files of results)
def is_of_cases(path):
    return not any(is_other(path) for is_other in (is_of_peers, is_of_cpu, is_of_llama_cpp))


KINDS = (
    ("cpu.schema.json", CPU_SAMPLE, mutations_of_cpu, is_of_cpu),
    ("results.schema.json", SAMPLE, mutations, is_of_cases),
    ("peers.schema.json", PEERS_SAMPLE, mutations_of_peers, is_of_peers),
    ("llama_cpp.schema.json", LLAMA_CPP_SAMPLE, mutations_of_llama_cpp, is_of_llama_cpp),
)


def check_kind(bench, schema_name, sample, mutations_of_kind, is_mine):
    schema = json.loads((bench / schema_name).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    samples = [sample, CPU_SECOND_SAMPLE] if sample is CPU_SAMPLE else [sample]
    wrong = [f"the sample: {problem}" for one in samples for problem in problems(one, validator)]
    mutants = list(mutations_of_kind())
    wrong += [f"accepted: {what}" for what, mutant in mutants if not problems(mutant, validator)]
    print(f"{schema_name}: {len(mutants)} wrong documents tried")
    files = [path for path in sorted((bench / "results").glob("*.json")) if is_mine(path)]
    for path in files:
        document = json.loads(path.read_text())
        wrong += [f"{path.name}: {problem}" for problem in problems(document, validator)]
        print(f"{path.name}: {len(document.get('results', []))} results")
    if not files:
        print(f"{schema_name}: there are no results yet")
    return wrong


def main():
    bench = pathlib.Path(sys.argv[1])
    wrong = [problem for kind in KINDS for problem in check_kind(bench, *kind)]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
