//! What came out: a table for a terminal, and JSON.

use super::QuantizeArgs;
use super::choice::Choices;
use crate::tools::figures::bytes_text;
use chimere_engine::format::{BlockType, Gguf};
use chimere_engine::quantize::{Divergence, Group};
use serde_json::{Value, json};
use std::fmt;

/// A quantised file in figures.
pub(super) struct Report {
    model: String,
    out: String,
    scheme: String,
    rows: Vec<Row>,
    bytes: u64,
    expected: Option<f64>,
    measured: Option<Divergence>,
}

struct Row {
    name: String,
    ty: BlockType,
    bytes: u64,
    weights: u64,
    t2: f64,
    alpha: Option<f64>,
}

impl Report {
    pub(super) fn new(
        args: &QuantizeArgs,
        groups: &[Group],
        source: &Gguf,
        choices: Choices,
        bytes: u64,
        measured: Option<Divergence>,
    ) -> Self {
        let row = |(i, g): (usize, &Group)| {
            let (ty, t2) = (choices.types[i], choices.t2[i]);
            let alpha = choices.alpha.as_ref().map(|a| a[i]);
            Row { name: g.name(), ty, bytes: g.bytes(source, ty), weights: g.weights, t2, alpha }
        };
        Self {
            model: args.model.display().to_string(),
            out: args.out.display().to_string(),
            scheme: format!("{:?}", args.scheme).to_lowercase(),
            rows: groups.iter().enumerate().map(row).collect(),
            bytes,
            expected: choices.expected(),
            measured,
        }
    }

    fn bits(&self) -> f64 {
        let sum = |of: fn(&Row) -> u64| self.rows.iter().map(of).sum::<u64>() as f64;
        8.0 * sum(|r| r.bytes) / sum(|r| r.weights).max(1.0)
    }

    pub(super) fn json(&self) -> Value {
        let row = |r: &Row| {
            json!({
                "group": r.name, "type": r.ty.name(), "bytes": r.bytes, "weights": r.weights, "t2": r.t2,
                "alpha": r.alpha, "expected_kl": r.alpha.map(|a| a * r.t2),
            })
        };
        let measured = self.measured.as_ref().map(|d| {
            json!({"positions": d.positions(), "mean": d.mean(), "p99.9": d.quantiles([0.999])[0], "same_top": d.same_top()})
        });
        json!({
            "model": self.model, "out": self.out, "scheme": self.scheme, "bytes": self.bytes, "bpw": self.bits(),
            "expected_kl": self.expected, "calibration_kl": measured,
            "groups": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<26}{:<9}{:>12}{:>12}{:>14}", "group", "type", "size", "t^2", "expected KL")?;
        for r in &self.rows {
            let expected = r.alpha.map_or("-".into(), |a| format!("{:.6}", a * r.t2));
            let (ty, size) = (r.ty.name(), bytes_text(r.bytes));
            writeln!(f, "{:<26}{ty:<9}{size:>12}{:>12.6}{expected:>14}", r.name, r.t2)?;
        }
        writeln!(
            f,
            "\n{}: {} ({} bytes), {:.3} bits a weight",
            self.out,
            bytes_text(self.bytes),
            self.bytes,
            self.bits()
        )?;
        if let (Some(expected), Some(d)) = (self.expected, &self.measured) {
            writeln!(f, "mean divergence on calibration text: expected {expected:.6}, measured {:.6}", d.mean())?;
        }
        Ok(())
    }
}
