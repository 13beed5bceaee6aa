"""What of the studies needs no GPU: lists of cases, the workload, figures of made-up results, and what is committed.

usage: test_studies.py [MOE_BENCH]    MOE_BENCH: the program must read every list and name its cases alike
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import check_results  # noqa: E402
import chart  # noqa: E402
import figures  # noqa: E402
import lists  # noqa: E402
import study  # noqa: E402
import titles  # noqa: E402
import workload  # noqa: E402

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else None
ROOT = HERE.parent.parent
SHAPES = {"qwen3next": (2048, 512, 512, 10, 512), "qwen3-30b": (2048, 768, 128, 8, 0), "mixtral": (4096, 14336, 8, 2, 0),
          "dsv3": (7168, 2048, 256, 8, 2048), "gpt-oss-120b": (2880, 2880, 128, 4, 0)}
BITS = {"kbit2": 2.25, "kbit3": 3.25, "kbit4": 4.25, "kbit5": 5.25, "mxfp4": 4.25, "nvfp4": 4.5, "q4_k": 4.5,
        "fp8_128x128": 8.0, "q8_0": 8.5, "bf16": 16.0}


def made_up(one, models):
    """A result of no device: 1 TB/s and 100 TFLOP/s, one after the other."""
    names = ("hidden", "intermediate", "n_experts", "top_k", "shared_intermediate")
    model = models.get(one["model"])
    shape = dict(zip(names, SHAPES[one["model"]])) if not model else {n: model.get(n, 0) for n in names}
    t, slots = one["n_tokens"], one["n_tokens"] * shape["top_k"]
    matrices = 3.0 * shape["hidden"] * shape["intermediate"]
    weight_bytes = min(slots, shape["n_experts"]) * matrices * BITS[one["format"]] / 8
    flops = 2 * slots * matrices
    us = 2 + weight_bytes / 1e6 + flops / 1e8 + (5.0 if one.get("unfused") else 0)
    timed = {"us": us, "us_lowest": us, "us_highest": us}
    parts = ("route", "dispatch", "experts", "combine", "finish", "chain") if one.get("stages") else ()
    stages = [{"stage": part, **timed, "bytes": weight_bytes, "flops": 0 if part == "dispatch" else flops} for part in parts]
    return {"case": lists.name_of(one), "model": one["model"], "shape": shape, "format": one["format"], "mode": one["mode"],
            "n_tokens": t, "zipf": one.get("zipf", 0), "unfused": one.get("unfused", False), "x_type": "bf16", "intermediate_type": "bf16",
            "kernels": one.get("kernels", ""), "kernel": "sm80_nvfp4_bf16_grouped_gemm_gate_up", **timed, "floor_us": us / 2,
            "times_floor": 2.0, "weight_bytes": weight_bytes, "tb_per_s": weight_bytes / us / 1e6, "flops": flops,
            "tflops": flops / us / 1e6, "workspace_bytes": 1.0, "n_sets": 1, "n_calls": 1, "n_launches": 2.0, "stages": stages}


def document_of(name):
    wanted = lists.STUDIES[name]()
    models = {model["name"]: model for model in wanted.get("models", [])}
    return {**check_results.SAMPLE, "results": [made_up(one, models) for one in wanted["cases"]]}


class Lists(unittest.TestCase):
    def test_results_of_every_list_are_such_as_the_schema_wants(self):
        schema = json.loads((HERE.parent / "results.schema.json").read_text())
        validator = check_results.jsonschema.Draft202012Validator(schema)
        for name in lists.STUDIES:
            self.assertEqual(check_results.problems(document_of(name), validator), [], name)

    @unittest.skipUnless(PROGRAM, "needs moe-bench")
    def test_the_program_reads_every_list(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in lists.STUDIES:
                path = pathlib.Path(folder) / name
                study.write_cases(name, path)
                listed = subprocess.run([PROGRAM, "--cases", path, "--names"], capture_output=True, text=True, check=True)
                self.assertEqual(listed.stdout.split(), [lists.name_of(one) for one in lists.STUDIES[name]()["cases"]])


class Workload(unittest.TestCase):
    def test_probabilities(self):
        self.assertAlmostEqual(sum(workload.prompt_probabilities().values()), 1)
        drawn = workload.prompts(50000, seed=3)
        for length, probability in workload.prompt_probabilities().items():
            self.assertAlmostEqual(drawn.count(length) / len(drawn), probability, delta=0.01)
        self.assertEqual(workload.prompts(100, seed=3), drawn[:100])
        self.assertNotEqual(workload.prompts(100, seed=4), drawn[:100])

    def test_one_turn_by_hand(self):
        # A prompt of two iterations; its end gives the first of the generated tokens.
        length = workload.BUDGET + 52
        self.assertEqual(workload.iterations(1, [length]), {workload.BUDGET: 1, 52: 1, 1: workload.GENERATED - 1})

    def test_two_users_by_hand(self):
        # Both prompts in one iteration, then two tokens at a time.
        self.assertEqual(workload.iterations(2, [10, 20]), {30: 1, 2: workload.GENERATED - 1})

    def test_no_token_is_lost_and_no_budget_exceeded(self):
        lengths = workload.prompts(150, seed=5)
        tokens = sum(lengths) + len(lengths) * (workload.GENERATED - 1)
        for users in workload.USERS:
            counts = workload.iterations(users, lengths)
            self.assertEqual(sum(n * count for n, count in counts.items()), tokens)
            self.assertTrue(1 <= min(counts) and max(counts) <= workload.BUDGET)

    def test_times_between_what_was_measured(self):
        times = {1: 10.0, 4: 20.0, 16: 20.0}
        self.assertEqual(workload.time_at(times, 4), 20)
        self.assertAlmostEqual(workload.time_at(times, 2), 10 * 2 ** 0.5)
        self.assertAlmostEqual(workload.time_at(times, 9), 20)
        with self.assertRaises(ValueError):
            workload.time_at(times, 17)

    def test_time_by_regime(self):
        spent = workload.time_by_regime({1: 3, 16: 2, 17: 1, 512: 1, 513: 1}, {1: 5.0, 1024: 5.0})
        self.assertEqual([round(us, 9) for us in spent.values()], [15, 10, 10, 5])


class Figures(unittest.TestCase):
    def test_every_study_is_drawn_from_its_numbers_alone(self):
        for name in lists.STUDIES:
            document = document_of(name)
            drawn = figures.draw(name, document)
            self.assertEqual(drawn, figures.draw(name, json.loads(json.dumps(document))), name)
            tree = xml.etree.ElementTree.fromstring(drawn)
            self.assertEqual(tree.tag, "{http://www.w3.org/2000/svg}svg")
            self.assertNotIn("nan", drawn)
            self.assertGreater(drawn.count("<polyline") + drawn.count("<rect"), 4, name)
            slower = json.loads(json.dumps(document))
            slower["results"][0]["us"] *= 1.5
            for stage in slower["results"][0]["stages"]:
                stage["us"] *= 1.5
            self.assertNotEqual(drawn, figures.draw(name, slower), name)

    def test_cases_that_failed_are_left_out(self):
        for name in lists.STUDIES:
            document = document_of(name)
            for kept in ([], document["results"][:3], document["results"][1::2]):
                xml.etree.ElementTree.fromstring(figures.draw(name, {**document, "results": kept}))

    def test_without_a_dense_rate_there_is_no_roof_of_flops(self):
        document = {**document_of("roofline"), "dense_tflops": 0}
        xml.etree.ElementTree.fromstring(figures.draw("roofline", document))

    def test_no_line_goes_back_where_formats_share_their_bits(self):
        points = [(2.25, 5.0), (4.25, 9.0), (4.5, 7.0), (8.0, 12.0), (8.5, 14.0)]
        groups = figures.formats_by_bits(dict(zip("abcde", (x for x, _ in points))))
        self.assertEqual(figures.lowest_of_each(points, groups), [(2.25, 5.0), (4.5, 7.0), (8.0, 12.0)])

    def test_titles_have_the_numbers_of_the_results(self):
        for name in lists.STUDIES:
            document = document_of(name)
            whole = titles.title(name, figures.Results(document))
            self.assertRegex(whole, r"\d", name)
            self.assertLess(len(whole), 110, name)
            self.assertEqual(titles.title(name, figures.Results({**document, "results": []})), lists.SUBJECTS[name])
            for result in document["results"]:
                is_numerator = {"small_batch": result["kernels"] == lists.GEMV, "skew": result["zipf"] > 0, "workload": result["format"] == "nvfp4",
                                "bits": result["format"] == "bf16", "experts": result["shape"]["n_experts"] == 512}.get(name, False)
                result["us"] *= 3 if is_numerator else 1
                for stage in result["stages"]:
                    stage["us"] *= 3 if stage["stage"] in ("experts", "chain") else 1
            self.assertNotEqual(titles.title(name, figures.Results(document)), whole, name)

    def test_a_title_by_hand(self):
        document = document_of("bits")
        for result in document["results"]:
            result["us"] = {"bf16": 30.0, "kbit2": 10.0 if result["model"] == "mixtral" else 12.0}.get(result["format"], 20.0)
        self.assertEqual(titles.title("bits", figures.Results(document)),
                         "bf16 takes 2.50 to 3.00 times as long as kbit2 at T = 1, 2.50 to 3.00 at T = 8192")

    def test_axes(self):
        axis = chart.Axis("", (1, 100), log=True)
        self.assertAlmostEqual(axis.position(10), 0.5)
        self.assertEqual(list(axis.ticks.values()), ["1", "2", "5", "10", "20", "50", "100"])
        self.assertEqual(list(chart.Axis("", (0.7, 1.3)).ticks.values()), ["0.7", "0.8", "0.9", "1", "1.1", "1.2", "1.3"])


class Page(unittest.TestCase):
    def test_what_is_committed_is_what_the_results_make(self):
        self.assertEqual(list(study.differences(ROOT)), [])

    def test_a_study_that_has_run_gets_its_figure_and_loses_it_again(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for part in ("bench/results", "docs/pictures"):
                (root / part).mkdir(parents=True)
            shutil.copy(ROOT / study.PAGE, root / study.PAGE)
            for name in lists.STUDIES:
                study.results_path(root, name).unlink(missing_ok=True)
            study.draw(root, lists.STUDIES)
            without = (root / study.PAGE).read_text()
            self.assertEqual(without.count("Not run yet."), len(lists.STUDIES))
            study.results_path(root, "skew").write_text(json.dumps(document_of("skew")))
            self.assertEqual(len(list(study.differences(root))), 2)
            study.draw(root, lists.STUDIES)
            self.assertEqual(list(study.differences(root)), [])
            self.assertIn("](pictures/study-skew.svg)", (root / study.PAGE).read_text())
            self.assertTrue(study.picture_path(root, "skew").exists())
            study.results_path(root, "skew").unlink()
            study.draw(root, lists.STUDIES)
            self.assertEqual((root / study.PAGE).read_text(), without)
            self.assertFalse(study.picture_path(root, "skew").exists())


unittest.main()
