#!/usr/bin/env python3
"""Looks in a built program for vector code that was compiled without its caller's instruction set.

    python3 scripts/check_inlining.py target/release/chimere
    python3 scripts/check_inlining.py --library target/aarch64-unknown-linux-gnu/release/libchimere_engine.rlib

A kernel is compiled for more than the least processor of its architecture. What it calls must be inlined into it, or it is compiled
for the least one, and vectors travel through memory: twice that cost half the speed before anybody saw it. So in the machine code of
every kernel this finds each call and fails on one whose target is
- a vector intrinsic (`core::arch`), which is a single instruction where it is inlined;
- a closure, or an adapter of arrays or iterators of `core` that takes one.
It also fails on an intrinsic that stands anywhere as a function of its own and has a caller in this project, and where a set of
kernels that the architecture has is not found at all: then names have changed and this looks at nothing.

The program must have its symbols. Reads ELF for x86-64 and AArch64. Kernels of a program for x86-64 are decoded by PyPI's `iced-x86`.
"""
import argparse
import functools
import pathlib
import re
import struct
import sys
from bisect import bisect_right

X86_64, AARCH64 = 62, 183
# By architecture: what a set's kernels are called. `wide` and `narrow` are `simd/mod.rs` with 512 and 256 bits.
KERNELS = {
    X86_64: {"avx512": ("matmul", "avx512"), "amx": ("matmul", "amx"), "avx2": ("matmul", "avx2"),
             "wide": ("simd", "x86", "wide"), "narrow": ("simd", "x86", "narrow")},
    AARCH64: {"neon": ("matmul", "neon")},
}
INTRINSIC = re.compile(r"core_arch::.*::(_mm\d*_|_tile|v[a-z0-9]+q?_)")
ADAPTER = re.compile(r"^core::(array|iter|ops::function)::|\{\{closure\}\}|core::iter::|core::array::")
R_X86_PC32, R_X86_PLT32, R_X86_GOTPCRELX, R_X86_REX_GOTPCRELX, R_X86_RELATIVE = 2, 4, 41, 42, 8
R_A64_JUMP26, R_A64_CALL26 = 282, 283


@functools.cache
def plain(mangled):
    """The path in a mangled Rust name, about as its source has it; other names as they are."""
    name = mangled.split(".llvm.")[0]
    if name.startswith("_R"):
        return "::".join(new_parts(name))
    if name.startswith("_ZN"):
        return "::".join(old_parts(name)).replace("..", "::").replace("$LT$", "<").replace("$GT$", ">").replace("$u7b$", "{").replace("$u7d$", "}")
    return name


def old_parts(name):
    """Lengths and identifiers, then a hash, which is left out."""
    at = 3
    while at < len(name) and name[at].isdigit():
        length = re.match(r"\d+", name[at:])[0]
        at += len(length) + int(length)
        part = name[at - int(length):at]
        if not re.fullmatch(r"h[0-9a-f]{16}", part):
            yield part


def new_parts(name):
    """The identifiers of the grammar in RFC 2603, in order; of what stands between them only that it is a closure."""
    at = 2
    while at < len(name):
        if name[at] in "sB":     # a number in base 62
            at = name.find("_", at) + 1 or len(name)
        elif name[at] == "N":    # a path within a namespace
            if name[at + 1:at + 2] == "C":
                yield "{{closure}}"
            at += 2
        elif name[at].isdigit():
            length = re.match(r"\d+", name[at:])[0]
            at += len(length) + (name[at + len(length):at + len(length) + 1] == "_")
            yield name[at:at + int(length)]
            at += int(length)
        else:
            at += 1


