//! What came out: a table for a terminal, and JSON.

use super::QuantizeArgs;
use super::choice::{Choices, Others};
use super::job::{OtherTensors, QuantizeJob};
use crate::figures::bytes_text;
use chimere_engine::format::BlockType;
use chimere_engine::quantize::{Divergence, Group};
use serde_json::{Value, json};
use std::fmt;

/// A quantised file in figures.
pub(super) struct QuantizeReport {
    model: String,
    out: String,
    scheme: String,
    rows: Vec<GroupRow>,
    tensors: Vec<OtherTensors>,
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
    pub(super) fn new(job: &QuantizeJob<'_>, choices: Choices, wrote: Wrote, measured: Option<Divergence>) -> Self {
        let args: &QuantizeArgs = job.args;
        let row = |(i, g): (usize, &Group)| {
            let (ty, t2) = (choices.types[i], choices.t2[i]);
            let alpha = choices.alpha.as_ref().map(|a| a[i]);
            let measured = choices.measured.as_ref().map(|kl| kl[i]);
            GroupRow { name: g.name(), ty, bytes: g.bytes(job.source, ty), weights: g.weights, t2, alpha, measured }
        };
        Self {
            model: args.model.display().to_string(),
            out: args.out.display().to_string(),
            scheme: format!("{:?}", args.scheme).to_lowercase(),
            rows: job.groups.iter().enumerate().map(row).collect(),
            tensors: job.others(),
            wrote,
            expected: choices.expected(),
            measured,
            others: choices.others,
        }
    }

    /// Bits a weight of the groups, which `--target` counts by.
    fn group_bits(&self) -> f64 {
        let sum = |of: fn(&GroupRow) -> u64| self.rows.iter().map(of).sum::<u64>() as f64;
        8.0 * sum(|r| r.bytes) / sum(|r| r.weights).max(1.0)
    }

    /// Bits a weight of the whole file, its header included.
    fn bits(&self) -> f64 {
        let groups: u64 = self.rows.iter().map(|r| r.weights).sum();
        let others: u64 = self.tensors.iter().map(|t| t.weights).sum();
        8.0 * self.wrote.bytes as f64 / (groups + others).max(1) as f64
    }

    /// Bytes of the file that belong to no tensor: metadata, the list of tensors and padding.
    fn header_bytes(&self) -> u64 {
        let groups: u64 = self.rows.iter().map(|r| r.bytes).sum();
        let others: u64 = self.tensors.iter().map(|t| t.bytes).sum();
        self.wrote.bytes - groups - others
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
        let other = |t: &OtherTensors| {
            json!({
                "why": t.why, "type": t.ty.name(), "tensors": t.tensors, "bytes": t.bytes, "weights": t.weights,
            })
        };
        let uniform = |o: &Others| o.uniform.iter().map(|(ty, point)| json!([ty.name(), point])).collect::<Vec<_>>();
        json!({
            "model": self.model, "out": self.out, "scheme": self.scheme, "bytes": self.wrote.bytes,
            "bpw": self.group_bits(), "file_bpw": self.bits(), "header_bytes": self.header_bytes(),
            "encoded_on": self.wrote.on, "seconds": self.wrote.seconds,
            "expected_kl": self.expected, "calibration_kl": measured,
            "groups": self.rows.iter().map(row).collect::<Vec<_>>(),
            "others": self.tensors.iter().map(other).collect::<Vec<_>>(),
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
        for t in &self.tensors {
            let (ty, size, count) = (t.ty.name(), bytes_text(t.bytes), format!("{} tensors", t.tensors));
            writeln!(f, "{count:<26}{ty:<9}{size:>12}  {}", t.why)?;
        }
        let header = bytes_text(self.header_bytes());
        writeln!(f, "{:<35}{header:>12}  metadata, the list of tensors, padding", "header")?;
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
