//! What files say of YaRN, which leads a model beyond the positions that it was trained for.

use crate::format::LoadError;
use crate::format::hf::HfConfig;
use crate::model::gguf_keys::Keys;
use chimere_kernels::reference::Yarn;

/// Defaults of the method's authors, which other programs have too.
const BETA_FAST_DEFAULT: f64 = 32.0;
const BETA_SLOW_DEFAULT: f64 = 1.0;
/// Objects of config.json that say how heads are rotated: newer exports have the first one.
const OBJECTS: [&str; 2] = ["rope_parameters", "rope_scaling"];

/// From the keys `rope.scaling.*` of a file that asks for YaRN.
pub(super) fn yarn_from_gguf(keys: &Keys<'_>) -> Result<Yarn, LoadError> {
    let number = |name: &str| Ok::<_, LoadError>(keys.factor(name)?.map(f64::from));
    let factor = number("rope.scaling.factor")?.unwrap_or(0.0);
    if factor < 1.0 {
        return Err(keys.error("rope.scaling.factor", "a number of at least 1, by which YaRN slows down", factor));
    }
    let positions = match number("rope.scaling.original_context_length")? {
        Some(positions) => positions,
        None => keys.size("context_length")? as f64,
    };
    // The one key takes the place of the usual magnitude, the other one is multiplied with it.
    let own = number("rope.scaling.yarn_attn_factor")?.unwrap_or(Yarn::usual_magnitude(factor));
    let more = number("rope.scaling.attn_factor")?.unwrap_or(1.0);
    Ok(Yarn {
        factor,
        positions,
        beta_fast: number("rope.scaling.yarn_beta_fast")?.unwrap_or(BETA_FAST_DEFAULT),
        beta_slow: number("rope.scaling.yarn_beta_slow")?.unwrap_or(BETA_SLOW_DEFAULT),
        magnitude: own * more,
    })
}

/// From config.json, if it asks for YaRN.
pub(super) fn yarn_from_hugging_face(c: &HfConfig) -> Result<Option<Yarn>, LoadError> {
    let mut asked = None;
    for object in OBJECTS {
        for name in ["rope_type", "type"] {
            let key = format!("{object}.{name}");
            match c.str(&key)? {
                None | Some("default") => {}
                Some("yarn") => asked = Some(object),
                Some(other) => {
                    let want = "`default` or `yarn`: other scaled rotations are not supported";
                    return Err(c.error(&key, want, format_args!("`{other}`")));
                }
            }
        }
    }
    asked.map(|object| yarn_in(c, object)).transpose()
}

fn yarn_in(c: &HfConfig, object: &str) -> Result<Yarn, LoadError> {
    let positive = |name: &str| {
        let key = format!("{object}.{name}");
        match c.f64(&key)? {
            Some(x) if !(x.is_finite() && x > 0.0) => Err(c.error(&key, "a number above 0", x)),
            x => Ok(x),
        }
    };
    let key = format!("{object}.factor");
    let factor = c.need_f64(&key)?;
    if !(factor.is_finite() && factor >= 1.0) {
        return Err(c.error(&key, "a number of at least 1, by which YaRN slows down", factor));
    }
    c.must_be(&format!("{object}.truncate"), true)?;
    let positions = match positive("original_max_position_embeddings")? {
        Some(positions) => positions,
        None => c.need_f64("max_position_embeddings")?,
    };
    Ok(Yarn {
        factor,
        positions,
        beta_fast: positive("beta_fast")?.unwrap_or(BETA_FAST_DEFAULT),
        beta_slow: positive("beta_slow")?.unwrap_or(BETA_SLOW_DEFAULT),
        magnitude: positive("attention_factor")?.unwrap_or(Yarn::usual_magnitude(factor)),
    })
}
