//! Which crate may know which: cli -> tools -> services -> engine -> kernels and never back, no asynchronous runtime
//! below services, no C++. Also the directions between modules, where a crate's compiler cannot see them.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each crate of the workspace and the ones it may name.
const DIRECTIONS: &[(&str, &[&str])] = &[
    ("chimere-cli", &["chimere-tools", "chimere", "chimere-engine"]),
    ("chimere-tools", &["chimere", "chimere-engine"]),
    ("chimere", &["chimere-engine"]),
    ("chimere-engine", &["chimere-kernels"]),
    ("chimere-kernels", &[]),
];

/// What only services may bring in, directly or not.
const ASYNCHRONOUS: &[&str] =
    &["actix", "actix-rt", "actix-web", "actix-http", "awc", "tokio", "hyper", "async-std", "smol"];

/// Build-time crates that call a C or C++ compiler, a generator that parses C, or look for system libraries.
const FOREIGN_BUILD: &[&str] =
    &["autotools", "bindgen", "cc", "cmake", "cxx-build", "nasm-rs", "pkg-config", "system-deps", "vcpkg"];

/// The rooms of a folder from the ground up: the code of a room may name those before it and none after. Rooms in one
/// string that are parted by blanks stand on one floor and may name each other. A name that the folder's own file
/// passes on counts as one of the room that it comes from.
const ROOMS: &[(&str, &[&str])] = &[
    ("kernels/src", &["reference", "cuda"]),
    (
        "kernels/src/cuda",
        &[
            "runtime",
            "carry",
            "encode",
            "stack",
            "sampler",
            "rows",
            "lora",
            "product",
            "wide",
            "attention",
            "gdn",
            "mamba2",
            "moe",
            "draft_head",
        ],
    ),
    (
        "engine/src",
        &[
            "ids",
            "hasher",
            "files",
            "drafts",
            "sampling",
            "constraint",
            "lines",
            "adapter",
            "step",
            "format",
            "model",
            "quantize",
            "cache",
            "engram",
            "scheduler",
            "backend",
            "encoder",
        ],
    ),
    (
        "engine/src/engram",
        &[
            "order",
            "checksum",
            "latest",
            "pages",
            "context",
            "table",
            "matching",
            "fit",
            "predict",
            "apply",
            "request_tables",
            "share",
            "tracker",
        ],
    ),
    (
        "engine/src/engram/table",
        &[
            "error", "ngrams", "record", "check", "format", "opened", "filter", "prior", "lookup", "long", "build",
            "merge", "prune", "publish",
        ],
    ),
    ("engine/src/engram/matching", &["spelling", "documents", "opening", "recollection", "recent", "repeats"]),
    ("engine/src/engram/fit", &["strength", "auto", "calibration"]),
    (
        "engine/src/scheduler",
        &[
            "config",
            "spec",
            "request",
            "policy",
            "speculation",
            "sequence",
            "queue",
            "idle",
            "launched",
            "stats",
            "load",
            "migration",
            "forecast",
            "plan",
            "commit",
            "pipeline",
        ],
    ),
    ("engine/src/scheduler/policy", &["cost", "ledger", "fair", "idle", "lengths", "throughput"]),
    (
        "engine/src/scheduler/speculation",
        &["settings", "run", "acceptance", "proposal", "proposers", "gate", "budget", "trials", "state"],
    ),
    (
        "engine/src/scheduler/plan",
        &[
            "pause",
            "guesses",
            "drafts",
            "builder",
            "adapters",
            "fork",
            "preemption",
            "prefix",
            "overlap",
            "walk",
            "idle",
        ],
    ),
    (
        "engine/src/backend/cpu",
        &[
            "isa",
            "simd",
            "team",
            "matmul",
            "config",
            "error",
            "sampler",
            "store",
            "pass",
            "blocks",
            "network",
            "step",
            "draft_head",
            "backend",
        ],
    ),
    ("engine/src/encoder", &["config", "weights", "kernels", "attention", "forward"]),
    ("engine/src/backend/cpu/simd", &["x86", "norm", "gemm", "rowops", "low_rank"]),
    ("engine/src/backend/cpu/team", &["pool", "shared"]),
    (
        "engine/src/backend/cpu/matmul",
        &[
            "ahead", "floats", "layout", "qblock", "quantize", "rows", "watch", "pack", "scalar", "avx2", "avx512",
            "amx", "neon",
        ],
    ),
    ("engine/src/backend/cpu/matmul/avx2", &["codes", "scales", "product"]),
    ("engine/src/backend/cpu/matmul/avx512", &["codes", "scales", "product"]),
    (
        "engine/src/backend/cpu/sampler",
        &["history", "weights", "scan", "rank", "edit", "weight_sum", "edited_draw", "logprobs"],
    ),
    ("engine/src/backend/cpu/store", &["head", "drafted"]),
    ("engine/src/backend/cpu/pass", &["experts", "routes", "adapted", "batch", "probe", "room", "stream", "forward"]),
    (
        "engine/src/backend/cpu/blocks",
        &["conv", "mlp", "attention", "gdn", "mamba2", "shortconv", "moe", "parallel", "scale"],
    ),
    ("engine/src/backend/cpu/network", &["weights", "workspace", "forward", "logits"]),
    ("engine/src/backend/cpu/step", &["head", "outputs"]),
    ("engine/src/backend/cpu/draft_head", &["weights", "buffers", "guess_row", "pass"]),
    ("engine/src/backend/cpu/backend", &["memory", "reservation", "effective_config", "guesses"]),
    (
        "engine/src/backend/cuda",
        &["error", "gpu", "encode", "layout", "rank", "blocks", "network", "step", "draft_head", "backend"],
    ),
    (
        "engine/src/backend/cuda/layout",
        &[
            "config",
            "shape",
            "pack",
            "matrix",
            "products",
            "operators",
            "experts",
            "weights",
            "activations",
            "outputs",
            "workspace",
            "draft_head",
            "effective_config",
            "store",
            "programs",
            "memory",
        ],
    ),
    ("engine/src/backend/cuda/layout/pack", &["source", "tile", "encodings", "unpack"]),
    (
        "engine/src/backend/cuda/layout/operators",
        &[
            "adapter_groups",
            "operator",
            "projections",
            "latent",
            "mlp",
            "attention",
            "gdn",
            "mamba2",
            "moe",
            "parallel",
            "adapter_plan",
        ],
    ),
    (
        "engine/src/backend/cuda/rank",
        &[
            "pinned",
            "staging",
            "adapters",
            "upload",
            "experts",
            "weights",
            "products",
            "quantized",
            "residual",
            "workspace",
            "store",
            "memory",
            "graphs",
            "pass",
        ],
    ),
    (
        "engine/src/backend/cuda/blocks",
        &["projections", "latent", "mlp", "attention", "gdn", "mamba2", "moe", "parallel"],
    ),
    ("engine/src/backend/cuda/step", &["leader", "stored", "rows", "history", "pooling", "host", "sampling"]),
    ("engine/src/backend/cuda/draft_head", &["backfill", "guessing", "layer", "mtp"]),
    ("engine/src/backend/cuda/backend", &["laps", "start", "launch", "inspection"]),
    (
        "services/src",
        &[
            "limits",
            "holder",
            "names",
            "clock",
            "printable",
            "audit",
            "metrics",
            "events",
            "database",
            "outbound",
            "traces",
            "text",
            "citations",
            "embedder",
            "engram",
            "semantic",
            "documents",
            "hosted",
            "web",
            "decide",
            "adapters",
            "responses",
            "learning",
            "config",
            "locate",
            "gpu",
            "memory",
            "device",
            "actors",
            "replicas",
            "pipelines",
            "turn",
            "http",
            "service",
            "serve",
        ],
    ),
    (
        "tools/src",
        &[
            "error",
            "stats",
            "figures",
            "trust",
            "connection",
            "client",
            "logits",
            "calibration",
            "synth",
            "kernels",
            "documents",
            "learn",
            "engram",
            "quantize",
            "trace",
            "eval",
            "bench",
        ],
    ),
    ("tools/src/bench", &["engram", "serve", "step", "drafts"]),
    ("tools/src/bench/step", &["traffic", "replay", "driver", "report"]),
    ("tools/src/quantize", &["options", "card", "job", "kept", "sensitivity", "choice", "report"]),
    ("tools/src/engram", &["corpus", "build", "calibrate", "eval", "inspect", "merge", "prune", "rollback"]),
    ("tools/src/trace", &["file", "reuse", "card", "record", "draw"]),
    ("services/src/events", &["msgpack", "payload", "settings", "sink", "zmtp", "backlog", "peers", "publisher"]),
    ("services/src/embedder", &["error", "settings", "digest", "encoder url"]),
    (
        "services/src/learning",
        &[
            "consent",
            "example",
            "secrets",
            "similar",
            "recent",
            "sizes",
            "stored",
            "feedback",
            "jsonl",
            "artefacts",
            "gate",
            "questions",
            "facts",
            "store versions",
            "service",
        ],
    ),
    ("services/src/learning/gate", &["binomial", "paired", "batch", "rotation", "rules", "vault", "verdict", "judge"]),
    ("services/src/learning/versions", &["stage", "lineage", "changed", "runs", "kept", "served"]),
    ("services/src/semantic", &["error", "fusion", "words", "self_test", "legs", "index", "store", "collections"]),
    (
        "services/src/turn",
        &[
            "error",
            "hosted",
            "options",
            "caller",
            "grammar",
            "services",
            "preparation",
            "prompts",
            "vectors",
            "text_vectors",
            "search",
            "idle",
            "decisions",
            "reader",
            "tables",
            "context",
            "thinking",
            "stages",
            "rounds",
            "pipeline",
        ],
    ),
    (
        "services/src/actors/deferred",
        &["polled_queue", "awaits", "rules_link", "source", "actor", "link", "tables grammars", "users", "sources"],
    ),
    (
        "services/src/pipelines",
        &[
            "error",
            "names",
            "file",
            "template",
            "tool",
            "form",
            "program",
            "pipeline",
            "rules",
            "import",
            "describe",
            "directory",
            "machine",
        ],
    ),
    ("services/src/http", &["wire", "edge", "body", "app", "intake", "reply", "endpoints", "dialects", "server"]),
];

