"""Blocks of every ggml type that libmoe reads, and what the gguf package decodes them to.

    python3 make_vectors.py            # writes <type>_blocks.npy and <type>_values.npy beside itself
    python3 make_vectors.py --check    # only says whether they would be the same
"""
import argparse
import dataclasses
import pathlib
import zlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

FOLDER = pathlib.Path(__file__).resolve().parent
SPECIAL = [0x0000, 0x8000, 0x0001, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00]  # 0 -0 least most inf nan


@dataclasses.dataclass
class Layout:
    halves: list  # where the fp16 fields of a block are
    scales: tuple = (0, 0)  # range of bytes that hold NVFP4 scales


TYPES = {
    Type.Q4_0: Layout([0]),
    Type.Q4_1: Layout([0, 2]),
    Type.Q5_0: Layout([0]),
    Type.Q5_1: Layout([0, 2]),
    Type.Q8_0: Layout([0]),
    Type.Q2_K: Layout([80, 82]),
    Type.Q3_K: Layout([108]),
    Type.Q4_K: Layout([0, 2]),
    Type.Q5_K: Layout([0, 2]),
    Type.Q6_K: Layout([208]),
    Type.IQ4_NL: Layout([0]),
    Type.IQ4_XS: Layout([0]),
    Type.IQ2_XXS: Layout([0]),
    Type.IQ2_XS: Layout([0]),
    Type.IQ3_XXS: Layout([0]),
    Type.IQ3_S: Layout([0]),
    Type.NVFP4: Layout([], (0, 4)),
}


def random_blocks(rng, qtype, count):
    """Random codes; fp16 fields of moderate size and either sign."""
    size = gguf.GGML_QUANT_SIZES[qtype][1]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for place in TYPES[qtype].halves:
        values = rng.standard_normal(count).astype(np.float16)
        blocks[:, place : place + 2] = values.view(np.uint8).reshape(count, 2)
    return blocks


def put_half(block, place, bits):
    block[place : place + 2] = np.array([bits], dtype="<u2").view(np.uint8)


def special_blocks(rng, qtype):
    """Each fp16 field in turn is each of SPECIAL."""
    blocks = []
    for place in TYPES[qtype].halves:
        for bits in SPECIAL:
            block = random_blocks(rng, qtype, 1)[0]
            put_half(block, place, bits)
            blocks.append(block)
    return blocks


def constant_blocks(qtype):
    """All codes and scales 0x00, then all 0xFF, with 1 and 0.5 as the fp16 fields."""
    blocks = []
    for byte in (0x00, 0xFF):
        block = np.full(gguf.GGML_QUANT_SIZES[qtype][1], byte, dtype=np.uint8)
        for place, bits in zip(TYPES[qtype].halves, (0x3C00, 0x3800)):
            put_half(block, place, bits)
        blocks.append(block)
    return blocks


def grid_blocks(rng, qtype):
    """Every entry of the type's grid once; where signs are seven bits, every such pattern too."""
    if qtype == Type.IQ2_XXS:
        blocks = random_blocks(rng, qtype, 8)
        words = blocks[:, 2:].copy().view("<u4").reshape(8, 8, 2)
        words[..., 0] = np.arange(256, dtype=np.uint8).view("<u4").reshape(8, 8)
        signs = (np.arange(256, dtype=np.uint32) % 128).reshape(8, 8, 4)
        words[..., 1] &= np.uint32(0xF << 28)
        for j in range(4):
            words[..., 1] |= signs[..., j] << np.uint32(7 * j)
        blocks[:, 2:] = words.reshape(8, 16).view(np.uint8)
    elif qtype == Type.IQ2_XS:
        blocks = random_blocks(rng, qtype, 16)
        words = np.arange(512) | (np.arange(512) * 5 % 128) << 9
        blocks[:, 2:66] = words.astype("<u2").view(np.uint8).reshape(16, 64)
    elif qtype == Type.IQ3_XXS:
        blocks = random_blocks(rng, qtype, 4)
        blocks[:, 2:66] = np.arange(256, dtype=np.uint8).reshape(4, 64)
    elif qtype == Type.IQ3_S:
        blocks = random_blocks(rng, qtype, 8)
        blocks[:, 2:66] = (np.arange(512) % 256).astype(np.uint8).reshape(8, 64)
        blocks[:4, 66:74] = 0x00
        blocks[4:, 66:74] = 0xFF
    else:
        return []
    return list(blocks)


def scale_blocks(rng, qtype):
    """Every byte as an NVFP4 scale."""
    first, last = TYPES[qtype].scales
    if first == last:
        return []
    blocks = random_blocks(rng, qtype, 256 // (last - first))
    blocks[:, first:last] = np.arange(256, dtype=np.uint8).reshape(-1, last - first)
    return list(blocks)


def vectors(qtype):
    rng = np.random.default_rng(zlib.crc32(qtype.name.encode()))
    blocks = [
        *random_blocks(rng, qtype, 4),
        *special_blocks(rng, qtype),
        *constant_blocks(qtype),
        *grid_blocks(rng, qtype),
        *scale_blocks(rng, qtype),
    ]
    blocks = np.stack(blocks)
    with np.errstate(invalid="ignore", over="ignore"):
        values = gguf.quants.dequantize(blocks, qtype)
    assert values.dtype == np.float32 and values.shape[0] == blocks.shape[0]
    return blocks, values


def write(path, array, check):
    if check:
        same = path.exists() and np.load(path).tobytes() == array.tobytes()
        print(f"{path.name}: {'the same' if same else 'DIFFERS'}")
        return same
    np.save(path, array)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    good = True
    for qtype in TYPES:
        blocks, values = vectors(qtype)
        name = qtype.name.lower()
        good &= write(FOLDER / f"{name}_blocks.npy", blocks, check)
        good &= write(FOLDER / f"{name}_values.npy", values, check)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
