//! How finely activations are rounded before they are multiplied.

use super::config::{Activations, Placement};
use super::matrix::MatrixPlan;
use super::weights::WeightsPlan;
use crate::model::Model;
use chimere_kernels::cuda::product::layout::Layout;
use chimere_kernels::cuda::quantized::Planes;

/// Bytes of matrices up to which launches bound a decode step and not what they do.
const SMALL_BYTES: usize = 1 << 30;

impl Activations {
    /// What this is for a model: never [`Activations::Auto`], which is 16 bits where most bytes of the matrices are of
    /// 16-bit weights, whose precision 8 bits would give away, and where all matrices together have less than 1 GiB.
    pub fn of(self, model: &Model) -> Self {
        if self != Self::Auto {
            return self;
        }
        let (_, matrices, _) = WeightsPlan::of(model, Placement::default()).take_apart();
        let bytes = |wanted: fn(&MatrixPlan<'_>) -> bool| {
            matrices.iter().filter(|m| wanted(m)).map(MatrixPlan::bytes).sum::<usize>()
        };
        let (all, wide) = (bytes(|_| true), bytes(|m| m.layout == Layout::W16));
        if all < SMALL_BYTES || 2 * wide > all { Self::Int16 } else { Self::Int8 }
    }

    /// Planes of the rows that a model's kernels read.
    pub(crate) fn planes(self, model: &Model) -> Planes {
        match self.of(model) {
            Self::Int16 => Planes::Two,
            _ => Planes::One,
        }
    }

    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::synth::{Mix, SynthOptions, write_outline};
    use crate::model;

    #[test]
    fn small_models_get_sixteen_bits_and_the_released_one_keeps_eight() {
        let dir = tempfile::tempdir().unwrap();
        let released = |mix, layers| {
            let file = dir.path().join("outline.gguf");
            let shape = SynthOptions::shapes().next().unwrap().to_owned();
            write_outline(
                &file,
                &SynthOptions { shape, mix, layers, experts: None, vocab: None, draft_head: false, seed: 1 },
            )
            .unwrap();
            model::load(&file).unwrap()
        };
        let of = |a: Activations, model: &Model| a.of(model);
        let large = released(Mix::Q4, None);
        assert_eq!(of(Activations::Auto, &large), Activations::Int8);
        assert_eq!(of(Activations::Int16, &large), Activations::Int16);
        let small =
            model::load(format!("{}/tests/golden/moe/model.gguf", env!("CARGO_MANIFEST_DIR")).as_ref()).unwrap();
        assert_eq!(of(Activations::Auto, &small), Activations::Int16);
        assert_eq!(of(Activations::Int8, &small), Activations::Int8);
    }
}