/// What would make of a machine something that waits or looks at a clock.
const MACHINE: &[&str] = &["tokio", "Instant", "async "];

/// (folder or file, what its code must not mention, why): what the order of rooms does not say.
const MODULES: &[(&str, &[&str], &str)] = &[
    ("engine/src/scheduler", &["std::time", "Instant::now"], "the scheduler is data in, data out"),
    ("engine/src/constraint", &["step::"], "what may be said does not know who plans and computes it"),
    ("engine/src/backend", &["scheduler::"], "a backend runs plans and asks nobody for them"),
    ("engine/src/backend/cuda/layout", &["cudarc", "Device"], "a layout is computed without a device"),
    ("services/src/text", &["actix"], "text knows neither HTTP nor actors"),
    ("services/src/turn", &["actix"], "a turn knows no HTTP"),
    ("services/src/pipelines", &["actix"], "a pipeline knows no HTTP"),
    ("services/src/pipelines/machine.rs", MACHINE, "a machine is data in, data out"),
    ("services/src/turn/rounds/machine.rs", MACHINE, "a machine is data in, data out"),
    ("services/src/decide", &["actix"], "a decision knows no HTTP"),
    ("services/src/learning/gate", MACHINE, "a gate is data in, data out"),
    ("services/src/learning/versions/lineage.rs", MACHINE, "a lineage is data in, data out"),
];

