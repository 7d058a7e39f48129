//! What came out: a table for a terminal, and JSON.

use super::QuantizeArgs;
use super::choice::{Choices, Others};
use crate::figures::bytes_text;
use chimere_engine::format::{BlockType, Gguf};
use chimere_engine::quantize::{Divergence, Group};
use serde_json::{Value, json};
use std::fmt;

/// A quantised file in figures.
pub(super) struct QuantizeReport {
    model: String,
    out: String,
    scheme: String,
    rows: Vec<GroupRow>,
    wrote: Wrote,
    expected: Option<f64>,
    measured: Option<Divergence>,
    others: Option<Others>,
}

/// Size of the written file, and the device and the time of its encoding.
pub(super) struct Wrote {
    pub(super) bytes: u64,
    /// Name of the device that encoded.
    pub(super) on: String,
    pub(super) seconds: f64,
}

struct GroupRow {
    name: String,
    ty: BlockType,
    bytes: u64,
    weights: u64,
    t2: f64,
    alpha: Option<f64>,
    measured: Option<f64>,
}

impl QuantizeReport {
    pub(super) fn new(
        args: &QuantizeArgs,
        groups: &[Group],
        source: &Gguf,
        choices: Choices,
        wrote: Wrote,
        measured: Option<Divergence>,
    ) -> Self {
        let row = |(i, g): (usize, &Group)| {
            let (ty, t2) = (choices.types[i], choices.t2[i]);
            let alpha = choices.alpha.as_ref().map(|a| a[i]);
            let measured = choices.measured.as_ref().map(|kl| kl[i]);
            GroupRow { name: g.name(), ty, bytes: g.bytes(source, ty), weights: g.weights, t2, alpha, measured }
        };
        Self {
            model: args.model.display().to_string(),
            out: args.out.display().to_string(),
            scheme: format!("{:?}", args.scheme).to_lowercase(),
            rows: groups.iter().enumerate().map(row).collect(),
            wrote,
            expected: choices.expected(),
            measured,
            others: choices.others,
        }
    }

    fn bits(&self) -> f64 {
        let sum = |of: fn(&GroupRow) -> u64| self.rows.iter().map(of).sum::<u64>() as f64;
        8.0 * sum(|r| r.bytes) / sum(|r| r.weights).max(1.0)
    }

    pub(super) fn json(&self) -> Value {
        let row = |r: &GroupRow| {
            json!({
                "group": r.name, "type": r.ty.name(), "bytes": r.bytes, "weights": r.weights, "t2": r.t2,
                "alpha": r.alpha, "expected_kl": r.alpha.map(|a| a * r.t2), "measured_kl": r.measured,
            })
        };
        let measured = self.measured.as_ref().map(|d| {
            json!({
                "positions": d.positions(), "mean": d.mean(), "p99.9": d.quantiles([0.999])[0],
                "same_top": d.same_top(),
            })
        });
        let uniform = |o: &Others| o.uniform.iter().map(|(ty, point)| json!([ty.name(), point])).collect::<Vec<_>>();
        json!({
            "model": self.model, "out": self.out, "scheme": self.scheme, "bytes": self.wrote.bytes, "bpw": self.bits(),
            "encoded_on": self.wrote.on, "seconds": self.wrote.seconds,
            "expected_kl": self.expected, "calibration_kl": measured,
            "groups": self.rows.iter().map(row).collect::<Vec<_>>(),
            "curve": self.others.as_ref().map(|o| &o.curve),
            "uniform": self.others.as_ref().map(uniform),
        })
    }
}

impl fmt::Display for QuantizeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kl = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.6}"));
        let head = ["size", "t^2", "expected KL", "measured KL"];
        writeln!(f, "{:<26}{:<9}{:>12}{:>12}{:>14}{:>14}", "group", "type", head[0], head[1], head[2], head[3])?;
        for r in &self.rows {
            let (expected, measured) = (kl(r.alpha.map(|a| a * r.t2)), kl(r.measured));
            let (ty, size) = (r.ty.name(), bytes_text(r.bytes));
            writeln!(f, "{:<26}{ty:<9}{size:>12}{:>12.6}{expected:>14}{measured:>14}", r.name, r.t2)?;
        }
        writeln!(
            f,
            "\n{}: {} ({} bytes), {:.3} bits a weight, encoded and written in {:.1} s on {}",
            self.out,
            bytes_text(self.wrote.bytes),
            self.wrote.bytes,
            self.bits(),
            self.wrote.seconds,
            self.wrote.on
        )?;
        if let (Some(expected), Some(d)) = (self.expected, &self.measured) {
            writeln!(f, "mean divergence on calibration text: expected {expected:.6}, measured {:.6}", d.mean())?;
        }
        Ok(())
    }
}
