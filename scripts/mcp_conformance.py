#!/usr/bin/env python3
"""Runs the Model Context Protocol's own conformance suite against a Chimère: as a server, at /mcp, and as a client, which calls the tools of
the suite's servers while it answers a chat.

    python3 scripts/mcp_conformance.py --chimere target/release/chimere

The suite comes from npm, with a Node of its own: 0.1.16, its newest release, knows revisions up to 2025-11-25, and a preview of the next
one knows 2026-07-28. All scenarios of servers run, pending ones too, and those of clients that are no extensions. A check that fails passes
for expected only if it is listed here with its reason; one that is listed and no longer fails is told, too. Without npm nothing is run.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request

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
# Scenarios of a client, the same way. Those of `auth/` are not run: no server is logged in to.
CLIENT_SCENARIOS = {"2025-11-25": ["initialize", "tools_call", "sse-retry", "elicitation-sep1034-client-defaults"],
                    "2026-07-28": ["tools_call", "request-metadata", "sep-2322-client-request-state", "http-standard-headers", "http-custom-headers",
                                   "http-invalid-tool-headers", "json-schema-ref-no-deref", "json-schema-2020-12-preservation"]}
# Nobody is asked anything; and a model writes the arguments of a call, not those that the suite wants.
CLIENT_LEFT_OUT = {"elicitation-sep1034-client-defaults", "json-schema-2020-12-preservation"}
CLIENT_NOT_TESTABLE = {
    # Each stands behind a question to the user.
    "sep-2322-client-request-state": ["sep-2322-client-request-state-echoed", "sep-2322-client-jsonrpc-id-different",
                                      "sep-2322-client-no-state-omitted"],
    # Wants arguments of its own, too.
    "http-custom-headers": ["sep-2243-client-base64-unsafe"],
}


def install(home):
    """Has npm put both suites and their Node into a directory."""
    home.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", home, *PACKAGES]
    installed(home, PACKAGES, lambda: subprocess.run(command, check=True))


def checks_of(home, revision, arguments, environment=()):
    """The checks of each scenario of a revision that the suite runs with these arguments."""
    program = [home / "node_modules/.bin/node", home / f"node_modules/suite-{revision}/dist/index.js"]
    with tempfile.TemporaryDirectory() as out:
        command = [*program, *arguments, "--spec-version", revision, "-o", out]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | dict(environment))
        # The folders are called SCENARIO-TIME, those of servers server-SCENARIO-TIME.
        folders = [path.parent for path in pathlib.Path(out).rglob("checks.json")]
        names = {folder: re.sub(r"-\d{4}-\d\d-\d\dT.*", "", folder.name.removeprefix("server-")) for folder in folders}
        return {name: json.loads((folder / "checks.json").read_text()) for folder, name in names.items()}


def of_server(home, binary):
    """What the suite says of /mcp."""
    with tempfile.TemporaryDirectory() as files, Server(binary, {"CHIMERE_MCP__SERVE": "true", "CHIMERE_DOCUMENTS__DIRECTORY": files}) as server:
        url = server.url.removesuffix("/v1") + "/mcp"
        checks = {revision: checks_of(home, revision, ["server", "--url", url, "--suite", "all"]) for revision in SUITES}
    return [judged(f"server {revision}", scenarios, LEFT_OUT, NOT_TESTABLE) for revision, scenarios in checks.items()]


def of_client(home, binary):
    """What the suite says of the client with which models call tools."""
    with tempfile.TemporaryDirectory() as folder:
        tools = pathlib.Path(folder) / "tools.toml"
        name_server(tools, "")
        with Server(binary, {"CHIMERE_TOOLS__FILE": str(tools)}) as server:
            environment = {"CALLER_BINARY": str(binary), "CALLER_TOOLS": str(tools), "CALLER_URL": server.url}
            arguments = ["client", "--command", f"{sys.executable} {pathlib.Path(__file__).resolve()} --call-tools-of", "--scenario"]
            checks = {revision: {} for revision in SUITES}
            for revision, names in CLIENT_SCENARIOS.items():
                for name in names:
                    checks[revision] |= checks_of(home, revision, [*arguments, name], environment) or {name: []}
    return [judged(f"client {revision}", scenarios, CLIENT_LEFT_OUT, CLIENT_NOT_TESTABLE) for revision, scenarios in checks.items()]


def name_server(tools, lines):
    """Writes a file of tools."""
    tools.write_text(lines)
    tools.chmod(0o600)


def call_tools_of(address):
    """Is the suite's client: has the service that the environment names take a server, and its model call each tool of it once."""
    binary, tools, url = os.environ["CALLER_BINARY"], pathlib.Path(os.environ["CALLER_TOOLS"]), os.environ["CALLER_URL"]
    name = "suite-" + re.sub(r"\D", "", address)
    name_server(tools, f'[mcp.{name}]\nurl = "{address}"\napproval = "never"\n')
    subprocess.run([binary, "mcp", "accept", name, "--tools", tools], check=True)
    with urllib.request.urlopen(f"{url}/tools", timeout=30) as reply:
        listed = next(server for server in json.load(reply)["data"] if server["server_label"] == name)
    assert listed["error"] is None, listed
    for tool in (tool["name"] for tool in listed["tools"] if tool["state"] == "accepted"):
        body = {"messages": [{"role": "user", "content": "Call the tool."}], "max_tokens": 400, "reasoning_effort": "none", "temperature": 0,
                "tools": [{"type": "mcp", "server_label": name, "allowed_tools": [tool]}], "tool_choice": "required"}
        asked = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as reply:
            print(json.load(reply)["timings"]["turn"]["calls"])


def judged(revision, scenarios, left_out, not_testable):
    """Whether no check failed but those that may, and all of those did."""
    good, passed = bool(scenarios), 0
    for name, checks in sorted(scenarios.items()):
        failed = {check["id"] for check in checks if check["status"] == "FAILURE"}
        wrong = failed - set(not_testable.get(name, ())) if name not in left_out else set()
        stale = set(not_testable.get(name, ())) - failed | ({"all"} if name in left_out and not failed else set())
        if name not in left_out and not checks:
            wrong = {"nothing was checked"}
        for words, ids in (("FAILED", wrong), ("passes, though it is listed:", stale)):
            for check in sorted(ids):
                good = False
                print(f"{words} {revision} {name} {check}")
        if name not in left_out:
            passed += sum(check["status"] == "SUCCESS" for check in checks)
            print(f"{'ok    ' if not wrong else 'FAILED'} {revision} {name}")
    print(f"{revision}: {passed} checks passed in {len(set(scenarios) - left_out)} scenarios, {len(set(scenarios) & left_out)} left out")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", help="the binary")
    parser.add_argument("--call-tools-of", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / "target/clients", help="where the suites are kept")
    args = parser.parse_args()
    if args.call_tools_of:
        return call_tools_of(args.call_tools_of)
    if not args.chimere:
        parser.error("--chimere is missing")
    if not shutil.which("npm"):
        print("skipped: there is no npm")
        return 0
    home = args.venvs.resolve() / "mcp-conformance"
    try:
        install(home)
    except Skip as reason:
        print(f"FAILED {reason}")
        return 1
    binary = pathlib.Path(args.chimere).resolve()
    results = of_server(home, binary) + of_client(home, binary)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
