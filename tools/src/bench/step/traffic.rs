//! How many bytes a decode step has to move, from the model's shape: the least any engine reads and writes if every
//! weight is read once a step.

use chimere::config::KvType;
use chimere_engine::model::{ModelConfig, MoeConfig, Role, Summary};

/// Bytes of one value of the keys and of one of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct KvBytes(f64, f64);

impl KvBytes {
    /// As they are stored.
    pub(super) fn of(kv_type: KvType, exact: bool) -> Self {
        match (exact, kv_type) {
            (true, _) | (_, KvType::F32) => KvBytes(4.0, 4.0),
            (_, KvType::F16) => KvBytes(2.0, 2.0),
            (_, KvType::Q8_0) => KvBytes(34.0 / 32.0, 34.0 / 32.0),
            (_, KvType::Q8_0Q4_0) => KvBytes(34.0 / 32.0, 18.0 / 32.0),
        }
    }
}

/// Bytes of weights by how a step reads them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Traffic {
    /// Read whole by every step.
    every_step: f64,
    /// Bytes of all routed experts.
    experts: f64,
    /// Share of the experts that one token uses.
    used_share: f64,
    /// Routed experts of a layer.
    experts_count: f64,
    /// Recurrent state and convolution tail of one sequence, f32.
    state: f64,
    /// KV of one position.
    kv_position: f64,
}

impl Traffic {
    /// The traffic of steps of this model.
    pub(super) fn of(config: &ModelConfig, summary: &Summary, tied: bool, kv: KvBytes) -> Self {
        let role = |role: Role| summary.roles.get(&role).map_or(0, |r| r.bytes) as f64;
        // The embedding is a look-up of some rows, the draft head does not run; a tied embedding is read as the head.
        let skipped = role(Role::Draft) + role(Role::Experts) + if tied { 0.0 } else { role(Role::Embedding) };
        let moe = config.each::<MoeConfig>().next();
        let (used, experts_count) = moe.map_or((0.0, 1.0), |moe| (moe.used as f64, moe.experts as f64));
        Self {
            every_step: summary.bytes() as f64 - skipped,
            experts: role(Role::Experts),
            used_share: used / experts_count,
            experts_count,
            state: 4.0 * config.recurrent_floats() as f64,
            kv_position: (kv.0 + kv.1) * config.kv_values() as f64,
        }
    }

    /// Bytes of one decode step of `batch` sequences with `context` positions each: weights with the distinct experts
    /// that a layer was counted to read, or, where nobody counted, the expected number, `E (1 - (1 - k/E)^batch)` for
    /// tokens that choose independently; state read and written, also where a device writes it at some steps only, so
    /// that figures of all devices and versions are of one kind; KV read.
    pub(super) fn decode_bytes(&self, batch: u32, context: u32, distinct: Option<f64>) -> f64 {
        let expected = || 1.0 - (1.0 - self.used_share).powi(batch as i32);
        let distinct = distinct.map_or_else(expected, |counted| counted / self.experts_count);
        let sequence = 2.0 * self.state + self.kv_position * f64::from(context);
        self.every_step + self.experts * distinct + f64::from(batch) * sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bigger_batch_reads_more_experts_but_the_rest_once() {
        let t = Traffic {
            every_step: 100.0,
            experts: 1000.0,
            used_share: 0.25,
            experts_count: 16.0,
            state: 5.0,
            kv_position: 0.5,
        };
        assert_eq!(t.decode_bytes(1, 0, None), 100.0 + 250.0 + 10.0);
        assert_eq!(t.decode_bytes(2, 8, None), 100.0 + 437.5 + 2.0 * (10.0 + 4.0));
        assert!(t.decode_bytes(64, 0, None) < 100.0 + 1000.0 + 640.0);
        assert_eq!(t.decode_bytes(2, 8, Some(4.0)), 100.0 + 250.0 + 2.0 * (10.0 + 4.0), "counted experts are believed");
    }

    #[test]
    fn quantised_keys_and_values_move_fewer_bytes() {
        assert_eq!(KvBytes::of(KvType::Q8_0Q4_0, false), KvBytes(1.0625, 0.5625));
        assert_eq!(KvBytes::of(KvType::F16, true), KvBytes(4.0, 4.0));
    }
}
