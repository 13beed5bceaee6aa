"""The goals of the lists other than hopper, of made-up results: a device that reads 1 MB and multiplies 500 Mflop in a microsecond.

usage: test_list_goals.py [MOE_BENCH]    MOE_BENCH: every list has what its goals compare
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import check_results  # noqa: E402
import goal_rules  # noqa: E402
import goals_table  # noqa: E402
import list_goals  # noqa: E402

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else None
SHAPE = {"hidden": 2048, "intermediate": 768, "n_experts": 128, "top_k": 8, "shared_intermediate": 0}
POINTS = [{"bytes": 1e6, "us": 1.0}, {"bytes": 1e9, "us": 1000.0}]
HEADS = "| regime | formats | goal | cases | met | median of time / goal | worst case |\n|--|--|--|--|--|--|--|\n"


def result(form, n_tokens, us, mb=10, multiply_us=0.5, model="a", **more):
    floor_us, flops = float(max(mb, multiply_us)), 5e8 * multiply_us
    r = {**check_results.SAMPLE["results"][0], "model": model, "shape": SHAPE, "format": form, "mode": "ids", "n_tokens": n_tokens,
         "zipf": 0.0, "unfused": False, "kernels": "", "us": us, "us_lowest": us, "us_highest": us, "floor_us": floor_us,
         "times_floor": us / floor_us, "weight_bytes": mb * 1e6, "tb_per_s": mb / us, "flops": flops, "tflops": flops / us / 1e6,
         "stages": [], **more}
    return {**r, "case": goal_rules.name_of(r)}


def document(*results, failures=()):
    return {**check_results.SAMPLE, "read_floor": POINTS, "results": list(results), "failures": list(failures)}


def rows(name, *results, failures=()):
    """Those of the list's table that have a case."""
    run = goal_rules.Run(document(*results, failures=failures), "a file", is_hopper=False)
    made = [goal.row(run) for goal in list_goals.LISTS[name].goals(run)]
    return [row for row in made if " | 0 | - | " not in row]


def stage(us):
    return [{"stage": "experts", "us": us, "us_lowest": us, "us_highest": us, "bytes": 1.0, "flops": 1.0}]


