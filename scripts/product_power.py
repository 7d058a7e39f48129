#!/usr/bin/env python3
"""Says how fast a card's own library multiplies when it has just begun, and when it has gone on for a while.

Usage: scripts/product_power.py [ROWS [SECONDS]]

ROWS by 2,048 values times an in-projection of the 35B's shape (12,416 x 2,048), in f16 by PyTorch, with random
values and with zeros, which switch nothing: what the second takes less than the first is power. A card that is at
its limit lowers its clock within milliseconds; figures of a kernel alone, in launches of a few milliseconds, are
of before. Wants PyTorch and a GPU.
"""

import sys
import time

import torch

OUTPUTS, INPUTS, TOGETHER = 12416, 2048, 20


def timed(x, w):
    """Seconds of a product, of some in a row."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(TOGETHER):
        x @ w
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / TOGETHER


def main():
    if len(sys.argv) > 3 or any(not a.isdigit() for a in sys.argv[1:]):
        sys.exit(__doc__)
    rows, seconds = (int(a) for a in (sys.argv[1:] + ["8192", "2"][len(sys.argv) - 1 :]))
    operations = 2.0 * rows * INPUTS * OUTPUTS
    print(f"{torch.cuda.get_device_name()}: {rows} x {INPUTS} x {OUTPUTS}, f16\n{'values':10}{'first us':>10}{'T/s':>7}{'last us':>10}{'T/s':>7}")
    for values in ("random", "zeros"):
        make = torch.randn if values == "random" else torch.zeros
        x, w = (make(*shape, device="cuda", dtype=torch.float16) for shape in ((rows, INPUTS), (INPUTS, OUTPUTS)))
        for _ in range(3):
            x @ w
        torch.cuda.synchronize()
        time.sleep(1)
        first, until = timed(x, w), time.monotonic() + seconds
        while time.monotonic() < until:
            last = timed(x, w)
        print(f"{values:10}{first * 1e6:10.0f}{operations / first / 1e12:7.0f}{last * 1e6:10.0f}{operations / last / 1e12:7.0f}")


if __name__ == "__main__":
    main()
