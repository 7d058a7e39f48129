#!/usr/bin/env python3
"""Counts what makes the tree harder to read than it has to be, so that a change of its layout can be told by figures.

    scripts/house.py                      # the checkout, tracked files and those that git does not ignore
    scripts/house.py --at 63e987c         # a commit, without checking it out
    scripts/house.py --list circles       # where, not only how many; --list all for everything
    scripts/house.py --check scripts/house.json    # fails where a count is above its limit, as .ci/run asks
    scripts/house.py --lower scripts/house.json    # lowers each limit to today's count; a limit is raised by hand, with the reason in the commit

Text is all it reads: comments and strings are blanked, braces are matched, `use` trees are spelled out, and no compiler is
asked. So a count is what a reader sees, and the same tree gives the same counts on every machine. Nothing but the standard
library and git is needed. What is counted stands at each function below. "Tests left out" means without code under
`#[cfg(test)]` at the end of a file and without folders `tests`, `benches` and `examples`.
"""
import argparse
import collections
import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

RUST_FUNCTION_LINES = 70
DEVICE_FUNCTION_LINES = 80
DOC_WORDS = 3
PAGE_LINES = 250
MARKDOWN_COLUMNS = 110
RUST_COLUMNS = 120
FILE_LINES = 600
FOLDER_FILES = 15
OPENINGS = ("The same", "Likewise", "Whose")
MEASUREMENTS = "docs/measurements/"
# Two places say the same when this many lines of code in a row are equal, blanks and comments aside. Shorter runs are idioms.
SAME_LINES = 4
SAME_LETTERS = 80
# A field that goes the whole way of a request: from its body to the scheduler.
REQUEST_FIELD = "priority"
# Written by a program from other files of the tree, which checks that it is current.
GENERATED_PAGES = {"docs/reference/metrics.md"}
CRATES = ("kernels", "engine", "services", "tools", "cli")


# ---- reading the tree

def from_checkout():
    """Path to text of every file that git knows or does not ignore."""
    names = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").decode().split("\0")
    paths = [(name, ROOT / name) for name in names if is_read(name)]
    return {name: path.read_text(encoding="utf-8") for name, path in paths if path.is_file()}


def from_commit(revision):
    """The same of a commit."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", revision))) as archive:
        files = [m for m in archive.getmembers() if m.isfile() and is_read(m.name)]
        return {m.name: archive.extractfile(m).read().decode("utf-8") for m in files}


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def is_read(name):
    return name.endswith((".rs", ".cu", ".cuh", ".md"))


def is_test_file(name):
    return bool(re.search(r"(^|/)(tests|benches|examples)(/|\.rs$)", name))


SPACES = re.compile(r"[^\n]")
TOKENS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\bb?r(?P<hashes>\#*)".*?"(?P=hashes)|\bb?"(?:\\.|[^"\\])*"|"(?:\\.|[^"\\])*"|b?'(?:\\.[^']*|[^'\\])'""",
    re.S | re.X,
)


def code_of(text):
    """The text with comments, strings and characters as blanks; every line and column keeps its place."""
    return TOKENS.sub(lambda m: SPACES.sub(" ", m.group()), text)


TESTS = re.compile(r"^#\[cfg\((?:all\()?test\b[^\n]*\n(?:#\[[^\n]*\n)*(?:pub(?:\([^)]*\))? )?mod \w+ \{", re.M)


def without_tests(code):
    """Code up to the tests at its end."""
    found = TESTS.search(code)
    return code[: found.start()] if found else code


class Tree:
    """All files, and those of Rust with their comments blanked: `rust` with tests, `plain` without."""

    def __init__(self, files):
        self.files = dict(sorted(files.items()))
        self.rust = {n: code_of(t) for n, t in self.files.items() if n.endswith(".rs")}
        self.plain = {n: without_tests(c) for n, c in self.rust.items() if not is_test_file(n)}
        self.device = {n: code_of(t) for n, t in self.files.items() if n.endswith((".cu", ".cuh"))}
        self.pages = {n: t for n, t in self.files.items() if n.endswith(".md") and n not in GENERATED_PAGES}


