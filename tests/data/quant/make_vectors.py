#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the block vectors of this folder: random blocks and what another implementation expands them to.

Source of the numbers: gguf.quants.dequantize of the PyPI package `gguf` (the version is printed).
File: u32 cols, u32 row_bytes, the row, f32[cols]. Run: make_vectors.py [FOLDER]
"""
import pathlib
import struct
import sys

import gguf
import numpy as np
from gguf.quants import dequantize

TYPES = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K".split()
# offsets of the halves in a block; every other byte may be anything
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
# first blocks get these: zero, minus zero, least and largest subnormal, largest number, one
SPECIAL = [0x0000, 0x8000, 0x0001, 0x03FF, 0x7BFF, 0x3C00]


def row_of(name, rng):
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    if elements == 1:
        n = 200
        values = np.concatenate([rng.standard_normal(n - 8), [0, -0.0, 1, -1, 65504, 6e-8, -6.2e-5, 0.1]])
        values = values.astype(np.float32)
        if name == "F32":
            return n, values.view(np.uint8)
        if name == "F16":
            return n, values.astype(np.float16).view(np.uint8)
        return n, (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    blocks = rng.integers(0, 256, (8 if elements == 256 else 40, size), dtype=np.uint8)
    for at in HALVES[name]:
        halves = (rng.standard_normal(len(blocks)) * 0.02).astype(np.float16)
        for i, bits in enumerate(SPECIAL):
            halves[(i + at) % len(blocks)] = np.uint16(bits).view(np.float16)
        blocks[:, at:at + 2] = halves.view(np.uint8).reshape(-1, 2)
    return len(blocks) * elements, blocks.reshape(-1)


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    rng = np.random.default_rng(7)
    for name in TYPES:
        cols, row = row_of(name, rng)
        expected = dequantize(row.reshape(1, -1), gguf.GGMLQuantizationType[name]).astype(np.float32).reshape(-1)
        assert expected.size == cols
        path = folder / f"{name.lower()}.vec"
        path.write_bytes(struct.pack("<II", cols, row.size) + row.tobytes() + expected.tobytes())
    from importlib.metadata import version
    print("gguf", version("gguf"))


main()
