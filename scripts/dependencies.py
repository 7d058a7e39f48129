#!/usr/bin/env python3
"""Holds the dependencies to deny.toml and lists them.

    python3 scripts/dependencies.py                       # licences, duplicates, sources, banned crates; advisories if cargo-deny is there
    python3 scripts/dependencies.py --sbom sbom.json      # also writes what is in the program, as CycloneDX 1.5

Reads `cargo metadata` for the locked versions and asks nobody on the network. Known holes (advisories) are in a database that cargo-deny
fetches: where it is not installed or cannot reach it, this says so, and the rest still holds.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = "x86_64-unknown-linux-gnu"


def metadata():
    """Packages of the locked tree that are built for a server, by id."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    # The resolution has crates too that only a feature nobody turned on would bring; the tree has those that are built.
    tree = ["cargo", "tree", "--workspace", "--locked", "--target", TARGET, "--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}"]
    lines = subprocess.run(tree, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    built = {tuple(line.split()[:2]) for line in lines if line}
    return [package for package in found["packages"] if (package["name"], f"v{package['version']}") in built]


def allowed(expression, licences):
    """Whether an SPDX expression can be met with these licences."""
    if not expression:
        return False
    text = expression.replace("/", " OR ")
    # `WITH` binds an exception to its licence: the pair is one name.
    text = re.sub(r"([\w.-]+) WITH ([\w.-]+)", r"\1+\2", text)
    names = {name.replace(" WITH ", "+") for name in licences}
    tokens = re.findall(r"\(|\)|[^\s()]+", text)

    def parse_or(at):
        value, at = parse_and(at)
        while at < len(tokens) and tokens[at] == "OR":
            right, at = parse_and(at + 1)
            value = value or right
        return value, at

    def parse_and(at):
        value, at = parse_one(at)
        while at < len(tokens) and tokens[at] == "AND":
            right, at = parse_one(at + 1)
            value = value and right
        return value, at

    def parse_one(at):
        if tokens[at] == "(":
            value, at = parse_or(at + 1)
            return value, at + 1
        return tokens[at] in names, at + 1

    return parse_or(0)[0]


def faults(packages, rules):
    """What breaks the rules, in words."""
    licences, bans, sources = rules["licenses"]["allow"], rules["bans"], rules["sources"]
    registries = {f"registry+{url}" for url in sources["allow-registry"]}
    banned = {entry["crate"] for entry in bans["deny"]}
    skipped = {entry["crate"] for entry in bans["skip"]}
    versions = {}
    for package in packages:
        name, source = package["name"], package["source"]
        versions.setdefault(name, set()).add(package["version"])
        if source is not None and source not in registries:
            yield f"{name} {package['version']} comes from {source}, which sources.allow-registry does not name"
        if source is not None and not allowed(package["license"], licences):
            yield f"{name} {package['version']} is under {package['license']!r}, which licenses.allow does not allow"
        if name in banned:
            yield f"{name} is banned (bans.deny)"
    for name, found in versions.items():
        if len(found) > 1 and name not in skipped:
            yield f"{name} is there more than once: {', '.join(sorted(found))} (bans.skip lists those that are known)"
    for name in sorted(skipped):
        if len(versions.get(name, ())) < 2:
            yield f"bans.skip lists {name}, which is there only once now: take it off the list"


def sbom(packages):
    """What is in the program, as CycloneDX has it."""
    component = lambda p: {
        "type": "library", "name": p["name"], "version": p["version"], "purl": f"pkg:cargo/{p['name']}@{p['version']}",
        "licenses": [{"expression": p["license"].replace("/", " OR ")}] if p["license"] else []}
    ours = next(package for package in packages if package["name"] == "chimere")
    others = sorted((p for p in packages if p["source"] is not None), key=lambda p: (p["name"], p["version"]))
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"component": component(ours) | {"type": "application"}}, "components": [component(p) for p in others]}


def check_advisories():
    """Asks cargo-deny, if there is one. True unless it found something."""
    if shutil.which("cargo-deny") is None:
        print("advisories: NOT CHECKED, cargo-deny is not installed here")
        return True
    done = subprocess.run(["cargo", "deny", "check", "advisories"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    if done.returncode and "failed to fetch" in done.stderr:
        print("advisories: NOT CHECKED, their database cannot be reached")
        return True
    print(done.stderr, end="", file=sys.stderr)
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sbom", type=pathlib.Path, help="file to write the list of all components to")
    args = parser.parse_args()
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    packages = metadata()
    found = list(faults(packages, rules))
    for fault in found:
        print(f"dependencies: {fault}", file=sys.stderr)
    if args.sbom:
        args.sbom.write_text(json.dumps(sbom(packages), indent=1) + "\n")
    well = check_advisories() and not found
    print(f"dependencies: {len(packages)} packages, licences, duplicates and sources {'as deny.toml says' if not found else 'NOT as deny.toml says'}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
