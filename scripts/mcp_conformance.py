#!/usr/bin/env python3
"""Runs the Model Context Protocol's own conformance suite against a Chimère that serves /mcp.

    python3 scripts/mcp_conformance.py --chimere target/release/chimere

The suite comes from npm, with a Node of its own: 0.1.16, its newest release, knows revisions up to 2025-11-25, and a preview of the next
one knows 2026-07-28. All scenarios run, pending ones too. A check that fails passes for expected only if it is listed here with its
reason; one that is listed and no longer fails is told, too. Without npm nothing is run.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from clients import ROOT, Server, Skip, installed

SUITES = {"2025-11-25": "0.1.16", "2026-07-28": "0.2.0-alpha.12"}
PACKAGES = ["node@22.23.3", *(f"suite-{revision}@npm:@modelcontextprotocol/conformance@{version}" for revision, version in SUITES.items())]
# Scenarios of features that are not offered, or that call tools which a server has for the suite alone.
NOT_OFFERED = {
    "there are no resources": ["resources-list", "resources-read-text", "resources-read-binary", "resources-templates-read",
                               "resources-subscribe", "resources-unsubscribe"],
    "there are no prompts": ["prompts-list", "prompts-get-simple", "prompts-get-with-args", "prompts-get-embedded-resource",
                             "prompts-get-with-image", "input-required-result-non-tool-request"],
    "nothing is completed": ["completion-complete"],
    "no log is sent to clients": ["logging-set-level", "tools-call-with-logging"],
    "clients are asked for nothing": ["tools-call-sampling", "tools-call-elicitation", "elicitation-sep1034-defaults", "elicitation-sep1330-enums",
                                      "input-required-result-basic-elicitation", "input-required-result-basic-sampling",
                                      "input-required-result-basic-list-roots", "input-required-result-request-state",
                                      "input-required-result-multiple-input-requests", "input-required-result-multi-round",
                                      "input-required-result-result-type", "input-required-result-tampered-state",
                                      "input-required-result-capability-check"],
    "no argument is a header": ["http-custom-header-server-validation"],
    "it calls a tool of its own": ["tools-call-simple-text", "tools-call-image", "tools-call-audio", "tools-call-embedded-resource",
                                   "tools-call-mixed-content", "tools-call-error", "tools-call-with-progress", "json-schema-2020-12"],
}
# Checks of scenarios whose others must pass.
NOT_TESTABLE = {
    "server-stateless": ["sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400",
                         "sep-2575-http-server-no-independent-requests-on-stream", "sep-2575-server-no-log-without-loglevel"],
    "caching": ["sep-2549-prompts-list-caching-hints", "sep-2549-resources-list-caching-hints", "sep-2549-resources-templates-list-caching-hints"],
}
LEFT_OUT = {name for names in NOT_OFFERED.values() for name in names}


def install(home):
    """Has npm put both suites and their Node into a directory."""
    home.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", home, *PACKAGES]
    installed(home, PACKAGES, lambda: subprocess.run(command, check=True))


def checks_of(home, revision, url):
    """The checks of each scenario of a revision."""
    program = [home / "node_modules/.bin/node", home / f"node_modules/suite-{revision}/dist/index.js"]
    with tempfile.TemporaryDirectory() as out:
        command = [*program, "server", "--url", url, "--suite", "all", "--spec-version", revision, "-o", out]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # The folders are called server-SCENARIO-TIME.
        folders = [path.parent for path in pathlib.Path(out).rglob("checks.json")]
        names = {folder: re.sub(r"-\d{4}-\d\d-\d\dT.*", "", folder.name.removeprefix("server-")) for folder in folders}
        return {name: json.loads((folder / "checks.json").read_text()) for folder, name in names.items()}


def judged(revision, scenarios):
    """Whether no check failed but those that may, and all of those did."""
    good, passed = bool(scenarios), 0
    for name, checks in sorted(scenarios.items()):
        failed = {check["id"] for check in checks if check["status"] == "FAILURE"}
        wrong = failed - set(NOT_TESTABLE.get(name, ())) if name not in LEFT_OUT else set()
        stale = set(NOT_TESTABLE.get(name, ())) - failed | ({"all"} if name in LEFT_OUT and not failed else set())
        for words, ids in (("FAILED", wrong), ("passes, though it is listed:", stale)):
            for check in sorted(ids):
                good = False
                print(f"{words} {revision} {name} {check}")
        if name not in LEFT_OUT:
            passed += sum(check["status"] == "SUCCESS" for check in checks)
            print(f"{'ok    ' if not wrong else 'FAILED'} {revision} {name}")
    print(f"{revision}: {passed} checks passed in {len(set(scenarios) - LEFT_OUT)} scenarios, {len(set(scenarios) & LEFT_OUT)} left out")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", required=True, help="the binary")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / "target/clients", help="where the suites are kept")
    args = parser.parse_args()
    if not shutil.which("npm"):
        print("skipped: there is no npm")
        return 0
    home = args.venvs.resolve() / "mcp-conformance"
    try:
        install(home)
    except Skip as reason:
        print(f"FAILED {reason}")
        return 1
    with tempfile.TemporaryDirectory() as files, \
            Server(pathlib.Path(args.chimere).resolve(), {"CHIMERE_MCP__SERVE": "true", "CHIMERE_DOCUMENTS__DIRECTORY": files}) as server:
        url = server.url.removesuffix("/v1") + "/mcp"
        results = [judged(revision, checks_of(home, revision, url)) for revision in SUITES]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
