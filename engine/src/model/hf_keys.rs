//! Sizes and factors in config.json of a Hugging Face directory, each checked where it is read.

use super::reader::SIZE_MAX;
use crate::format::hf::HfConfig;
use crate::format::{HfDir, LoadError};

/// How many layers config.json promises, if the directory has at least a tensor for each.
pub(super) fn layer_count(dir: &HfDir) -> Result<u64, LoadError> {
    let (c, tensors) = (dir.config(), dir.tensor_count() as u64);
    let layers = c.need_u64("num_hidden_layers")?;
    if layers == 0 || layers > tensors {
        return Err(c.error("num_hidden_layers", format_args!("1 to {tensors}, the number of tensors"), layers));
    }
    Ok(layers)
}

/// A factor, 1 where config.json has none.
pub(super) fn factor(c: &HfConfig, key: &str) -> Result<f32, LoadError> {
    let factor = c.f64(key)?.unwrap_or(1.0) as f32;
    if factor.is_finite() && factor > 0.0 { Ok(factor) } else { Err(c.error(key, "a number above 0", factor)) }
}

/// A size that can be believed.
pub(super) fn size(c: &HfConfig, key: &str) -> Result<usize, LoadError> {
    let value = c.need_u64(key)?;
    if (1..=SIZE_MAX).contains(&value) {
        Ok(value as usize)
    } else {
        Err(c.error(key, format_args!("1 to {SIZE_MAX}"), value))
    }
}

/// That either every convolution of a mixer has a bias or none, as the key says where it is there.
pub(super) fn check_conv_bias(dir: &HfDir, key: &str) -> Result<(), LoadError> {
    let count = |end: &str| dir.tensor_names().filter(|name| name.ends_with(end)).count();
    let (all, biased) = (count(".conv1d.weight"), count(".conv1d.bias"));
    let said = dir.config().bool(key)?;
    let want = if said.unwrap_or(biased > 0) { all } else { 0 };
    if biased == want {
        return Ok(());
    }
    let want = format!("what the tensors say: {biased} of {all} convolutions have a bias");
    Err(dir.config().error(key, want, said.map_or_else(|| "no such key".to_owned(), |said| said.to_string())))
}

/// That `value` is a multiple of `of`.
pub(super) fn multiple(c: &HfConfig, key: &str, value: usize, of: usize) -> Result<(), LoadError> {
    if value.is_multiple_of(of) { Ok(()) } else { Err(c.error(key, format_args!("a multiple of {of}"), value)) }
}
