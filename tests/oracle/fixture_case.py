"""One fixture folder: inputs, how it is written, how it is checked."""
import json
import pathlib
import zlib

import numpy as np

FIXTURES = pathlib.Path(__file__).resolve().parent / "fixtures"
MIN_GAP = 1e-3  # of selection keys; far above fp32 noise
SIZE_KEYS = ("T", "H", "I", "E", "k", "format")


def case_rng(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def to_bf16(values):
    """Round float32 to the nearest bf16 value (ties to even), as float32."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32)


def draw_input(rng, tokens, hidden, acceptable):
    """The first x for which acceptable(x) gives something; draws until routing has no near-tie."""
    for _ in range(10000):
        x = to_bf16(rng.standard_normal((tokens, hidden)))
        result = acceptable(x)
        if result is not None:
            return x, result
    raise RuntimeError("no input without near-ties found")


def empty_folder(name):
    folder = FIXTURES / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    return folder


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_case(folder, meta, x, y, ids, weights):
    """meta: layer, family, tool, y_from, dtype, notes, H, I, E, k, format and what else helps."""
    np.save(folder / "x.npy", np.ascontiguousarray(x, dtype=np.float32))
    np.save(folder / "y.npy", np.ascontiguousarray(y, dtype=np.float32))
    np.save(folder / "ids.npy", np.ascontiguousarray(ids, dtype=np.int32))
    np.save(folder / "weights.npy", np.ascontiguousarray(weights, dtype=np.float32))
    write_json(folder / "case.json", {**meta, "T": int(x.shape[0])})


def case_folders():
    return sorted(p for p in FIXTURES.iterdir() if (p / "case.json").is_file())


def write_index():
    cases = []
    for folder in case_folders():
        meta = json.loads((folder / "case.json").read_text())
        row = {"name": folder.name, "layer": meta["layer"], "family": meta["family"]}
        cases.append({**row, **{key: meta[key] for key in SIZE_KEYS}})
    write_json(FIXTURES / "index.json", {"cases": cases})


def check_case(folder):
    """Shapes, finiteness, magnitudes; returns a line for the table."""
    meta = json.loads((folder / "case.json").read_text())
    x, y, ids, weights = (np.load(folder / f"{n}.npy") for n in ("x", "y", "ids", "weights"))
    tokens, hidden, k = meta["T"], meta["H"], meta["k"]
    assert x.shape == y.shape == (tokens, hidden) and x.dtype == y.dtype == np.float32
    assert ids.shape == weights.shape == (tokens, k)
    assert ids.dtype == np.int32 and weights.dtype == np.float32
    assert np.isfinite(y).all() and np.isfinite(weights).all()
    assert np.array_equal(to_bf16(x), x), "x is not exactly bf16"
    assert ids.min() >= 0 and ids.max() < meta["E"]
    assert all(len(set(row)) == k for row in ids.tolist()), "an id twice in one token"
    routing = meta["routing"]
    scaled = meta["family"].startswith("gemma4")  # each expert's scale is in its weight
    if not routing["has_selection_bias"] and not scaled and routing["score"] != "sparsemixer":
        assert (np.diff(weights, axis=1) <= 0).all(), "weights do not follow the ids' order"
    if (routing["norm"] or routing["post"] == "softmax") and not scaled:
        assert np.allclose(weights.sum(axis=1), routing["scale"], rtol=1e-5)
    rms = np.sqrt((y.astype(np.float64) ** 2).mean(axis=1))
    assert 0.1 < rms.min() and rms.max() < 10.0, f"rms of y per token: {rms}"
    size = sum(p.stat().st_size for p in folder.iterdir())
    return (
        f"{folder.name:32s} {meta['format']:24s} T={tokens} H={hidden} I={meta['I']} E={meta['E']}"
        f" k={k} rms(y) {rms.min():.2f}..{rms.max():.2f}  {size / 1024:.0f} KiB"
    )
