"""Line coverage of each reader by the committed inputs alone: builds with gcov in build/fuzz-coverage, runs every target over
tests/fuzz/corpus and tests/fuzz/regressions without changing anything, and prints a table.

    python3 tests/fuzz/coverage.py [--missed] [READER ...]

Fails when a reader is below 90 %. --missed prints the lines that no input reaches.
"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "fuzz-coverage"
WANTED = 90.0

# A reader: the targets that run it, and its files. plan/plan.cpp is not in the list: half of it is for GPUs.
READERS = {
    "safetensors": (["safetensors"], ["checkpoint/safetensors.cpp", "checkpoint/tensor_index.cpp"]),
    "index": (["index"], ["checkpoint/shard_index.cpp"]),
    "json": (["config", "index", "safetensors"], ["checkpoint/json.cpp"]),
    "config": (["config", "gguf"], ["checkpoint/settings.cpp", "checkpoint/family_parts.cpp", "checkpoint/family_deepseek.cpp",
                                    "checkpoint/family_qwen.cpp", "checkpoint/family_mixtral.cpp",
                                    "checkpoint/family_gpt_oss.cpp", "checkpoint/family_sigmoid.cpp",
                                    "checkpoint/family_llama4.cpp", "checkpoint/family_gemma4.cpp"]),
    "gguf": (["gguf"], ["checkpoint/gguf.cpp", "checkpoint/cursor.hpp", "checkpoint/family_gguf.cpp"]),
    "model": (["model", "gguf"], ["checkpoint/layer_builder.cpp", "checkpoint/layer_places.cpp"]),
    "packed": (["packed"], ["weights/packed_file.cpp", "weights/packed_file_header.hpp", "weights/packed_file_header.cpp"]),
    "quantised": (["model", "quant_state"], ["checkpoint/weight_int.cpp", "checkpoint/weight_fp.cpp",
                                          "checkpoint/weight_mlx.cpp", "checkpoint/weight_torchao.cpp"]),
    "plan": (["plan"], ["api/plan.cpp", "api/structs.hpp", "layer/layer_rules.cpp", "layer/slice.cpp"]),
}


def build():
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DMOE_EXAMPLES=OFF",
                    "-DCMAKE_CXX_FLAGS_DEBUG=-O0 -g --coverage -fprofile-abs-path", "-DCMAKE_C_FLAGS_DEBUG=-O0 -g"],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", BUILD, "--target", "moe-fuzz-replay"], check=True, stdout=subprocess.DEVNULL)


def run(targets):
    for counts in BUILD.rglob("*.gcda"):
        counts.unlink()
    for target in targets:
        folders = [ROOT / "tests" / "fuzz" / kind / target for kind in ("corpus", "regressions")]
        subprocess.run([BUILD / "bin/tests/moe-fuzz-replay", target, *[f for f in folders if f.is_dir()]], check=True,
                       stdout=subprocess.DEVNULL)


def lines_of(files):
    """{file: {line: runs}}, over all objects that were run."""
    wanted = {str(ROOT / "libmoe" / file): file for file in files}
    found = {file: {} for file in files}
    for counts in BUILD.rglob("*.gcda"):
        if "moe_objects" not in str(counts) and "moe_fuzz_targets" not in str(counts):
            continue
        out = subprocess.run(["gcov", "--json-format", "--stdout", counts], check=True, capture_output=True, cwd=BUILD)
        for report in json.loads(out.stdout)["files"]:
            lines = found.get(wanted.get(report["file"]))
            if lines is None:
                continue
            for line in report["lines"]:
                number = line["line_number"]
                lines[number] = lines.get(number, 0) + line["count"]
    return found


def main(arguments):
    show_missed = "--missed" in arguments
    names = [a for a in arguments if not a.startswith("--")] or list(READERS)
    build()
    low = []
    for name in names:
        targets, files = READERS[name]
        run(targets)
        reached_all = total_all = 0
        for file, lines in lines_of(files).items():
            missed = sorted(n for n, count in lines.items() if count == 0)
            reached = len(lines) - len(missed)
            reached_all += reached
            total_all += len(lines)
            print(f"  {file:36} {reached:4} of {len(lines):4} lines, {100 * reached / max(1, len(lines)):5.1f} %")
            if show_missed and missed:
                print("    missed:", *missed)
        percent = 100 * reached_all / max(1, total_all)
        print(f"{name} (inputs of {', '.join(targets)}): {percent:.1f} %", flush=True)
        if percent < WANTED:
            low.append(name)
    if low:
        sys.exit(f"below {WANTED} %: {' '.join(low)}")


if __name__ == "__main__":
    main(sys.argv[1:])