def line_at(text, offset):
    return text.count("\n", 0, offset) + 1


def closing(code, opening):
    """Where the brace at `opening` is closed."""
    depth = 0
    for brace in re.compile(r"[{}]").finditer(code, opening):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return brace.start()
    return len(code)


# ---- what a layer is made of

OPERATOR = re.compile(r"(?:Gated)?Delta\w*|Gdn|Attention|Dense|Swiglu|SwiGlu|Mlp|Moe|Mamba\w*")


def kinds_of_a_layer(tree):
    """Enum to its variants that are operators, of enums that have a delta rule beside attention or a dense part beside experts.
    Of an enum that a macro makes the variants are not known: there every operator counts."""
    found = collections.defaultdict(set)
    for code in tree.plain.values():
        for enum in re.finditer(r"\benum (\w+)[^{;]*\{", code):
            body = code[enum.end() : closing(code, enum.end() - 1)]
            variants = re.findall(r"(?:^|[,{}])\s*(?:#\[[^\]]*\]\s*)*([A-Z]\w*)", body)
            operators = {v for v in variants if OPERATOR.fullmatch(v)}
            if "$" in body:
                found[enum.group(1)].add(OPERATOR.pattern)
            elif len(operators) > 1:
                found[enum.group(1)] |= operators
    return found


def layer_kind_files(tree):
    """Files, tests left out, that name an operator as the variant of an enum, or that list operators for a macro to make such an
    enum: each of them is opened for a new operator."""
    kinds = kinds_of_a_layer(tree)
    names = [rf"{enum}::(?:{'|'.join(sorted(operators))})" for enum, operators in sorted(kinds.items())]
    own = rf"Self::(?:{'|'.join(sorted(set().union(*kinds.values())))})"
    pattern = re.compile(rf"\b(?:{'|'.join([*names, own])})\b")
    listed = re.compile(rf"^\s*({OPERATOR.pattern})\(", re.M)
    found = []
    for name, code in tree.plain.items():
        hits = {hit.group() for hit in pattern.finditer(code) if re.search(r"::[A-Z]", hit.group())}
        outside = re.sub(r"\benum \w+[^{;]*\{[^$]*?^\}", "", code, flags=re.M)
        operators = {hit.group(1) for hit in listed.finditer(outside)}
        hits |= operators if len(operators) > 1 else set()
        if hits:
            found.append((name, ", ".join(sorted(hits))))
    return found


def request_field_files(tree):
    """Files, tests left out, that declare the field or fill it in: each of them is opened for a new field of a request."""
    pattern = re.compile(rf"(?<![.\w:]){REQUEST_FIELD}\b(?=\s*(?:,|\}}|:[^:]))")
    found = ((name, code, pattern.search(code)) for name, code in tree.plain.items() if name.startswith(("services/", "engine/")))
    return [(f"{name}:{line_at(code, at.start())}",) for name, code, at in found if at]


# ---- functions

def body_of(code, offset):
    """Where the body opens of the function whose name ends at `offset`; `None` where it is only declared."""
    depth = 0
    for mark in re.compile(r"[()\[\]{};]").finditer(code, offset):
        letter = mark.group()
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and letter in "{;":
            return mark.start() if letter == "{" else None
    return None


def long_functions(sources, heads, most):
    found = []
    for name, code in sources.items():
        for head in heads.finditer(code):
            opening = body_of(code, head.end())
            if opening is not None:
                first, last = line_at(code, head.start()), line_at(code, closing(code, opening))
                if last - first + 1 > most:
                    found.append((f"{name}:{first}", f"{head.group('name')}, {last - first + 1} lines"))
    return found


def long_rust_functions(tree):
    """Functions of more than 70 lines, those of tests and benchmarks too, from their head to the brace that closes them."""
    return long_functions(tree.rust, re.compile(r"\bfn\s+(?P<name>\w+)"), RUST_FUNCTION_LINES)


