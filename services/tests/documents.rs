//! Pages that are made from the source say what the source says.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;

#[test]
fn docs_metrics_md_is_what_the_definitions_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let page = chimere::metrics::docs::document();
    if std::env::var_os("CHIMERE_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == page, "docs/metrics.md is stale: CHIMERE_WRITE_DOCS=1 cargo test -p chimere --test documents writes it anew");
}
