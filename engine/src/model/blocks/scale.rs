//! The smallest operator there can be, for the test that adds one: each channel times a factor of its own. It is what a
//! new operator needs of the model and no more.

use super::Layer;
use super::Operator;
use crate::format::LoadError;
use crate::model::summary::{Role, Summary};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleConfig;

#[derive(Debug)]
pub struct ScaleWeights {
    /// Factor of each value of a row, `[hidden]`.
    pub factors: Vec<f32>,
}

impl Operator for ScaleConfig {
    type Weights = ScaleWeights;
    const NAME: &'static str = "scale";

    fn describe(&self) -> String {
        "a factor a channel".into()
    }

    fn read_gguf(&self, layer: &Layer<'_>) -> Result<ScaleWeights, LoadError> {
        Ok(ScaleWeights { factors: layer.values("scale.weight", &[layer.hidden])? })
    }

    fn read_hugging_face(&self, layer: &Layer<'_>) -> Result<ScaleWeights, LoadError> {
        self.read_gguf(layer)
    }

    fn count(weights: &ScaleWeights, summary: &mut Summary) {
        summary.values(Role::Other, &weights.factors);
    }
}