def long_device_functions(tree):
    """Functions of more than 80 lines that run on the device."""
    attribute = r"(?:__\w+__\s*\((?:[^()]|\([^()]*\))*\))"
    heads = re.compile(rf"__(?:device|global)__(?:[^;{{}}()]*{attribute})*[^;{{}}()]*?\b(?P<name>(?!__)\w+)(?=\s*\()")
    return long_functions(tree.device, heads, DEVICE_FUNCTION_LINES)


# ---- modules that know each other

def spelled_out(use):
    """The paths of a `use` tree."""
    prefix, brace, rest = use.partition("{")
    if not brace:
        return [re.sub(r"\s+as\s+\w+", "", use).strip()]
    paths, depth, part = [], 0, ""
    for letter in rest[: rest.rfind("}")] + ",":
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            paths += spelled_out(part) if part.strip() else []
            part = ""
        else:
            part += letter
    return [prefix.strip() + path for path in paths]


def module_of(name, crate):
    parts = name[len(crate) + len("/src/") : -len(".rs")].split("/")
    return tuple(parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts)


def resolved(path, module, modules):
    """The module that a path leads into, or `None` where it leaves the crate."""
    steps = path.split("::")
    if steps[0] == "crate":
        at, steps = (), steps[1:]
    elif steps[0] in ("self", "super"):
        at = module
        while steps and steps[0] in ("self", "super"):
            at = at[:-1] if steps[0] == "super" else at
            steps = steps[1:]
    elif module + (steps[0],) in modules:
        at = module
    else:
        return None
    for step in steps:
        if at + (step,) not in modules:
            break
        at += (step,)
    return at


def neighbours(tree, crate):
    """Which files and folders of one folder name which others of it, as module to modules. A folder names what its files name.
    What a parent and its children share is not asked: they know each other by their nature."""
    modules = {module_of(n, crate): c for n, c in tree.plain.items() if n.startswith(f"{crate}/src/")}
    known = {m[:i] for m in modules for i in range(len(m) + 1)}
    arrows = collections.defaultdict(set)
    for module, code in modules.items():
        uses = re.findall(r"\buse\s+([^;]+);", code)
        paths = [p for use in uses for p in spelled_out(use)]
        paths += re.findall(r"\b(?:crate|super|self)(?:::\w+)+", re.sub(r"\buse\s+[^;]+;", "", code))
        for target in filter(None, (resolved(re.sub(r"\s", "", p), module, known) for p in paths)):
            shared = next((i for i, (a, b) in enumerate(zip(module, target)) if a != b), None)
            if shared is not None:
                arrows[module[: shared + 1]].add(target[: shared + 1])
    return arrows


def circles_in(arrows):
    """Groups of modules each of which leads to every other (Tarjan's strongly connected components of two and more)."""
    order, low, stack, found = {}, {}, [], []

    def visit(module):
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in sorted(arrows.get(module, ())):
            if other not in order:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], order[other])
        if low[module] == order[module]:
            at = stack.index(module)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for module in sorted(arrows):
        if module not in order:
            visit(module)
    return [group for group in found if len(group) > 1]


def circles(tree):
    """Groups of files and folders of one folder that lead to each other by what they name, tests left out."""
    groups = [(crate, group) for crate in CRATES for group in circles_in(neighbours(tree, crate))]
    return [(crate, " <-> ".join("::".join(m) for m in group)) for crate, group in groups]


# ---- words

def types_of_one_name(tree):
    """Names that more than one type of the workspace has, tests left out."""
    places = collections.defaultdict(list)
    for name, code in tree.plain.items():
        for found in re.finditer(r"^(?:pub(?:\([^)]*\))? )?(?:struct|enum|union|trait|type) (\w+)", code, re.M):
            places[found.group(1)].append(f"{name}:{line_at(code, found.start())}")
    return [(name, " ".join(at)) for name, at in sorted(places.items()) if len(at) > 1]


def doc_comments(tree):
    """(place, text) of each comment on an item, its lines joined."""
    for name, text in tree.files.items():
        if name.endswith(".rs"):
            for block in re.finditer(r"(?:^[ \t]*///(?!/)[^\n]*\n)+", text, re.M):
                words = " ".join(line.strip()[3:].strip() for line in block.group().splitlines())
                yield f"{name}:{line_at(text, block.start())}", words


