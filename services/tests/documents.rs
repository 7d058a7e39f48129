//! Pages that are made from the source say what the source says.

#![allow(clippy::unwrap_used, reason = "a test")]

use serde_json::Value;
use std::path::Path;

/// A file of the repository.
fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)).unwrap_or_default()
}

#[test]
fn docs_metrics_md_is_what_the_definitions_and_the_dashboards_say() {
    let dashboards = ["service", "gpu", "loadtest"];
    let dashboards = dashboards.map(|name| (name, read(&format!("dashboards/{name}.json")).parse::<Value>().unwrap()));
    let page = chimere::metrics::docs::document(&dashboards).unwrap();
    if std::env::var_os("CHIMERE_WRITE_DOCS").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md"), &page).unwrap();
    }
    let stale = "docs/metrics.md is stale: CHIMERE_WRITE_DOCS=1 cargo test -p chimere --test documents writes it anew";
    assert!(read("docs/metrics.md") == page, "{stale}");
}
