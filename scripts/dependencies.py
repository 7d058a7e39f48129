#!/usr/bin/env python3
"""Holds the dependencies to deny.toml and lists them.

    python3 scripts/dependencies.py                       # licences, duplicates, sources, banned crates, known holes
    python3 scripts/dependencies.py --sbom sbom.json      # also writes what is in the program, as CycloneDX 1.5

Reads `cargo metadata` for the locked versions. Known holes (advisories) are in RustSec's database, which is fetched with git: where it
cannot be reached, this says so, and the rest still holds.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = "x86_64-unknown-linux-gnu"
DATABASE = "https://github.com/RustSec/advisory-db"


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


def number(version):
    """A version as something to compare; what is before a release counts as it."""
    parts = [int(part) for part in re.split(r"[-+]", version.strip())[0].split(".")]
    return tuple(parts + [0] * (3 - len(parts)))


def meets(version, requirement):
    """Whether a version meets all parts of a requirement such as `>= 1.2.3, < 2`, `^1.2` or `~1.2`."""
    def one(text):
        operator, wanted = re.fullmatch(r"\s*([<>=^~]*)\s*(.+?)\s*", text).groups()
        low = number(wanted)
        if operator in ("", "^"):
            # The first number that is not zero stays; of those that are not given any may be.
            given = wanted.count(".") + 1
            kept = next((n for n in range(given) if low[n]), given - 1)
            return low <= version < low[:kept] + (low[kept] + 1,) + (0,) * (2 - kept)
        if operator == "~":
            return low <= version < ((low[0], low[1] + 1, 0) if "." in wanted else (low[0] + 1, 0, 0))
        return {"=": version == low, ">": version > low, ">=": version >= low, "<": version < low, "<=": version <= low}[operator]
    return all(one(part) for part in requirement.split(","))


def holes(packages, database, ignored):
    """Advisories of a checkout of RustSec's database that are about these packages."""
    for package in packages:
        for page in sorted((database / "crates" / package["name"]).glob("RUSTSEC-*.md")):
            advisory = tomllib.loads(page.read_text().split("```toml", 1)[1].split("```", 1)[0])
            about, versions, version = advisory["advisory"], advisory["versions"], number(package["version"])
            spared = versions.get("patched", []) + versions.get("unaffected", [])
            if about["id"] in ignored or "withdrawn" in about or any(meets(version, spare) for spare in spared):
                continue
            yield f"{package['name']} {package['version']}: {about['id']} ({about.get('informational', 'a hole')})"


def fetch_advisories():
    """A checkout of the database, or none where it cannot be had."""
    folder = ROOT / "target" / "advisory-db"
    command = ["git", "-C", folder, "pull", "-q"] if folder.exists() else ["git", "clone", "-q", "--depth", "1", DATABASE, folder]
    try:
        done = subprocess.run(command, env=os.environ | {"GIT_TERMINAL_PROMPT": "0"}, stderr=subprocess.DEVNULL, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return folder if done.returncode == 0 else None


def check_advisories(packages, rules, database):
    """True unless a known hole was found."""
    database = database or fetch_advisories()
    if database is None:
        print("advisories: NOT CHECKED, their database cannot be reached")
        return True
    found = list(holes([p for p in packages if p["source"]], database, set(rules["advisories"]["ignore"])))
    for hole in found:
        print(f"advisories: {hole}", file=sys.stderr)
    print(f"advisories: {len(list(database.glob('crates/*/RUSTSEC-*.md')))} known, {len(found)} of them here")
    return not found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sbom", type=pathlib.Path, help="file to write the list of all components to")
    parser.add_argument("--advisories", type=pathlib.Path, help="checkout of RustSec's database [one of our own, where it can be had]")
    args = parser.parse_args()
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    packages = metadata()
    found = list(faults(packages, rules))
    for fault in found:
        print(f"dependencies: {fault}", file=sys.stderr)
    if args.sbom:
        args.sbom.write_text(json.dumps(sbom(packages), indent=1) + "\n")
    well = check_advisories(packages, rules, args.advisories) and not found
    print(f"dependencies: {len(packages)} packages, licences, duplicates and sources {'as deny.toml says' if not found else 'NOT as deny.toml says'}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