def short_doc_comments(tree):
    """Comments on items, `///`, of three words or fewer."""
    return [(at, words) for at, words in doc_comments(tree) if len(words.split()) <= DOC_WORDS]


def dependent_comments(tree):
    """Comments that begin with a word which points at the comment before: they cannot be understood alone."""
    pattern = re.compile(rf"^[ \t]*//[/!]?[ \t]+(?:{'|'.join(OPENINGS)})\b", re.M)
    texts = ((n, t) for n, t in tree.files.items() if n.endswith((".rs", ".cu", ".cuh")))
    found = []
    for name, text in texts:
        lines = text.splitlines()
        for number, line in enumerate(lines):
            # A line inside a comment may begin with any word.
            if pattern.match(line) and not (number and lines[number - 1].lstrip().startswith("//")):
                found.append((f"{name}:{number + 1}", line.strip()))
    return found


# ---- files and folders

def long_files(tree):
    """Files of more than 600 lines, tests left out."""
    sources = {**tree.plain, **{n: c for n, c in tree.device.items() if not is_test_file(n)}}
    counted = [(n, len(c.splitlines())) for n, c in sources.items()]
    return [(name, f"{lines} lines") for name, lines in counted if lines > FILE_LINES]


def full_folders(tree):
    """Folders with more than 15 files of Rust or of the device, tests left out."""
    folders = collections.Counter(n.rsplit("/", 1)[0] for n in (*tree.plain, *tree.device) if "/" in n)
    return [(name, f"{files} files") for name, files in sorted(folders.items()) if files > FOLDER_FILES]


def measurement_lines(tree):
    """Lines of the pages on measurements."""
    texts = ((n, t) for n, t in tree.pages.items() if n.startswith(MEASUREMENTS))
    return [(f"{n}:{i}",) for n, t in texts for i, _ in enumerate(t.splitlines(), 1)]


# ---- places that say the same

def lines_that_count(code):
    """(line number, line without blanks) of what is neither a bracket nor an import."""
    in_use = False
    for number, line in enumerate(code.split("\n"), 1):
        bare = "".join(line.split())
        starts = re.match(r"\s*(pub(\([^)]*\))?\s+)?(use|mod)\s", line) is not None
        in_use = (in_use or starts) and not bare.endswith(";")
        if not (starts or in_use) and re.search(r"\w", bare) and not bare.startswith("#"):
            yield number, bare


def same_places(tree):
    """Pairs of places with at least four lines of code in a row that are equal to the letter, tests left out. A longer run is
    one pair. Places that do the same under other names are not found: those want a reader."""
    sources = {**tree.plain, **tree.device}
    lines = {name: list(lines_that_count(code)) for name, code in sources.items()}
    windows = collections.defaultdict(list)
    for name, listed in lines.items():
        for i in range(len(listed) - SAME_LINES + 1):
            key = "\n".join(line for _, line in listed[i : i + SAME_LINES])
            if len(re.sub(r"\W", "", key)) >= SAME_LETTERS:
                windows[key].append((name, i))
    hits = {(a, b) for places in windows.values() for n, a in enumerate(places) for b in places[n + 1 :]}
    runs = [pair for pair in hits if tuple((name, i - 1) for name, i in pair) not in hits]
    place = lambda name, i: f"{name}:{lines[name][i][0]}"  # noqa: E731
    return sorted((place(*a), place(*b)) for a, b in runs)


# ---- pages and columns

def long_pages(tree):
    """Markdown pages of more lines than 250, generated ones left out."""
    counted = [(n, len(t.splitlines())) for n, t in tree.pages.items()]
    return [(name, f"{lines} lines") for name, lines in counted if lines > PAGE_LINES]


