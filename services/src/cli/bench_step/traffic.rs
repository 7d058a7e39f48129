//! How many bytes a decode step has to move, from the model's shape: the least any engine reads and writes if every weight is
//! read once a step.

use chimere_engine::model::{FfnConfig, LayerKind, ModelConfig, Role, Summary};

/// Bytes of weights by how a step reads them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Traffic {
    /// Read whole by every step.
    every_step: f64,
    /// All routed experts.
    experts: f64,
    /// Share of the experts that one token uses.
    used_share: f64,
    /// Recurrent state and convolution tail of one sequence, f32.
    state: f64,
    /// KV of one position.
    kv_position: f64,
}

impl Traffic {
    /// Of this model, with KV values of `kv_bytes` bytes.
    pub(super) fn of(config: &ModelConfig, summary: &Summary, tied: bool, kv_bytes: usize) -> Self {
        let role = |role: Role| summary.roles.get(&role).map_or(0, |r| r.bytes) as f64;
        // The embedding is a look-up of some rows, the draft head does not run; a tied embedding is read as the head.
        let skipped = role(Role::Draft) + role(Role::Experts) + if tied { 0.0 } else { role(Role::Embedding) };
        let used_share = match config.ffn {
            FfnConfig::Moe { experts, used, .. } => used as f64 / experts as f64,
            FfnConfig::Dense { .. } => 0.0,
        };
        let layers = |kind| config.layers.iter().filter(|k| **k == kind).count() as f64;
        let state = config.gdn.state_len() + config.gdn.channels() * (config.gdn.conv_taps - 1);
        Self {
            every_step: summary.bytes() as f64 - skipped,
            experts: role(Role::Experts),
            used_share,
            state: layers(LayerKind::Gdn) * 4.0 * state as f64,
            kv_position: layers(LayerKind::Attention)
                * (2 * kv_bytes * config.attention.kv_heads * config.attention.head_dim) as f64,
        }
    }

    /// Bytes of one decode step of `batch` sequences with `context` positions each: weights with the expected number of distinct
    /// experts, `E (1 - (1 - k/E)^batch)` for tokens that choose independently; state read and written; KV read.
    pub(super) fn decode_bytes(&self, batch: u32, context: u32) -> f64 {
        let distinct = 1.0 - (1.0 - self.used_share).powi(batch as i32);
        let sequence = 2.0 * self.state + self.kv_position * f64::from(context);
        self.every_step + self.experts * distinct + f64::from(batch) * sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bigger_batch_reads_more_experts_but_the_rest_once() {
        let t = Traffic { every_step: 100.0, experts: 1000.0, used_share: 0.25, state: 5.0, kv_position: 0.5 };
        assert_eq!(t.decode_bytes(1, 0), 100.0 + 250.0 + 10.0);
        assert_eq!(t.decode_bytes(2, 8), 100.0 + 437.5 + 2.0 * (10.0 + 4.0));
        assert!(t.decode_bytes(64, 0) < 100.0 + 1000.0 + 640.0);
    }
}
