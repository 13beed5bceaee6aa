"""Runs a layer through the Python binding of an installed wheel, with the library of that wheel, on a fixture of tests/oracle,
and holds the result to what is stored beside it.

usage: wheel_forward.py FIXTURE
"""
import json
import pathlib
import sys

import moe
import moe_library
import numpy

TOLERANCE = 1e-4  # relative L2 of each token; the stored values are from float32


def main(folder):
    x, wanted, experts = (numpy.load(folder / f"{name}.npy") for name in ("x", "y", "ids"))
    layer = json.loads((folder / "case.json").read_text())["layer"]
    assert moe.library().path == moe_library.path(), f"{moe.library().path} is not the library of the wheel"

    with moe.Checkpoint(folder) as checkpoint:
        plan = moe.Plan(checkpoint=checkpoint, checkpoint_layer=layer, device="cpu", x_type="f32", max_tokens=len(x))
        weights = moe.Weights.load_checkpoint(plan, checkpoint, layer)
    with plan, weights, moe.Workspace(plan) as workspace:
        ids = numpy.empty(experts.shape, numpy.int32)
        out = moe.forward(plan, weights, workspace, x, out_ids=ids)

    error = (numpy.linalg.norm(out - wanted, axis=1) / numpy.linalg.norm(wanted, axis=1)).max()
    assert error <= TOLERANCE, f"relative error {error}"
    assert (numpy.sort(ids) == numpy.sort(experts)).all(), f"experts {ids.tolist()}, wanted {experts.tolist()}"
    print(f"{folder.name} through {moe.__name__}: {len(x)} tokens, relative error {error:.1e}")


main(pathlib.Path(sys.argv[1]))
