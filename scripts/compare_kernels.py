#!/usr/bin/env python3
"""Compares the machine code of two kernel caches, made from different sources with the same options.

Usage: scripts/compare_kernels.py BEFORE AFTER [--all] [--diff PROGRAM]

BEFORE and AFTER are directories that a KernelCache filled, such as those that
`CHIMERE_KEEP_KERNELS=DIR cargo test -p chimere-kernels --test compile` leaves. Programs are told apart by name, architecture and options. Of
each kernel it compares registers, bytes of stack, of spills and of shared memory, and the instructions, without the places in constant memory
where arguments lie. Prints one line a kernel that differs (with --all every kernel), a table by program and architecture, and exits with 1
where one takes more registers (in eights, as they are given out), stack or shared memory than before, or more instructions by over 1 %. Needs `cuobjdump` and `nvdisasm`
(wheels nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm), found by PATH.
"""

import argparse
import collections
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile

MAGIC = b"chimere-kernel-1"
# By how much the number of instructions may grow.
INSTRUCTIONS_MAX = 0.01

Kernel = collections.namedtuple("Kernel", "registers stack shared instructions")


def cache(directory):
    """Machine code by (program, architecture, options)."""
    found = {}
    for path in sorted(pathlib.Path(directory).glob("*.cubin")):
        magic, length, rest = path.read_bytes().split(b"\n", 2)
        if magic != MAGIC:
            sys.exit(f"{path} is of another format: {magic!r}")
        fingerprint, code = rest[: int(length)], rest[int(length) + 1 :]
        name, arch, _ = path.stem.rsplit("-", 2)
        found[name, arch, fingerprint.split(b"\n", 1)[0].decode()] = code[8:]
    return found


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def normal(instruction):
    """An instruction without its address and without the place of an argument in constant memory."""
    text = re.sub(r"/\*[0-9a-f]+\*/", "", instruction).strip()
    return re.sub(r"c\[0x0\]\[[^]]*\]", "c[0x0][ARGUMENT]", text)


def tidy(instructions):
    """Without what only fills up the end, and with labels numbered in the order in which they come."""
    while instructions and instructions[-1].startswith("NOP"):
        instructions.pop()
    labels = {}
    number = lambda found: f".L{labels.setdefault(found[0], len(labels))}"
    return [re.sub(r"\.L_x_\d+", number, text) for text in instructions]


def kernels(code):
    """The kernels of a program by name."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        usage = run("cuobjdump", "--dump-resource-usage", file.name)
        text = run("nvdisasm", "--print-code", file.name)
    instructions, current = collections.defaultdict(list), None
    for line in text.splitlines():
        section = re.match(r"\s*\.section\s+\.text\.([\w.$]+)", line)
        if section:
            current = section[1].rstrip(",")
        elif current and re.match(r"\s*/\*[0-9a-f]+\*/", line):
            instructions[current].append(normal(line))
    for name, code in instructions.items():
        instructions[name] = tidy(code)
    result = {}
    pattern = r"Function (\w+):\s*\n\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)"
    for name, registers, stack, shared, local in re.findall(pattern, usage):
        result[name] = Kernel(int(registers), (int(stack), int(local)), int(shared), instructions[name])
    return result


def verdict(old, new):
    """What differs, and whether that is more than may be."""
    if old is None or new is None:
        return "only in one", True
    facts = [field for field in ("registers", "stack", "shared") if getattr(old, field) != getattr(new, field)]
    # Registers are given out in eights, so that fewer or a few more of them cost nothing within the same eight.
    worse = -(-new.registers // 8) > -(-old.registers // 8) or sum(new.stack) > sum(old.stack) or new.shared > old.shared
    more = len(new.instructions) - len(old.instructions)
    if not facts and old.instructions == new.instructions:
        return "", False
    values = [f"{field} {getattr(old, field)} -> {getattr(new, field)}" for field in facts]
    changed = sum(((collections.Counter(old.instructions) - collections.Counter(new.instructions))).values())
    values.append(f"instructions {len(old.instructions)} {more:+d}, {changed} others")
    return ", ".join(values), worse or more > INSTRUCTIONS_MAX * len(old.instructions)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("before")
    options.add_argument("after")
    options.add_argument("--all", action="store_true", help="a line for every kernel")
    options.add_argument("--diff", metavar="PROGRAM", help="writes the instructions of its kernels that differ to PROGRAM-KERNEL.before and .after")
    options = options.parse_args()
    before, after = cache(options.before), cache(options.after)
    both = sorted(before.keys() & after.keys())
    with concurrent.futures.ThreadPoolExecutor() as pool:
        sides = list(pool.map(lambda key: (kernels(before[key]), kernels(after[key])), both))
    table, bad = collections.defaultdict(collections.Counter), False
    for key, (old, new) in zip(both, sides):
        for name in sorted(old.keys() | new.keys()):
            text, too_much = verdict(old.get(name), new.get(name))
            bad |= too_much
            table[key[0], key[1]]["too much" if too_much else "others" if text else "equal"] += 1
            if text or options.all:
                print(f"{key[0]} {key[1]} {name}: {text or 'equal'}{' TOO MUCH' if too_much else ''}  ({short(key[2])})")
            if text and options.diff == key[0]:
                for side, kernel in (("before", old.get(name)), ("after", new.get(name))):
                    pathlib.Path(f"{key[0]}-{name}.{side}").write_text("\n".join(kernel.instructions if kernel else []))
    print("\n| program | architecture | kernels | the same instructions | others, within the bounds | beyond them |\n| --- | --- | --- | --- | --- | --- |")
    for (program, arch), counts in sorted(table.items()):
        print(f"| {program} | {arch} | {sum(counts.values())} | {counts['equal']} | {counts['others']} | {counts['too much']} |")
    print(f"\n{len(both)} programs compared; {len(before) - len(both)} only before, {len(after) - len(both)} only after")
    return 1 if bad or not both else 0


def short(options):
    return " ".join(part[2:] for part in options.split() if part.startswith("-D"))


if __name__ == "__main__":
    sys.exit(main())