class Elf:
    """Symbols, code and relocations of one object or program."""

    def __init__(self, data):
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit little-endian ELF file")
        self.data = data
        self.machine, = struct.unpack_from("<H", data, 18)
        table, = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        # name, type, flags, address, offset, size, link, info, alignment, entry size
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
        self.symbols = self.read_symbols()
        self.functions = sorted((section, value, size, name) for name, kind, section, value, size in self.symbols if kind == 2 and size)

    def read_symbols(self):
        for section in self.sections:
            if section[1] != 2:
                continue
            strings = self.sections[section[6]][4]
            found = []
            for at in range(section[4], section[4] + section[5], 24):
                name, info, _, index, value, size = struct.unpack_from("<IBBHQQ", self.data, at)
                end = self.data.index(b"\0", strings + name)
                found.append((self.data[strings + name:end].decode(), info & 15, index, value, size))
            return found
        return []

    def code(self, section, value, size):
        start = self.sections[section][4] + value - self.sections[section][3]
        return self.data[start:start + size]

    def relocations(self):
        """By section that they change: (offset, kind, symbol, addend)."""
        by_section = {}
        for section in self.sections:
            if section[1] != 4:
                continue
            rows = by_section.setdefault(section[7], [])
            for at in range(section[4], section[4] + section[5], 24):
                offset, info, addend = struct.unpack_from("<QQq", self.data, at)
                rows.append((offset, info & 0xffffffff, info >> 32, addend))
        return by_section


class Program:
    """Calls of a linked program, found by where they lead."""

    def __init__(self, elf):
        self.elf = elf
        self.functions = elf.functions
        self.by_address = {value: name for _, value, _, name in elf.functions}
        # Entries of the table that calls go through, where the linker could not make them direct.
        self.slots = {offset: addend for rows in elf.relocations().values() for offset, kind, _, addend in rows if kind == R_X86_RELATIVE}

    def calls(self, function, exact):
        """The names that a function calls. Without `exact`, a target that no instruction has may be among them."""
        section, start, size, _ = function
        code = self.elf.code(section, start, size)
        x86_targets = self.x86_targets if exact else self.x86_guesses
        targets = self.arm_targets(code, start) if self.elf.machine == AARCH64 else x86_targets(code, start)
        for target in targets:
            if target in self.by_address and not start <= target < start + size:
                yield self.by_address[target]

    def arm_targets(self, code, start):
        for at, (word,) in zip(range(0, len(code), 4), struct.iter_unpack("<I", code[:len(code) & ~3])):
            if word >> 26 & 0x1f == 5:    # bl and b, a signed distance in words
                yield start + at + 4 * ((word & 0x3ffffff ^ 0x2000000) - 0x2000000)

    def x86_targets(self, code, start):
        """Decodes each instruction: 150,000 in a second."""
        import iced_x86 as x86
        for instruction in x86.Decoder(64, code, ip=start):
            if instruction.flow_control in (x86.FlowControl.CALL, x86.FlowControl.UNCONDITIONAL_BRANCH):
                yield instruction.near_branch_target
            elif instruction.is_ip_rel_memory_operand and instruction.flow_control in (
                    x86.FlowControl.INDIRECT_CALL, x86.FlowControl.INDIRECT_BRANCH):
                yield self.slots.get(instruction.ip_rel_memory_address)

    def x86_guesses(self, code, start):
        """Takes every byte for the beginning of an instruction, which is fast enough for the whole program. A false one leads to the
        first byte of some function once in 60 functions of 100 KB, and to a given function about never."""
        for found in re.finditer(rb"(?=[\xe8\xe9](....)|\xff[\x15\x25](....))", code, re.DOTALL):
            direct, indirect = found.groups()
            if direct:
                yield start + found.start() + 5 + struct.unpack("<i", direct)[0]
            else:
                yield self.slots.get(start + found.start() + 6 + struct.unpack("<i", indirect)[0])