def wide_markdown(tree):
    """Lines of Markdown wider than 110 columns; rows of tables and blocks of code cannot be wrapped and are left out."""
    found = []
    for name, text in tree.pages.items():
        fenced = False
        for number, line in enumerate(text.splitlines(), 1):
            fence = line.lstrip().startswith("```")
            fenced ^= fence
            if len(line) > MARKDOWN_COLUMNS and not (fenced or fence or line.lstrip().startswith("|")):
                found.append((f"{name}:{number}", f"{len(line)} columns"))
    return found


def wide_rust(tree):
    """Lines of Rust wider than 120 columns, comments and tests too."""
    texts = ((n, t) for n, t in tree.files.items() if n.endswith(".rs"))
    numbered = ((f"{n}:{i}", len(line)) for n, t in texts for i, line in enumerate(t.splitlines(), 1))
    return [(at, f"{columns} columns") for at, columns in numbered if columns > RUST_COLUMNS]


COUNTS = {
    "layer-kind": ("files that match on a layer's kind", layer_kind_files),
    "request-field": (f"files that a request's field is spelled in (`{REQUEST_FIELD}`)", request_field_files),
    "functions": (f"Rust functions above {RUST_FUNCTION_LINES} lines", long_rust_functions),
    "device-functions": (f"device functions above {DEVICE_FUNCTION_LINES} lines", long_device_functions),
    "circles": ("circles of modules", circles),
    "types": ("type names that several types have", types_of_one_name),
    "same": ("pairs of places that say the same", same_places),
    "docs": (f"doc comments of {DOC_WORDS} words or fewer", short_doc_comments),
    "openings": (f"comments that begin with {', '.join(OPENINGS)}", dependent_comments),
    "files": (f"files above {FILE_LINES} lines", long_files),
    "folders": (f"folders with more than {FOLDER_FILES} files", full_folders),
    "measurements": (f"lines in {MEASUREMENTS}", measurement_lines),
    "pages": (f"Markdown pages above {PAGE_LINES} lines", long_pages),
    "markdown-lines": (f"Markdown lines above {MARKDOWN_COLUMNS} columns", wide_markdown),
    "rust-lines": (f"Rust lines above {RUST_COLUMNS} columns", wide_rust),
}


def over_limits(path, counts):
    """What to say of counts above their limits, and of counts without one."""
    limits = json.loads(path.read_text(encoding="utf-8"))
    over = [f"{COUNTS[name][0]}: {count}, at most {limits[name]} (--list {name} says where)" for name, count in counts.items()
            if count > limits.get(name, -1)]
    return over + [f"{name}: no such count" for name in limits if name not in COUNTS]


def lower(path, counts):
    """Lowers the limits to the counts; a count without a limit gets one."""
    limits = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    lowered = {name: min(count, limits.get(name, count)) for name, count in counts.items()}
    path.write_text(json.dumps(lowered, indent=2) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", metavar="REVISION", help="count a commit instead of the checkout")
    parser.add_argument("--list", choices=[*COUNTS, "all"], action="append", default=[], help="print the places too")
    parser.add_argument("--under", default="", metavar="PATH", help="list only places whose path begins with this")
    parser.add_argument("--check", type=pathlib.Path, metavar="LIMITS", help="exit with 1 where a count is above its limit")
    parser.add_argument("--lower", type=pathlib.Path, metavar="LIMITS", help="lower the limits to today's counts")
    options = parser.parse_args()
    tree = Tree(from_commit(options.at) if options.at else from_checkout())
    print("| count | |\n| --- | --- |")
    listed, counts = [], {}
    for name, (title, count) in COUNTS.items():
        found = count(tree)
        counts[name] = len(found)
        of = f" of {sum(1 for _ in doc_comments(tree)):,}" if name == "docs" else ""
        print(f"| {title} | {len(found):,}{of} |")
        if name in options.list or "all" in options.list:
            listed.append((title, [hit for hit in found if any(part.startswith(options.under) for part in hit)]))
    for title, found in listed:
        print(f"\n{title}:")
        for hit in found:
            print("  " + "  ".join(hit))
    if options.lower:
        lower(options.lower, counts)
    over = over_limits(options.check, counts) if options.check else []
    for said in over:
        print(f"above its limit: {said}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
