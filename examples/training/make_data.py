#!/usr/bin/env python3
"""Writes x.npy and t.npy: steps of rows, drawn with a fixed seed, and a smooth function of them. Needs Python alone."""
import argparse
import math
import os
import random
import struct


def write_npy(path, shape, values):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }" % ", ".join(str(n) for n in shape)
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("latin1"))
        f.write(struct.pack("<%df" % len(values), *values))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rows", type=int, default=32, help="of a step, all its microbatches together")
    parser.add_argument("--inputs", type=int, default=8)
    parser.add_argument("--outputs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--dir", default=os.path.dirname(os.path.abspath(__file__)))
    a = parser.parse_args()
    draw = random.Random(a.seed)
    mix = [[draw.uniform(-1, 1) for _ in range(a.inputs)] for _ in range(a.outputs)]
    xs, ts = [], []
    for _ in range(a.steps * a.rows):
        x = [draw.uniform(-4, 4) for _ in range(a.inputs)]
        xs += x
        ts += [math.tanh(sum(m * v for m, v in zip(row, x)) / 3) for row in mix]
    write_npy(os.path.join(a.dir, "x.npy"), (a.steps, a.rows, a.inputs), xs)
    write_npy(os.path.join(a.dir, "t.npy"), (a.steps, a.rows, a.outputs), ts)


if __name__ == "__main__":
    main()