class ByHand(unittest.TestCase):
    maxDiff = None

    def test_formats(self):
        self.assertEqual(rows(
            "formats",
            result("bf16", 8192, 300.0),
            result("q6_k", 1, 12.0),  # 1.3 x 10 + 2 = 15
            result("q5_0", 1, 163.0, 100),  # 1.3 x 100 + 3 = 133
            result("q6_k", 16, 17.25),  # 1.15 x 15
            result("q6_k", 512, 20.0, 13),  # 13 / 0.65 = 20
            result("q6_k", 64, 20.0, 13, 13.1),  # none: the floor is of flops
            result("q6_k", 8192, 300.0),  # 300 / 0.75 = 400
            result("iq2_xs", 1, 33.0),  # 2 x 10 + 2 = 22
            result("iq2_xs", 16, 33.0),  # none
            result("iq3_xxs+iq4_xs", 8192, 500.0),  # 300 / 0.6 = 500
            result("awq", 8, 34.5),  # 17.25
            result("q4_k+q6_k", 1, 15.0),  # 15
            result("q8_0", 1, 99.0)), [  # none: a goal of another list
                "| T = 1 | GGUF | 1.3 x floor + b | 2 | 1 | 1.01 | `a/q5_0/ids/T1/uniform` 1.23 |",
                "| T = 2 to 16 | GGUF | 1.15 x (1.3 x floor + b) | 1 | 1 | 1.00 | `a/q6_k/ids/T16/uniform` 1.00 |",
                "| T = 17 to 512, memory-bound | GGUF | 65% of the read rate | 1 | 1 | 1.00 | `a/q6_k/ids/T512/uniform` 1.00 |",
                "| T = 8192 | GGUF | 75% of bf16's speed | 1 | 1 | 0.75 | `a/q6_k/ids/T8192/uniform` 0.75 |",
                "| T = 2 to 16 | int4, int8, GPTQ, AWQ | 1.15 x (1.3 x floor + b) | 1 | 0 | 2.00 | `a/awq/ids/T8/uniform` 2.00 |",
                "| T = 1 | mixes by role | 1.3 x floor + b | 1 | 1 | 1.00 | `a/q4_k+q6_k/ids/T1/uniform` 1.00 |",
                "| T = 1 | iq2, iq3 | 2.0 x floor + b | 1 | 0 | 1.50 | `a/iq2_xs/ids/T1/uniform` 1.50 |",
                "| T = 8192 | iq2, iq3 | 60% of bf16's speed | 1 | 1 | 1.00 | `a/iq3_xxs+iq4_xs/ids/T8192/uniform` 1.00 |"])

    def test_gate_and_up_that_differ(self):
        self.assertEqual(rows(
            "formats",
            *(result(form, t, us) for t in (1, 64) for form, us in (("q4_k", 10.0), ("q5_k+q4_k", 20.0))),  # the mean is 15
            result("q4_k+q5_k+q4_k", 1, 17.0),  # 17
            result("q4_k+q5_k+q4_k", 64, 34.5))[-2:], [  # 17.25
                "| T = 1 | gate and up differ | the mean of both fused + 2.0 us | 1 | 1 | 1.00 | `a/q4_k+q5_k+q4_k/ids/T1/uniform` 1.00 |",
                "| T from 64 | gate and up differ | 1.15 x the mean of both fused | 1 | 0 | 2.00 | `a/q4_k+q5_k+q4_k/ids/T64/uniform` 2.00 |"])

    def test_shapes(self):
        made = rows(
            "shapes",
            *(result("bf16", t, us, model="i128", shape={**SHAPE, "intermediate": 128}) for t, us in ((1, 10.0), (512, 100.0))),
            result("bf16", 1, 11.5, model="i96", shape={**SHAPE, "intermediate": 96}),  # 11.5
            result("bf16", 512, 230.0, model="i96", shape={**SHAPE, "intermediate": 96}),  # 115
            result("bf16", 1, 20.0), result("bf16", 1, 11.5, model="h2016", shape={**SHAPE, "hidden": 2016}),  # 23
            result("bf16", 1, 12.5, model="qwen2-57b"),  # 1.05 x 10 + 2
            result("awq", 1, 15.0, model="qwen2-57b"),  # 1.3 x 10 + 2
            result("nvfp4", 1, 15.0))
        self.assertEqual(made, [
            "| intermediate off the grid of 64, T = 1 to 16 | all | 1.15 x the next size on it | 1 | 1 | 1.00 | `i96/bf16/ids/T1/uniform` 1.00 |",
            "| intermediate off the grid of 64, T = 17 to 8192 | all | 1.15 x the next size on it | 1 | 0 | 2.00 | `i96/bf16/ids/T512/uniform` 2.00 |",
            "| hidden off the grid of 64, T = 1 to 16 | all | 1.15 x the next size on it | 1 | 1 | 0.50 | `h2016/bf16/ids/T1/uniform` 0.50 |",
            "| mixtral-8x22b and qwen2-57b: T = 1, from ids | 16 and 8 bits | 1.05 x floor + b | 1 | 1 | 1.00 | `qwen2-57b/bf16/ids/T1/uniform` 1.00 |",
            "| mixtral-8x22b and qwen2-57b: T = 1 | int4, int8, GPTQ, AWQ | 1.3 x floor + b | 1 | 1 | 1.00 | `qwen2-57b/awq/ids/T1/uniform` 1.00 |"])

    def test_fp16(self):
        f16 = {"x_type": "f16"}
        self.assertEqual(rows(
            "fp16", result("f16", 1, 100.0), result("f16", 512, 100.0),
            result("f16", 1, 103.0, **f16), result("f16", 512, 206.0, **f16, intermediate_type="f16")), [
                "| float16 x, bf16 intermediate, T = 1 to 16 | all | 1.03 x bf16's time | 1 | 1 | 1.00 | `a/f16/ids/T1/uniform/x_f16` 1.00 |",
                "| float16 x, f16 intermediate, T = 17 to 8192 | all | 1.03 x bf16's time | 1 | 0 | 2.00 | "
                "`a/f16/ids/T512/uniform/x_f16/intermediate_f16` 2.00 |"])

    def test_fp8(self):
        quantized = {"activation_quantization": "fp8"}
        given = [result("fp8_128x128", t, 100.0, model="mixtral") for t in (16, 32, 512, 8192)]
        fp8 = [result("fp8_128x128", t, us, model="mixtral", **quantized) for t, us in ((16, 300.0), (32, 100.0), (512, 110.0), (8192, 50.0))]
        self.assertEqual(rows("fp8", *given, *fp8)[:3], [
            "| activations in E4M3, T = 17 to 64 | fp8_128x128 | activations as given | 1 | 1 | 1.00 | `mixtral/fp8_128x128/ids/T32/uniform/activations_fp8` 1.00 |",
            "| activations in E4M3, T = 65 to 512 | fp8_128x128 | activations as given | 1 | 0 | 1.10 | `mixtral/fp8_128x128/ids/T512/uniform/activations_fp8` 1.10 |",
            "| activations in E4M3, T = 513 to 8192 | fp8_128x128 | activations as given | 1 | 1 | 0.50 | "
            "`mixtral/fp8_128x128/ids/T8192/uniform/activations_fp8` 0.50 |"])

    def test_portable(self):
        wish = {"kernels": "-experts:sm90_*"}
        self.assertEqual(rows(
            "portable", result("bf16", 1, 20.0), result("bf16", 1, 23.0, **wish),
            result("bf16", 512, 100.0, 85), result("bf16", 512, 100.0, 85, **wish),  # 85 / 0.85
            result("awq", 512, 200.0, 70, **wish),  # 100
            result("bf16", 8192, 1.0, 10, 52.0, model="mixtral", stages=stage(1.0)),
            result("bf16", 8192, 300.0, 10, 52.0, model="mixtral", stages=stage(100.0), **wish),  # the stage: 52 / 0.52
            result("q4_k", 8192, 300.0, 10, 45.0, model="qwen3-30b", stages=stage(200.0), **wish)), [  # 45 / 0.45
                "| T = 1 to 16 | 16 bits | 1.15 x Hopper's own kernels | 1 | 1 | 1.00 | `a/bf16/ids/T1/uniform/-experts:sm90_*` 1.00 |",
                "| T = 17 to 512, memory-bound | 16 bits | 85% of the read rate | 1 | 1 | 1.00 | `a/bf16/ids/T512/uniform/-experts:sm90_*` 1.00 |",
                "| T = 17 to 512, memory-bound | 4 bits | 70% of the read rate | 1 | 0 | 2.00 | `a/awq/ids/T512/uniform/-experts:sm90_*` 2.00 |",
                "| T = 8192, mixtral, experts alone | 16 bits | 52% of the dense rate | 1 | 1 | 1.00 | "
                "`mixtral/bf16/ids/T8192/uniform/-experts:sm90_*` 1.00 |",
                "| T = 8192, qwen3-30b, experts alone | 4 bits | 45% of the dense rate | 1 | 0 | 2.00 | "
                "`qwen3-30b/q4_k/ids/T8192/uniform/-experts:sm90_*` 2.00 |"])

    def test_launches(self):
        run = goal_rules.Run(document(result("q6_k", 1, 1.0, kernel="sm90_q6_k_bf16_gemv_gate_up", n_launches=2.0),
                                      result("q6_k", 512, 1.0, n_launches=10.0)), "a file", is_hopper=False)
        self.assertEqual([goal.row(run) for goal in goal_rules.launches_goals(run)], [
            "| launches, from ids | all | 2 by gemv kernels, else 5 | 2 | 1 | 1.50 | `a/q6_k/ids/T512/uniform` 2.00 |"])


