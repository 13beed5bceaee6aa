"""The golden fixtures of tests/oracle: checkpoints with what the tool that wrote them computes."""
import json
import pathlib

import numpy

import moe

ROOT = pathlib.Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "tests/oracle/fixtures"


class Golden:
    def __init__(self, folder):
        self.folder = ROOT / folder
        gguf = self.folder / "model.gguf"
        self.path = gguf if gguf.exists() else self.folder
        self.layer = json.loads((self.folder / "case.json").read_text())["layer"]
        self.x, self.y, self.ids, self.weights = (
            numpy.load(self.folder / f"{name}.npy") for name in ("x", "y", "ids", "weights")
        )

    def options(self, checkpoint, **options):
        base = dict(checkpoint=checkpoint, checkpoint_layer=self.layer, device="cpu", x_type="f32", max_tokens=64)
        return base | options

    def open(self, runtime=None, **options):
        """Checkpoint, plan, weights and a workspace."""
        checkpoint = moe.Checkpoint(self.path, runtime=runtime)
        plan = moe.Plan(**self.options(checkpoint, **options), runtime=runtime)
        weights = moe.Weights.load_checkpoint(plan, checkpoint, self.layer)
        return checkpoint, plan, weights, moe.Workspace(plan, runtime=runtime)


def relative_l2(got, wanted):
    """The largest over rows; NaN counts as infinite, and zeros are one."""
    got, wanted = numpy.asarray(got, numpy.float64), numpy.asarray(wanted, numpy.float64)
    got, wanted = got.reshape(len(got), -1), wanted.reshape(len(wanted), -1)
    norms = numpy.linalg.norm(wanted, axis=1)
    assert norms.min() > 0
    error = numpy.linalg.norm(got - wanted, axis=1) / norms
    return float(numpy.nan_to_num(error, nan=numpy.inf).max())
