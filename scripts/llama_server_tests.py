#!/usr/bin/env python3
"""Runs llama.cpp's own tests of its server against Chimère and says which hold.

    pip download llama-cpp-python==0.3.9 --no-binary :all: --no-deps     # has them, under vendor/llama.cpp/tools/server/tests
    python3 scripts/llama_server_tests.py --chimere target/release/chimere --tests FOLDER
    python3 scripts/llama_server_tests.py --chimere target/release/chimere --tests FOLDER -k tokenize

The tests stay where they are and as they are. Copies in a temporary directory lose the assertions that scripts/llama_server_tests.toml names
by rule (a story's text, exact counts, llama.cpp's fingerprint), and scripts/llama_server_shim.py starts the service in the place of
llama-server. The same file lists each test that does not apply, with the reason; a line of it that fits no test is an error. pytest runs in
a virtual environment of its own under --venv, made with pip at the first run. The last line reads `N applied: N passed, N failed; N not
applicable`. Some tests differ in nothing that reaches this service (a template of its own, a flag that it does not have): of those that
applied, it is told how many sent what no other one did.
"""
import argparse
import ast
import collections
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
RULES = HERE / "llama_server_tests.toml"
PINNED = ["pytest==9.2.0", "requests==2.34.2", "openai==3.54.0"]
COPIED = ["utils.py", "conftest.py", "pytest.ini"]
RUN_SECONDS = 3600


class Rewriter(ast.NodeTransformer):
    """Takes out the assertions and decorators of one file that rules name, and counts them by rule."""

    def __init__(self, rules, taken):
        self.rules, self.taken, self.functions = rules, taken, []

    def visit_FunctionDef(self, node):
        self.functions.append(node.name)
        node.decorator_list = [decorator for decorator in node.decorator_list if not self.drops(decorator, "decorator")]
        self.generic_visit(node)
        self.functions.pop()
        return node

    def visit_Assert(self, node):
        return ast.copy_location(ast.Pass(), node) if self.drops(node.test, "assertion") else node

    def drops(self, node, kind):
        source = ast.unparse(node)
        for rule in self.rules:
            here = any(fnmatch.fnmatch(function, pattern) for pattern in rule.get("functions", ["*"]) for function in self.functions)
            if here and any(re.search(pattern, source) for pattern in rule.get(kind, [])):
                self.taken[rule["name"]] += 1
                return True
        return False


def rewrite(tests, folder, rules):
    """Copies of the tests without what rules take out; how much each rule took."""
    taken = collections.Counter()
    for name in COPIED:
        (folder / name).write_text((tests / name).read_text())
    (folder / "unit").mkdir()
    for file in sorted((tests / "unit").glob("test_*.py")):
        tree = Rewriter(rules, taken).visit(ast.parse(file.read_text()))
        (folder / "unit" / file.name).write_text(ast.unparse(ast.fix_missing_locations(tree)))
    return taken


def python_of(venv):
    """The interpreter of the environment, made if it is not there as pinned."""
    python, marker, wanted = venv / "bin/python", venv / "pinned", " ".join(PINNED)
    if not marker.exists() or marker.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PINNED], check=True)
        marker.write_text(wanted)
    return python


def run(args, folder):
    """What became of each test: the records that the shim writes, one a line."""
    results = folder / "results.jsonl"
    results.touch()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CHIMERE_")} | {
        "PYTHONPATH": os.pathsep.join([str(folder), str(HERE)]), "LLAMA_TESTS_CHIMERE": str(args.chimere.resolve()),
        "LLAMA_TESTS_MODEL": str(args.model.resolve()), "LLAMA_TESTS_RULES": str(RULES), "LLAMA_TESTS_RESULTS": str(results), "SLOW_TESTS": "1"}
    # They look for what only llama.cpp's own checkout has two folders above.
    command = [python_of(args.venv.resolve()), "-m", "pytest", "-p", "llama_server_shim", "-p", "no:cacheprovider", "-q", "--tb=short", "unit"]
    command += ["-k", args.k] if args.k else []
    if not args.verbose:
        command += ["--show-capture=no"]
    subprocess.run(command, cwd=folder, env=environment, timeout=RUN_SECONDS)
    return [json.loads(line) for line in results.read_text().splitlines()]


def report(records, rules, taken, whole):
    for rule in rules["rule"]:
        print(f"rule {rule['name']}: {rule['why']}" + (f"; {taken[rule['name']]} places" if taken[rule["name"]] else ""))
    print()
    left_out = collections.Counter(record["why"] for record in records if record["outcome"] == "not applicable")
    for why, count in left_out.most_common():
        print(f"{count:4} not applicable: {why}")
    unused = sorted(set(range(len(rules["not_applicable"]))) - {record["by"] for record in records if "by" in record}) if whole else []
    for i in unused:
        print(f"fits no test: {rules['not_applicable'][i]['tests']}")
    applied = [record for record in records if record["outcome"] != "not applicable"]
    failed = [record["test"] for record in applied if record["outcome"] == "failed"]
    different = len({(record["test"].split("[")[0], record["sent"]) for record in applied})
    print(*(f"FAILED {test}" for test in failed), sep="\n")
    print(f"{different} of them sent what no other test of their name did")
    print(f"{len(applied)} applied: {len(applied) - len(failed)} passed, {len(failed)} failed; {len(records) - len(applied)} not applicable")
    return bool(applied) and not failed and not unused


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", type=pathlib.Path, required=True, help="the binary")
    parser.add_argument("--tests", type=pathlib.Path, required=True, help="llama.cpp's tools/server/tests")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/nano")
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "target/clients/llama-server-tests")
    parser.add_argument("-k", help="only these, as pytest reads it")
    parser.add_argument("--verbose", action="store_true", help="show what failed tests printed")
    args = parser.parse_args()
    rules = tomllib.loads(RULES.read_text())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        taken = rewrite(args.tests, folder, rules["rule"])
        records = run(args, folder)
    return 0 if report(records, rules, taken, not args.k) else 1


if __name__ == "__main__":
    sys.exit(main())