class Failures(unittest.TestCase):
    def test_what_is_compared_with_a_failed_case_is_not_counted(self):
        failed = ["a/bf16/ids/T8192/uniform: out of memory"]
        self.assertEqual(rows("formats", result("q6_k", 8192, 300.0), failures=failed), [])
        with self.assertRaises(SystemExit) as refusal:
            rows("formats", result("q6_k", 8192, 300.0))
        self.assertIn("lacks a/bf16/ids/T8192/uniform", str(refusal.exception))

    def test_activations_as_given_that_failed_are_not_compared_with(self):
        quantized = result("fp8_128x128", 32, 100.0, activation_quantization="fp8")
        self.assertEqual(rows("fp8", quantized, failures=["a/fp8_128x128/ids/T32/uniform: out of memory"]), [])
        with self.assertRaises(SystemExit) as refusal:
            rows("fp8", quantized)
        self.assertIn("lacks a/fp8_128x128/ids/T32/uniform", str(refusal.exception))

    def test_a_size_without_its_next_is_refused(self):
        off_grid = result("bf16", 1, 10.0, shape={**SHAPE, "intermediate": 720})
        self.assertEqual(rows("shapes", off_grid, failures=["a/bf16/ids/T2/uniform: out of memory"]), [])
        with self.assertRaises(SystemExit):
            rows("shapes", off_grid)

    def test_the_page_names_them(self):
        failures = [f"a/q6_k/ids/T{t}/uniform: out of memory" for t in range(1, 11)]
        made = goals_table.block(document(), lists={"formats": document(failures=failures)})
        self.assertIn("`a/q6_k/ids/T8/uniform` and 2 more.", made)

    def test_a_wrong_floor_is_refused(self):
        with self.assertRaises(SystemExit):
            rows("formats", {**result("q6_k", 1, 30.0), "floor_us": 9.0})