/// What makes a connection, or brings an HTTP client.
const WAYS_OUT: &[&str] = &[
    "TcpStream::connect",
    "UdpSocket",
    "UnixStream::connect",
    "TcpSocket",
    "lookup_host",
    "TlsConnector",
    "hyper::client",
    "reqwest",
    "ureq",
    "awc::",
];
/// The only file that may.
const WAY_OUT: &str = "services/src/outbound/network.rs";
/// What only those who read the operator's own files may name: it makes a server that may stand anywhere.
const OPERATORS: &str = "OperatorsServer::configured";
/// The files and folders that do.
const OPERATORS_FILES: &[&str] = &[
    "services/src/outbound",
    "services/src/config",
    "services/src/embedder",
    "services/src/hosted",
    "services/src/traces",
    "services/src/web/keys.rs",
];
/// HTTP clients of crates.io.
const HTTP_CLIENTS: &[&str] = &["reqwest", "ureq", "hyper-util", "awc", "isahc", "attohttpc", "minreq", "surf", "curl"];

struct Graph {
    /// Package id to name.
    names: BTreeMap<String, String>,
    /// Package id to (package id, kinds of dependency).
    edges: BTreeMap<String, Vec<(String, Vec<String>)>>,
    members: Vec<String>,
}

impl Graph {
    /// Of the packages that a build on this machine uses. May fetch a manifest from the registry, as any build may.
    fn read() -> Self {
        let host = Command::new("rustc").arg("-vV").output().expect("rustc runs");
        let host = String::from_utf8(host.stdout).unwrap();
        let host = host.lines().find_map(|l| l.strip_prefix("host: ")).expect("rustc names its host");
        let metadata = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version=1", "--locked", "--filter-platform", host])
            .current_dir(root())
            .output()
            .expect("cargo runs");
        assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
        Self::parse(&serde_json::from_slice(&metadata.stdout).unwrap())
    }

