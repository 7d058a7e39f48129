//! A family for the test that adds one: layers of a factor a channel, then a dense feed-forward part. Its file and its
//! line in the table are all that a family needs.

use super::{Family, GgufForm, Layers, mixer_and_feed_forward};
use crate::model::blocks::{MlpConfig, OpConfig, ScaleConfig};

const NORMS: [&str; 2] = ["scale_norm.weight", "ffn_norm.weight"];

pub(super) const FAMILY: Family = Family {
    gguf: "scaled",
    hugging_face: &[],
    form: GgufForm::USUAL,
    gguf_layers: |keys| {
        let mlp = OpConfig::Mlp(MlpConfig::from_gguf(keys)?);
        let layer = || mixer_and_feed_forward(NORMS, [OpConfig::Scale(ScaleConfig), mlp.clone()]);
        Ok(Layers { main: (0..keys.main).map(|_| layer()).collect(), draft: layer() })
    },
    hugging_face_layers: |_| Ok(Layers { main: Vec::new(), draft: Vec::new() }),
    gdn: None,
    hugging_face_tensors: None,
    conversion: None,
};