class Page(unittest.TestCase):
    def run_it(self, *names):
        """goals.md with results of these lists beside those of hopper."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "bench/results").mkdir(parents=True)
            page = root / goals_table.PAGE
            page.write_text("".join(goals_table.MARKS + goals_table.OTHER_MARKS))
            for name in ("h200", "h100", *names):
                one = () if name in ("h200", "h100") else (result("q6_k", 1, 12.0),)
                (root / f"bench/results/{name}.json").write_text(json.dumps(document(*one)))
            subprocess.run([sys.executable, goals_table.__file__, root, "--write"], check=True)
            return page.read_text().split(goals_table.MARKS[1])

    def test_rows_are_not_measured_until_there_is_a_file(self):
        row = "| every packed format, T = 1 and 2 to 16 |"
        mine, other = self.run_it()
        self.assertIn(row, mine)
        self.assertNotIn("**Formats and mixes.**", mine + other)
        mine, other = self.run_it("formats-h200", "fp16-h100")
        self.assertNotIn(row, mine)
        self.assertIn("**Formats and mixes.** a device of this test, commit 0123abc, 2000-01-01: [results](results/formats-h200.json). "
                      "Of 1 cases 1 have a goal, and 1 meet all of theirs.", mine)
        self.assertIn(HEADS + "| T = 1 | GGUF | 1.3 x floor + b | 1 | 1 | 0.80 | `a/q6_k/ids/T1/uniform` 0.80 |", mine)
        self.assertNotIn("| fp16 activations |", mine)
        self.assertIn("(results/fp16-h100.json)", other)
        self.assertNotIn("**Formats", other)


CASE = re.compile(r"(?P<model>[^/]+)/(?P<format>[^/]+)/(?P<mode>[^/]+)/T(?P<n_tokens>\d+)/(?P<skew>[^/]+)(?P<x>/x_f16)?"
                  r"(?P<intermediate>/intermediate_f16)?(?P<activations>/activations_fp8)?(?P<kernels>/.+)?")
SIZE = {"i": "intermediate", "h": "hidden", "s": "shared_intermediate"}


def made_up(name):
    """A result of a case by its name, with a shape that its model's name tells; bound by reading below 1024 tokens."""
    found = CASE.fullmatch(name)
    n_tokens, model = int(found["n_tokens"]), found["model"]
    shape = {**SHAPE, "shared_intermediate": 512} if model.startswith("qwen3next") else {**SHAPE}
    sized = re.fullmatch(r".*-([ihs])(\d+)", model)
    if sized:
        shape[SIZE[sized[1]]] = int(sized[2])
    quantized = {"activation_quantization": "fp8"} if found["activations"] else {}
    return result(found["format"], n_tokens, 30.0, multiply_us=20.0 if n_tokens > 512 else 0.5, model=model, shape=shape, mode=found["mode"],
                  zipf=float(found["skew"].removeprefix("zipf")) if found["skew"] != "uniform" else 0.0, x_type="f16" if found["x"] else "bf16",
                  intermediate_type="f16" if found["intermediate"] else "bf16", kernels=(found["kernels"] or "/")[1:], stages=stage(30.0),
                  **quantized)


@unittest.skipUnless(PROGRAM, "needs moe-bench")
class OfTheProgram(unittest.TestCase):
    def test_every_goal_has_cases_and_every_case_what_it_is_compared_with(self):
        for name, about in list_goals.LISTS.items():
            listed = subprocess.run([PROGRAM, "--list", name, "--names"], capture_output=True, text=True, check=True).stdout.split()
            made = document(*map(made_up, listed))
            self.assertEqual([r["case"] for r in made["results"]], listed)
            run = goal_rules.Run(made, name, is_hopper=False)
            goals = list(about.goals(run))
            self.assertEqual([goal.row(run) for goal in goals if not goal.ratios(run)], [])
            print(name, goals_table.summary(run, goals))

    def test_every_format_of_the_list_has_a_goal_or_is_one_that_others_are_compared_with(self):
        listed = subprocess.run([PROGRAM, "--list", "formats", "--names"], capture_output=True, text=True, check=True).stdout.split()
        without = {CASE.fullmatch(name)["format"] for name in listed if list_goals.kind_of(CASE.fullmatch(name)["format"]) is None}
        self.assertLessEqual(without, {"f16", *goal_rules.FORMATS})


unittest.main()
