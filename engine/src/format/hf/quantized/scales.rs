//! Scales that stand beside codes, and the shapes that they must have.

use super::super::tensors::Tensors;
use crate::format::{LoadError, Tensor};
use safetensors::Dtype;

/// The scales of this name, as floats; an error if there are none, or of another type. `of`: whose scales they are.
pub(super) fn floats(tensors: &Tensors, name: &str, of: &str) -> Result<Tensor, LoadError> {
    match tensors.location(name).map(|s| s.dtype) {
        Some(Dtype::F32 | Dtype::F16 | Dtype::BF16) => Ok(tensors.plain(name)?.expect("it is there")),
        Some(other) => Err(tensors.error(name, "F32, F16 or BF16", format_args!("{other:?}"))),
        None => Err(tensors.error(name, format_args!("the scales of {of}"), "no such tensor")),
    }
}

/// One finite factor that is not 0.
pub(super) fn one_factor(tensors: &Tensors, name: &str, of: &str) -> Result<f32, LoadError> {
    let scale = floats(tensors, name, of)?;
    match scale.decode().as_slice() {
        [one] if one.is_finite() && *one != 0.0 => Ok(*one),
        [one] => Err(tensors.error(name, "a finite number that is not 0", one)),
        several => Err(tensors.error(name, "one value", several.len())),
    }
}

/// That a tensor has this shape.
pub(super) fn check_shape(tensors: &Tensors, name: &str, got: &[usize], want: &[usize]) -> Result<(), LoadError> {
    if got == want {
        return Ok(());
    }
    Err(tensors.error(name, format_args!("shape {want:?}"), format_args!("shape {got:?}")))
}
