"""A user's program as mypy sees it: what is asserted must be inferred, and each line marked with an error must be one. Not run."""
from typing import assert_type

import numpy

import moe


def names(folder: str) -> list[str]:
    with moe.Checkpoint(folder) as checkpoint:
        assert_type(checkpoint, moe.Checkpoint)
        assert_type(checkpoint.info, moe.CheckpointInfo)
        assert_type(checkpoint.layer(0), moe.LayerDesc)
        return [checkpoint.info.family]


def run(checkpoint: moe.Checkpoint, x: "numpy.ndarray") -> None:
    plan = moe.Plan(checkpoint=checkpoint, checkpoint_layer=0, max_tokens=4)
    weights = moe.Weights.load_checkpoint(plan, checkpoint, 0)
    assert_type(weights, moe.Weights)
    assert_type(weights.memory, moe.MemoryReport)
    with moe.Workspace(plan) as workspace:
        assert_type(workspace, moe.Workspace)
        assert_type(workspace.status(), moe.Faults)
        moe.forward(plan, weights, workspace, x)
        moe.forward(weights, plan, workspace, x)  # type: ignore[arg-type]


def wrong() -> None:
    moe.Checkpoint(7)  # type: ignore[arg-type]
    moe.version_string().nothing  # type: ignore[attr-defined]
    moe.no_such_function()  # type: ignore[attr-defined]
