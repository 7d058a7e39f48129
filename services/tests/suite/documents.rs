//! Pages that are made from the source say what the source says.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// A file of the repository.
fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)).unwrap_or_default()
}

/// Names of the crates that a manifest asks for, those of the workspace left out.
fn asked_for(manifest: &str) -> BTreeSet<String> {
    let manifest: toml::Table = read(manifest).parse().unwrap();
    let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
    let tables = sections.iter().filter_map(|section| manifest.get(*section)?.as_table());
    tables.flat_map(|table| table.keys().cloned()).filter(|name| !name.starts_with("chimere")).collect()
}

#[test]
fn every_dependency_has_its_reason_and_every_reason_a_dependency() {
    let page = read("docs/decisions/dependencies.md");
    let crates: BTreeSet<String> = ["cli", "tools", "services", "engine", "kernels"]
        .iter()
        .flat_map(|c| asked_for(&format!("{c}/Cargo.toml")))
        .collect();
    assert!(crates.len() > 30, "the manifests are not read: {crates:?}");
    let without: Vec<_> = crates.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(without.is_empty(), "docs/decisions/dependencies.md has no line for {without:?}");
    let rows = page.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
    let named: BTreeSet<String> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    let unused: Vec<_> = named.difference(&crates).collect();
    assert!(unused.is_empty(), "docs/decisions/dependencies.md explains what nothing asks for: {unused:?}");
}

#[test]
fn docs_metrics_md_is_what_the_definitions_and_the_dashboards_say() {
    let dashboards = ["service", "gpu", "loadtest"];
    let dashboards = dashboards.map(|name| (name, read(&format!("dashboards/{name}.json")).parse::<Value>().unwrap()));
    let page = chimere::metrics::docs::document(&dashboards).unwrap();
    if std::env::var_os("CHIMERE_WRITE_DOCS").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/metrics.md"), &page).unwrap();
    }
    let anew = "CHIMERE_WRITE_DOCS=1 cargo test -p chimere --test suite documents writes it anew";
    assert!(read("docs/reference/metrics.md") == page, "docs/reference/metrics.md is stale: {anew}");
}
