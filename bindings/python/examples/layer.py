"""Runs one MoE layer of a checkpoint on random tokens and says what happened.

    layer.py CHECKPOINT [--layer N] [--tokens T]

Without a checkpoint at hand, the command `moe` makes one: moe make-model qwen3-30b-a3b /tmp/qwen3 --reduced
"""
import argparse

import numpy

import moe


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint")
    parser.add_argument("--layer", type=int, help="decoder layer; default: the first MoE layer")
    parser.add_argument("--tokens", type=int, default=4)
    options = parser.parse_args()

    with moe.Checkpoint(options.checkpoint) as checkpoint:
        layer = checkpoint.layers[0] if options.layer is None else options.layer
        desc = checkpoint.layer(layer)
        asked = dict(checkpoint=checkpoint, checkpoint_layer=layer, device="cpu", x_type="f32")
        plan = moe.Plan(**asked, max_tokens=options.tokens)
        weights = moe.Weights.load_checkpoint(plan, checkpoint, layer, ownership="borrow")
        print(f"{checkpoint.info.family}, layer {layer}: top {desc.top_k} of {desc.n_experts} experts, hidden {desc.hidden}")

    with plan, weights, moe.Workspace(plan) as workspace:
        x = numpy.random.default_rng(1).standard_normal((options.tokens, desc.hidden), numpy.float32)
        ids = numpy.empty((options.tokens, desc.top_k), numpy.int32)
        out = moe.forward(plan, weights, workspace, x, out_ids=ids)
        print(f"experts by {plan.kernel('experts', options.tokens)}; weights read in place: {weights.memory.borrowed_bytes} bytes")
        for token, chosen in enumerate(ids):
            print(f"token {token}: experts {chosen.tolist()}, rms of out {numpy.sqrt((out[token] ** 2).mean()):.4f}")


if __name__ == "__main__":
    main()