    fn parse(json: &Value) -> Self {
        let text = |v: &Value| v.as_str().expect("a string").to_owned();
        let names = list(&json["packages"]).map(|p| (text(&p["id"]), text(&p["name"]))).collect();
        let edge = |d: &Value| {
            let kinds = list(&d["dep_kinds"]).map(|k| k["kind"].as_str().unwrap_or("normal").to_owned()).collect();
            (text(&d["pkg"]), kinds)
        };
        let edges =
            list(&json["resolve"]["nodes"]).map(|n| (text(&n["id"]), list(&n["deps"]).map(edge).collect())).collect();
        Self { names, edges, members: list(&json["workspace_members"]).map(text).collect() }
    }

    fn member(&self, name: &str) -> &str {
        self.members.iter().find(|id| self.names[*id] == name).expect("a member of the workspace")
    }

    /// Names of everything that building the member's library uses, its tests' dependencies left out.
    fn below(&self, member: &str) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let mut open = vec![self.member(member)];
        while let Some(id) = open.pop() {
            for (to, kinds) in &self.edges[id] {
                if kinds.iter().any(|k| k != "dev") && found.insert(to.as_str()) {
                    open.push(to);
                }
            }
        }
        found.into_iter().map(|id| self.names[id].as_str()).collect()
    }
}

/// Names of what a build on this machine compiles. `cargo metadata` also lists optional packages that nothing turns on,
/// where a feature would only add to them (rustls-webpki's `ring?/alloc`).
fn compiled() -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--locked", "--prefix=none", "--format={p}"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8(tree.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("a list").iter()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("services stands in the workspace").to_owned()
}

#[test]
fn crates_depend_in_one_direction() {
    let graph = Graph::read();
    let members: BTreeSet<_> = graph.members.iter().map(|id| graph.names[id].as_str()).collect();
    assert_eq!(members, DIRECTIONS.iter().map(|(name, _)| *name).collect(), "DIRECTIONS lists every crate");
    for (name, may) in DIRECTIONS {
        for (to, _) in &graph.edges[graph.member(name)] {
            let to = graph.names[to].as_str();
            assert!(!members.contains(to) || may.contains(&to), "{name} depends on {to}; it may name {may:?}");
        }
    }
}

#[test]
fn nothing_asynchronous_stands_below_services() {
    let graph = Graph::read();
    for name in ["chimere-engine", "chimere-kernels"] {
        let below = graph.below(name);
        let wrong: Vec<_> = ASYNCHRONOUS.iter().filter(|n| below.contains(*n)).collect();
        assert!(wrong.is_empty(), "{name} brings in {wrong:?}");
    }
    assert!(graph.below("chimere").contains("tokio"), "the graph is not followed");
}

