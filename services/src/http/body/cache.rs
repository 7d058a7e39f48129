//! What a request says about the prefix cache.

use super::fields::Fields;
use crate::http::wire::error::ApiError;
use crate::limits::CACHE_SALT_BYTES_MAX;
use crate::turn::options::CacheRequest;

impl CacheRequest {
    pub(in crate::http) fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        // The second is llama.cpp's name.
        let (own, other) = (fields.bool("cache")?, fields.bool("cache_prompt")?);
        let salt = fields.string("cache_salt")?;
        if let Some(got) = salt.as_ref().map(String::len).filter(|len| !(1..=CACHE_SALT_BYTES_MAX).contains(len)) {
            let message = format!("`cache_salt` must have 1 to {CACHE_SALT_BYTES_MAX} bytes, got {got}");
            return Err(ApiError::invalid("cache_salt", message).with_code("out_of_range"));
        }
        Ok(Self { on: own != Some(false) && other != Some(false), salt })
    }
}
