#!/usr/bin/env python3
"""Holds the files of this folder to the schemas of what reads them, and to what the service does.

    pip install kubernetes-validate jsonschema
    python3 deploy/check.py

Kubernetes' own kinds go through kubernetes-validate, custom resources through kubernetes/schemas/, the unit through systemd-analyze where
that is there. No cluster and no container engine is needed, so neither is tried.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

import jsonschema
import kubernetes_validate
import yaml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
MANIFESTS = HERE / "kubernetes"
KUBERNETES = "1.32"          # preStop sleep is on by default from 1.30
NOT_MANIFESTS = {"kustomization.yaml", "adapter-rules.yaml"}
FLUSH_SECONDS = 2            # services/src/service.rs
EXPOSURE_MAX = 3.0           # of systemd-analyze security, 0 to 10
found = []


def expect(holds, complaint):
    if not holds:
        found.append(complaint)


def manifests():
    for file in sorted(MANIFESTS.glob("*.yaml")):
        if file.name not in NOT_MANIFESTS:
            for document in yaml.safe_load_all(file.read_text()):
                yield file.name, document


def valid(file, document):
    """Against the kind's schema, where an unknown field is an error."""
    schema = MANIFESTS / f"schemas/{document['kind']}.json"
    try:
        if schema.exists():
            jsonschema.validate(document, json.loads(schema.read_text()))
        else:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
        expect(False, f"{file}: {document['kind']}: {error.message}")


def paths_of_the_service():
    return set(re.findall(r'"(/[a-z]+)"', (ROOT / "services/src/http/endpoints/about.rs").read_text()))