#[test]
fn nothing_is_built_with_a_foreign_compiler() {
    let (graph, compiled) = (Graph::read(), compiled());
    assert!(compiled.contains("rustls") && compiled.contains("chimere-kernels"), "the tree is not read");
    let builds = graph.edges.iter().flat_map(|(id, edges)| edges.iter().map(move |(to, kinds)| (id, to, kinds)));
    let wrong: Vec<_> = builds
        .filter(|(_, _, kinds)| kinds.iter().any(|k| k == "build"))
        .map(|(id, to, _)| (&graph.names[id], &graph.names[to]))
        .filter(|(from, to)| FOREIGN_BUILD.contains(&to.as_str()) && compiled.contains(*from))
        .collect();
    assert!(wrong.is_empty(), "(crate, what it builds with): {wrong:?}");
}

#[test]
fn modules_depend_in_one_direction() {
    for (place, forbidden, why) in MODULES {
        let files = rust_files(&root().join(place));
        assert!(!files.is_empty(), "{place} has no Rust files");
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            for (i, line) in code(&text).enumerate() {
                let hit = forbidden.iter().find(|word| line.contains(**word));
                assert!(hit.is_none(), "{}:{}: {why}, but this names {}", file.display(), i + 1, hit.unwrap());
            }
        }
    }
}

#[test]
fn the_service_has_one_way_out() {
    let mut seen = false;
    for file in rust_files(&root().join("services/src")) {
        let name = file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        for line in code(&text) {
            let way = WAYS_OUT.iter().find(|way| line.contains(**way));
            seen |= way.is_some();
            assert!(way.is_none() || name == WAY_OUT, "{name} makes a connection: {line}");
            let may = OPERATORS_FILES.iter().any(|place| name.starts_with(place));
            assert!(may || !line.contains(OPERATORS), "{name} takes a server for the operator's: {line}");
        }
    }
    assert!(seen, "the way out is not read");
    let compiled = compiled();
    let clients: Vec<_> = HTTP_CLIENTS.iter().filter(|client| compiled.contains(**client)).collect();
    assert!(clients.is_empty(), "the tree brings {clients:?}");
}

#[test]
fn rooms_name_only_those_below_them() {
    for (place, floors) in ROOMS {
        let floor = |room: &str| floors.iter().position(|floor| floor.split(' ').any(|name| name == room));
        let (rooms, passed_on) = rooms_of(place);
        assert!(!rooms.is_empty(), "the modules of {place} are not read");
        for room in &rooms {
            let own = floor(room).unwrap_or_else(|| panic!("{place}: {room} has no place in ROOMS"));
            for (file, name) in named_in(place, room) {
                let other = passed_on.get(&name).unwrap_or(&name);
                let below = !rooms.contains(other) || floor(other).is_some_and(|other| other <= own);
                assert!(below && name != "*", "{}: {room} stands below {other} and names it", file.display());
            }
        }
    }
}

/// The modules that a folder's own file declares, and the names that it passes on with the module of each.
fn rooms_of(place: &str) -> (Vec<String>, BTreeMap<String, String>) {
    let folder = root().join(place);
    let own = [folder.join("lib.rs"), folder.join("mod.rs"), folder.with_extension("rs")];
    let text = own.iter().find_map(|file| std::fs::read_to_string(file).ok()).expect("a folder's own file is read");
    let code = code(&text).collect::<Vec<_>>().join("\n");
    let rooms = code.lines().filter_map(declared).filter(|room| *room != "tests").map(str::to_owned).collect();
    let uses = code.split("use ").skip(1).flat_map(spelled_out);
    let passed_on = uses.filter_map(|path| Some((path.last()?.to_string(), path.first()?.to_string())));
    (rooms, passed_on.collect())
}

/// The module that a line declares.
fn declared(line: &str) -> Option<&str> {
    let (visibility, name) = line.trim().strip_suffix(';')?.split_once("mod ")?;
    (visibility.is_empty() || visibility.starts_with("pub")).then_some(name)
}

/// What the code of a room names of the folder that it is in: each file, and the first step from that folder on.
fn named_in(place: &str, room: &str) -> Vec<(PathBuf, String)> {
    let folder = root().join(place).join(room);
    let inside = if folder.is_dir() { rust_files(&folder) } else { Vec::new() };
    let own = Some(folder.with_extension("rs")).filter(|file| file.exists());
    let place: Vec<&str> = place.split('/').collect();
    let mut named = Vec::new();
    for file in inside.into_iter().chain(own) {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = code(&text).collect::<Vec<_>>().join("\n");
        let module = file.strip_prefix(root()).unwrap().with_extension("");
        let module: Vec<&str> =
            module.iter().map(|step| step.to_str().unwrap()).filter(|step| *step != "mod").collect();
        let paths = paths(&code).into_iter().map(|path| from_root(&module, &path));
        let steps = paths.filter_map(|path| Some(path.strip_prefix(&place[..])?.first()?.to_string()));
        named.extend(steps.map(|step| (file.clone(), step)));
    }
    named
}

