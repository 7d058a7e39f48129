//! Which crate may know which: services -> engine -> kernels and never back, no asynchronous runtime below services, no C++.
//! Also the directions between modules, where a crate's compiler cannot see them.

#![allow(clippy::unwrap_used, reason = "a test")]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each crate of the workspace and the ones it may name.
const DIRECTIONS: &[(&str, &[&str])] =
    &[("chimere", &["chimere-engine"]), ("chimere-engine", &["chimere-kernels"]), ("chimere-kernels", &[])];

/// What only services may bring in, directly or not.
const ASYNCHRONOUS: &[&str] = &["actix", "actix-rt", "actix-web", "actix-http", "awc", "tokio", "hyper", "async-std", "smol"];

/// Build-time crates that call a C or C++ compiler, a generator that parses C, or look for system libraries.
const FOREIGN_BUILD: &[&str] =
    &["autotools", "bindgen", "cc", "cmake", "cxx-build", "nasm-rs", "pkg-config", "system-deps", "vcpkg"];

/// (folder or file, what its code must not mention, why)
const MODULES: &[(&str, &[&str], &str)] = &[
    ("engine/src/scheduler", &["backend::", "std::time", "Instant::now"], "the scheduler is data in, data out"),
    ("engine/src/constraint", &["backend::", "scheduler::", "step::"], "what may be said does not know who plans and computes it"),
    ("engine/src/model", &["backend::", "scheduler::"], "a model does not know who runs it"),
    ("engine/src/format", &["backend::", "scheduler::"], "a format does not know who runs it"),
    ("engine/src/backend", &["scheduler::"], "a backend runs plans and asks nobody for them"),
    ("services/src/text", &["actix", "crate::http", "crate::actors"], "text knows neither HTTP nor actors"),
    ("services/src/actors", &["crate::http"], "requests flow from HTTP to the actors"),
];

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
        let edges = list(&json["resolve"]["nodes"]).map(|n| (text(&n["id"]), list(&n["deps"]).map(edge).collect())).collect();
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

/// Names of what a build on this machine compiles. `cargo metadata` also lists optional packages that nothing turns on, where a feature
/// would only add to them (rustls-webpki's `ring?/alloc`).
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

/// Lines without their comments; tests at the end of a file may name what they like.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take_while(|l| !l.starts_with("#[cfg(test)]")).map(|l| l.split("//").next().unwrap_or(""))
}

fn rust_files(place: &Path) -> Vec<PathBuf> {
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