def deployment(kinds):
    """The pod against the program: its port, paths, time to end, and rights."""
    config = tomllib.loads(kinds["ConfigMap"]["data"]["chimere.toml"])
    picker(config, kinds)
    known = tomllib.loads((ROOT / "config/chimere.toml").read_text())
    for section, keys in config.items():
        unknown = keys.keys() - known.get(section, {}).keys()
        expect(not unknown, f"config.yaml: [{section}] has keys that config/chimere.toml does not know: {unknown}")
    pod = kinds["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    expect(ports["http"] == config["server"]["port"], f"the container's port is {ports['http']}, the service's {config['server']['port']}")
    sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = config["server"].get("drain_seconds", known["server"]["drain_seconds"])
    needed = sleep + drain + FLUSH_SECONDS
    grace = pod["terminationGracePeriodSeconds"]
    expect(grace > needed, f"termination after {grace} s, but ending takes {needed} s")
    for probe, path in ("startupProbe", "/ready"), ("readinessProbe", "/ready"), ("livenessProbe", "/health"):
        expect(container[probe]["httpGet"] == {"path": path, "port": "http"}, f"{probe} asks {container[probe]}")
        expect(path in paths_of_the_service(), f"the service has no {path}")
    rights = container["securityContext"]
    wanted = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    expect(rights == wanted, f"the container's rights are {rights}")
    expect(pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0, "the pod may be root")
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    expect(mounts == {volume["name"] for volume in pod["volumes"]}, f"volumes and mounts differ: {mounts}")


def picker(config, kinds):
    """llm-d's picker against the program: its port and topic of events, its units, its paths."""
    plan = yaml.safe_load(kinds["ConfigMap chimere-picker"]["data"]["picker.yaml"])
    plugins = {plugin["type"]: plugin.get("parameters", {}) for plugin in plan["plugins"]}
    named = {entry["pluginRef"] for profile in plan["schedulingProfiles"] for entry in profile["plugins"]}
    for source in plan["dataLayer"]["sources"]:
        named |= {source["pluginRef"], *(extractor["pluginRef"] for extractor in source["extractors"])}
    expect(named <= plugins.keys(), f"picker.yaml names plugins that it does not have: {named - plugins.keys()}")
    precise = plugins["precise-prefix-cache-producer"]
    events = precise["kvEventsConfig"]
    port = events["podDiscoveryConfig"]["socketPort"]
    expect(config["events"]["listen"] == f"tcp://*:{port}", f"the picker listens to port {port}, the service is at {config['events']}")
    container = kinds["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    expect({"name": "events", "containerPort": port} in container["ports"], f"the container has no port of events {port}")
    topic = next(entry["value"] for entry in container["env"] if entry["name"] == "CHIMERE_EVENTS__TOPIC")
    model = plugins["token-producer"]["modelName"]
    expect(topic == f"kv@$(POD_IP):{config['server']['port']}@{model}" and topic.startswith(events["topicFilter"]), f"the topic is {topic}")
    expect(config["model"]["name"] == model, f"the picker's model is {model}, the service's {config['model'].get('name')}")
    unit = int(re.search(r"CHUNK_TOKENS: u32 = (\d+);", (ROOT / "engine/src/lib.rs").read_text())[1])
    expect(precise["tokenProcessorConfig"]["blockSize"] == unit, f"the picker's blocks have not {unit} tokens")
    hints = (ROOT / "services/src/http/endpoints/hints.rs").read_text()
    for path in "/v1/completions/render", "/v1/chat/completions/render", "/inference/v1/generate":
        expect(f'"{path}"' in hints, f"the service has no {path}")


def names(kinds):
    """Who refers to whom."""
    labels = kinds["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [kinds[kind]["spec"]["selector"]["matchLabels"] for kind in ("Deployment", "PodDisruptionBudget", "InferencePool")]
    selectors += [kinds["Service"]["spec"]["selector"], kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]]
    expect(all(selector.items() <= labels.items() for selector in selectors), f"a selector does not select {labels}: {selectors}")
    monitored, service = kinds["ServiceMonitor"]["spec"], kinds["Service"]
    expect(monitored["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items(), "the monitor does not select the service")
    endpoint, ports = monitored["endpoints"][0], [port["name"] for port in service["spec"]["ports"]]
    expect(endpoint["port"] in ports, f"the monitor names the port {endpoint['port']}, the service has {ports}")
    expect(endpoint["path"] in paths_of_the_service(), f"the monitor scrapes {endpoint['path']}, which is not there")
    expect(kinds["InferencePool"]["spec"]["targetPorts"] == [{"number": 8080}], "the pool names another port")
    leads_to = kinds["HTTPRoute"]["spec"]["rules"][0]["backendRefs"][0]["name"]
    expect(leads_to == kinds["InferencePool"]["metadata"]["name"], f"the route leads to {leads_to}")
    listed = set(yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"])
    there = {file.name for file in MANIFESTS.glob("*.yaml")} - NOT_MANIFESTS
    expect(listed == there, f"kustomization.yaml lists {listed ^ there} and the folder does not, or the other way")


def autoscaler(kinds):
    """What it asks for is made by a rule, of metrics that are exported."""
    rules = yaml.safe_load((MANIFESTS / "adapter-rules.yaml").read_text())["rules"]["custom"]
    made = {rule.get("name", {}).get("as") or rule["seriesQuery"].split("{")[0] for rule in rules}
    asked = {metric["pods"]["metric"]["name"] for metric in kinds["HorizontalPodAutoscaler"]["spec"]["metrics"]}
    expect(asked == made, f"the autoscaler asks for {asked}, the rules make {made}")
    exported = (ROOT / "docs/reference/metrics.md").read_text()
    for rule in rules:
        for name in re.findall(r"chimere_\w+", rule["seriesQuery"] + rule["metricsQuery"]):
            base = re.sub(r"_(sum|count)$", "", name)
            expect(f"`{base}`" in exported, f"adapter-rules.yaml asks for {name}, which is not exported")


def unit():
    if not shutil.which("systemd-analyze"):
        print("skipped: no systemd-analyze")
        return
    file = HERE / "systemd/chimere.service"
    with tempfile.TemporaryDirectory() as folder:
        # verify wants the program to be there.
        copy = pathlib.Path(folder) / file.name
        copy.write_text(file.read_text().replace("/usr/local/bin/chimere", "/bin/true"))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True)
        said = [line for line in (done.stdout + done.stderr).splitlines() if file.name in line]
        expect(done.returncode == 0 and not said, f"systemd-analyze verify: {said or done.stderr}")
        done = subprocess.run(["systemd-analyze", "security", "--offline=true", f"--threshold={int(10 * EXPOSURE_MAX)}", "--no-pager",
                               copy], capture_output=True, text=True)
        expect(done.returncode == 0, f"systemd-analyze security: {done.stdout.splitlines()[-1:]} {done.stderr}")
    settings = dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line and not line.startswith("#"))
    drain = int(re.search(r"CHIMERE_SERVER__DRAIN_SECONDS=(\d+)", file.read_text())[1])
    expect(int(settings["TimeoutStopSec"]) > drain + FLUSH_SECONDS, f"stop after {settings['TimeoutStopSec']} s, drain {drain} s")


def container():
    """What the container file copies is there and not held back."""
    text = (HERE / "Containerfile").read_text()
    kept = {line[1:] for line in (HERE / "Containerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M):
        for path in line.split()[:-1]:
            expect((ROOT / path).exists() and path in kept, f"Containerfile copies {path}, which is missing or ignored")
    expect("USER 65532:65532" in text, "the container's user is root")
    page = (ROOT / "docs/operating/operations.md").read_text()
    for name, where in (("Containerfile", text), ("operations.md", page)):
        expect("chown 65532:65532 keys.txt" in where, f"{name} does not say how the container's user may read the keys")


def main():
    kinds = {}
    for file, document in manifests():
        valid(file, document)
        # Of several of a kind those beyond the service's own go by their name too.
        name = document["metadata"]["name"]
        kinds[document["kind"] if name == "chimere" else f"{document['kind']} {name}"] = document
    # What is no manifest cannot be compared with anything.
    for check in () if found else (deployment, names, autoscaler):
        check(kinds)
    unit()
    container()
    print("\n".join(found) if found else f"{len(kinds)} kinds, the unit and the container file are in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