/// A path as the code of `module` spells it, from the workspace on: `crate` is the module's first two steps.
fn from_root<'a>(module: &[&'a str], path: &[&'a str]) -> Vec<&'a str> {
    let ups = path.iter().take_while(|step| **step == "super").count();
    let start = if ups == 0 { 2 } else { module.len().saturating_sub(ups) };
    [&module[..start], &path[ups.max(1)..]].concat()
}

/// The paths in some code that begin with `crate` or `super`, those of a list in braces one by one.
fn paths(code: &str) -> Vec<Vec<&str>> {
    let heads = code.match_indices("crate::").chain(code.match_indices("super::"));
    let begins = |at: &usize| !code[..*at].ends_with(|c: char| c == ':' || is_of_word(c));
    heads.map(|(at, _)| at).filter(begins).flat_map(|at| spelled_out(&code[at..])).collect()
}

/// The paths of the tree that some text begins with, such as `a::{b, c::*}`, each with all of its steps.
fn spelled_out(text: &str) -> Vec<Vec<&str>> {
    if let Some(list) = text.strip_prefix('{') {
        return parts(list).into_iter().flat_map(|part| spelled_out(part.trim())).collect();
    }
    let (step, rest) = text.split_at(text.find(|c| !is_of_word(c) && c != '*').unwrap_or(text.len()));
    let rest = rest.strip_prefix("::").map_or(vec![Vec::new()], spelled_out);
    rest.into_iter().map(|rest| [vec![step], rest].concat()).collect()
}

/// What the commas of a list part, up to the brace that closes it.
fn parts(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (i, c) in list.char_indices() {
        if depth == 0 && (c == ',' || c == '}') {
            parts.push(&list[start..i]);
            start = i + 1;
        }
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth < 0 {
            break;
        }
    }
    parts
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[test]
fn paths_are_found_also_in_lists_and_from_the_module_that_spells_them() {
    let found = |code: &'static str| -> Vec<String> {
        paths(code).iter().map(|path| from_root(&["engine", "src", "x", "y"], path).join("/")).collect()
    };
    let code = "use crate::a::B;\nuse crate::{c, d::{E, F}, g::*};\nfn i() -> crate::j::K { crate::l() }";
    assert_eq!(found(code), ["a/B", "c", "d/E", "d/F", "g/*", "j/K", "l"].map(|path| format!("engine/src/{path}")));
    let code = "use super::{a, b::C};\npub(super) fn d(e: super::super::F) {}";
    assert_eq!(found(code), ["x/a", "x/b/C", "F"].map(|path| format!("engine/src/{path}")));
    assert_eq!(declared("pub mod actors;"), Some("actors"));
}

/// Lines without their comments; tests at the end of a file may name what they like.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let lines: Vec<&str> = text.lines().collect();
    let is_tests = |i: &usize| {
        lines[*i].starts_with("#[cfg(test)]")
            && lines[*i + 1..].iter().find(|l| !l.starts_with('#')).is_some_and(|l| l.ends_with('{'))
    };
    let end = (0..lines.len()).find(is_tests).unwrap_or(lines.len());
    lines.into_iter().take(end).map(|l| l.split("//").next().unwrap_or(""))
}

fn rust_files(place: &Path) -> Vec<PathBuf> {
    if place.is_file() {
        return vec![place.to_owned()];
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(place).unwrap().map(|e| e.unwrap().path()) {
        match entry.file_name().and_then(|n| n.to_str()) {
            Some("tests" | "tests.rs") => {}
            _ if entry.is_dir() => found.extend(rust_files(&entry)),
            Some(name) if name.ends_with(".rs") => found.push(entry),
            _ => {}
        }
    }
    found
}
