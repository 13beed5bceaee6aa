"""Write tests/oracle/fixtures: small MoE checkpoints and what the tools' own MoE blocks compute.

    python make_fixtures.py              all cases, then the checks
    python make_fixtures.py mixtral ...  only these functions of the *_cases modules
    python make_fixtures.py --check      only the checks
"""
import os
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import fixture_case


def all_cases():
    import autoround_cases
    import gguf_cases
    import gguf_family_cases
    import gguf_rule_cases
    import hf_cases
    import hf_family_cases
    import hf_inkling_cases
    import hf_later_cases
    import hf_quantised_cases
    import mlx_cases
    import numpy_cases
    import scaled_cases
    import tool_cases

    return [
        *hf_cases.CASES,
        *hf_family_cases.CASES,
        *hf_later_cases.CASES,
        *hf_inkling_cases.CASES,
        *hf_quantised_cases.CASES,
        *mlx_cases.CASES,
        *numpy_cases.CASES,
        *tool_cases.CASES,
        *autoround_cases.CASES,
        *scaled_cases.CASES,
        *gguf_cases.CASES,
        *gguf_family_cases.CASES,
        *gguf_rule_cases.CASES,
    ]


def main(arguments):
    if "--check" not in arguments:
        cases = all_cases()
        unknown = set(arguments) - {case.__name__ for case in cases}
        assert not unknown, f"no such case: {sorted(unknown)}"
        for case in cases:
            if not arguments or case.__name__ in arguments:
                case()
        fixture_case.write_index()
    for folder in fixture_case.case_folders():
        print(fixture_case.check_case(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
