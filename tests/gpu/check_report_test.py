"""What check_report.py takes from reports: kernels that were launched, not those that plans named."""
import pathlib
import unittest

import check_report

TABLE = {"sm90_{}_bf16_gemv": True, "cuda_any_f32_route": False}


def report(recorded, **case):
    return {
        "extent": "full",
        "launches_recorded": recorded,
        "cases": [{"name": "a", "ok": True, "kernels": [], "launched": [], **case}],
    }


class CheckReport(unittest.TestCase):
    def missing(self, *reports):
        return check_report.missing(TABLE, reports)

    def test_a_name_stands_for_those_that_continue_it(self):
        self.assertTrue(check_report.ran("sm90_{}_bf16_gemv", {"sm90_q4_k_bf16_gemv_down"}))
        self.assertTrue(check_report.ran("cuda_any_f32_route", {"cuda_any_f32_route"}))
        self.assertFalse(check_report.ran("cuda_any_f32_route", {"cuda_any_f32_routes"}))

    def test_a_kernel_that_is_only_named_is_missing(self):
        named = ["sm90_nvfp4_bf16_gemv_down", "cuda_any_f32_route"]
        self.assertEqual(self.missing(report(True, kernels=named)), ["sm90_{}_bf16_gemv"])
        self.assertEqual(self.missing(report(True, kernels=named, launched=named[:1])), [])

    def test_names_stand_in_where_nothing_is_recorded(self):
        named = ["sm90_nvfp4_bf16_gemv_down", "cuda_any_f32_route"]
        self.assertEqual(self.missing(report(False, kernels=named)), [])
        self.assertIn("not recorded", check_report.launch_checks(report(False, kernels=named)))

    def test_recorded_launches_must_have_been_compared(self):
        self.assertEqual(list(check_report.failing(report(True, named_checked=1))), [])
        self.assertEqual(len(list(check_report.failing(report(True)))), 1)

    def test_the_table_of_the_plan_is_found(self):
        kernels = check_report.cuda_kernels(pathlib.Path(__file__).resolve().parents[2])
        self.assertIn(True, kernels.values())
        self.assertIn(False, kernels.values())


if __name__ == "__main__":
    unittest.main()