class Library:
    """Calls of objects that are not linked yet: their relocations name the targets."""

    def __init__(self, elf):
        self.elf = elf
        self.functions = elf.functions
        self.targets = {}
        at = {(section, value): name for section, value, _, name in reversed(elf.functions)}
        kinds = {X86_64: (R_X86_PLT32, R_X86_GOTPCRELX, R_X86_REX_GOTPCRELX, R_X86_PC32), AARCH64: (R_A64_CALL26, R_A64_JUMP26)}[elf.machine]
        for section, rows in elf.relocations().items():
            rows = [r for r in rows if r[1] in kinds]
            named = []
            for offset, _, symbol, addend in rows:
                name, kind, index, value, _ = elf.symbols[symbol]
                # A section's own symbol with an offset stands for a local function.
                shift = addend + 4 if elf.machine == X86_64 else addend
                named.append((offset, at.get((index, value + shift), "") if kind == 3 else name))
            self.targets[section] = sorted(named)

    def calls(self, function, exact):
        """The names that a function calls. Relocations are always exact."""
        section, start, size, own = function
        rows = self.targets.get(section, [])
        first = bisect_right(rows, (start, ""))
        for offset, name in rows[first:]:
            if offset >= start + size:
                break
            if name and name != own:
                yield name


def objects(path):
    """The ELF files in a program, an object or an archive."""
    data = path.read_bytes()
    if data[:8] != b"!<arch>\n":
        return [Elf(data)]
    found, at = [], 8
    while at + 60 <= len(data):
        size = int(data[at + 48:at + 58])
        body = data[at + 60:at + 60 + size]
        if body[:4] == b"\x7fELF":
            found.append(Elf(body))
        at += 60 + size + size % 2
    return found


def set_of(machine, name):
    """The instruction set that a function is a kernel of."""
    for isa, path in KERNELS[machine].items():
        if name.startswith("chimere_engine::") and "::".join(("", *path)) in name:
            return isa
    return None


def check(programs):
    """Complaints, and the number of kernels by set."""
    bad, kernels, callers = set(), {}, {}
    for program in programs:
        for function in program.functions:
            name = function[3]
            isa = set_of(program.elf.machine, plain(name))
            kernels[isa] = kernels.get(isa, 0) + 1
            for target in program.calls(function, exact=isa is not None):
                callers.setdefault(target, set()).add(name)
                if isa is not None and ADAPTER.search(plain(target)):
                    bad.add(f"{plain(name)} calls {plain(target)}")
    for target in callers:
        if INTRINSIC.search(plain(target)):
            bad |= {f"{plain(target)} is called from {caller}" for caller in ours(callers, target)}
    kernels.pop(None, None)
    return sorted(bad), kernels


def ours(callers, target):
    """The functions of this project that call `target`, also by way of the standard library's generic code."""
    seen, todo = {target}, [target]
    while todo:
        for caller in callers.get(todo.pop(), ()):
            path = plain(caller)
            if "chimere" in path:
                yield path
            elif caller not in seen and re.match(r"_?<?(core|alloc)::", path):
                seen.add(caller)
                todo.append(caller)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, help="a program, or with --library objects that are not linked")
    parser.add_argument("--library", action="store_true", help="FILE is an object, or an archive of them such as an .rlib")
    args = parser.parse_args()
    elves = objects(args.file)
    if not elves:
        sys.exit(f"{args.file}: no machine code in it")
    machine = elves[0].machine
    if machine not in KERNELS:
        sys.exit(f"{args.file}: machine {machine}; this knows x86-64 (62) and AArch64 (183)")
    bad, kernels = check([(Library if args.library else Program)(elf) for elf in elves])
    for complaint in bad:
        print(complaint)
    missing = [isa for isa in KERNELS[machine] if not kernels.get(isa)]
    for isa in missing:
        print(f"{args.file}: no kernel of {isa} in it; is it stripped, or was it renamed?")
    found = ", ".join(f"{isa} {count}" for isa, count in sorted(kernels.items()))
    print(f"{args.file}: functions looked at: {found or 'none'}; complaints: {len(bad) + len(missing)}")
    return 1 if bad or missing else 0


if __name__ == "__main__":
    sys.exit(main())
