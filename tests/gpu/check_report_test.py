"""What check_report.py takes from reports: kernels that were launched, not those that plans named."""
import pathlib
import unittest

import check_report

TABLE = ["sm80_*_f16_generic_*", "sm90_*_bf16_gemv_*"]


def report(recorded, **case):
    return {
        "extent": "full",
        "launches_recorded": recorded,
        "cases": [{"name": "a", "ok": True, "kernels": [], "launched": [], **case}],
    }


class CheckReport(unittest.TestCase):
    def missing(self, *reports):
        return check_report.missing(TABLE, reports)

    def test_a_kernel_that_is_only_named_is_missing(self):
        names = ["sm90_q4_k_bf16_gemv_down", "sm80_f16_f16_generic_gate_up"]
        self.assertEqual(self.missing(report(True, kernels=names)), TABLE)
        self.assertEqual(self.missing(report(True, launched=names[:1])), TABLE[:1])
        self.assertEqual(self.missing(report(True, launched=names)), [])

    def test_launches_that_are_not_recorded_are_none(self):
        names = ["sm90_q4_k_bf16_gemv_down", "sm80_f16_f16_generic_gate_up"]
        self.assertEqual(self.missing(report(False, launched=names)), TABLE)
        self.assertIn("not recorded", check_report.launch_checks(report(False)))

    def test_recorded_launches_must_have_been_compared(self):
        self.assertEqual(list(check_report.failing(report(True, named_checked=1, functions_checked=1))), [])
        self.assertEqual(len(list(check_report.failing(report(True, named_checked=1)))), 1)
        self.assertEqual(list(check_report.failing(report(False))), [])

    def test_what_the_run_forbade_must_not_run(self):
        names = ["sm80_q4_k_bf16_gemv_down", "sm90_q4_k_bf16_gemv_down"]
        run = report(True, launched=names, named_checked=1, functions_checked=1)
        self.assertEqual(list(check_report.failing(run)), [])
        run["kernel_filter"] = "-sm90_*"
        self.assertEqual(list(check_report.failing(run)), [f"a: {names[1]} ran"])
        run["cases"][0]["name"] = check_report.FORCES[0] + "a"
        self.assertEqual(list(check_report.failing(run)), [])

    def test_the_table_of_the_plan_is_found(self):
        kernels = check_report.cuda_kernels(pathlib.Path(__file__).resolve().parents[2])
        self.assertIn("sm90_*_bf16_gemv_*", kernels)
        self.assertIn("sm80_*_f32_exact_*", kernels)


if __name__ == "__main__":
    unittest.main()
