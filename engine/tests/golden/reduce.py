"""Cuts a full set of reference outputs down to the arrays that the tests of this repository read.

    python3 reduce.py FULL/golden.safetensors moe/golden.safetensors

The full files come from `make_tiny_reference.py` (a tiny random model of each architecture, run through the `transformers` CPU
reference in float32). Kept: input_ids, logits, decode_ids, decode_logits; every layer's topk_ids, out and conv_state;
mixer_out and mlp_out of layers 0 and 3; layer 0's recurrent_state; of k_cache and v_cache ([Hkv, T, D]) the last TAIL positions.
`--mtp` keeps mtp_logits too. `--no-state` leaves the recurrent state out (next and quant: their head ratio is that of moe). Only the standard library is used.
"""
import json
import re
import struct
import sys

TAIL = 16
WHOLE = re.compile(
    r"input_ids|logits|decode_ids|decode_logits|layer\.\d+\.(topk_ids|conv_state|out)|layer\.[03]\.(mixer_out|mlp_out)")
STATE = re.compile(r"layer\.0\.recurrent_state")
CACHE = re.compile(r"layer\.\d+\.[kv]_cache")


def read(path):
    with open(path, "rb") as f:
        raw = f.read()
    size, = struct.unpack_from("<Q", raw)
    head = json.loads(raw[8:8 + size])
    head.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], raw[8 + size + v["data_offsets"][0]:8 + size + v["data_offsets"][1]]) for k, v in head.items()}


def tail(dtype, shape, data):
    """[heads, T, D] -> [heads, TAIL, D], the last positions; both element types in use are 4 bytes wide."""
    heads, length, dim = shape
    size, keep = length * dim * 4, TAIL * dim * 4
    return dtype, [heads, TAIL, dim], b"".join(data[(h + 1) * size - keep:(h + 1) * size] for h in range(heads))


def write(path, arrays):
    head, body, at = {}, [], 0
    for name, (dtype, shape, data) in sorted(arrays.items()):
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        body.append(data)
        at += len(data)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(body))


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    source, target = args
    kept = {}
    for name, array in read(source).items():
        draft = name == "mtp_logits" and "--mtp" in sys.argv
        if draft or WHOLE.fullmatch(name) or (STATE.fullmatch(name) and "--no-state" not in sys.argv):
            kept[name] = array
        elif CACHE.fullmatch(name):
            kept[name] = tail(*array)
    write(target, kept)
    print(target, sorted(kept))


if __name__ == "__main__":
    main()
