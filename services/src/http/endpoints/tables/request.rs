//! What the endpoints of tables take.

use crate::http::body::engram::strings;
use crate::http::body::fields::{Fields, missing};
use crate::http::wire::error::ApiError;
use crate::limits;
use chimere_engine::engram::Orders;

/// Texts for a table.
#[derive(Clone, Debug, PartialEq)]
pub struct TeachRequest {
    /// At least one; none is empty.
    pub texts: Vec<String>,
    /// Context lengths of the table.
    pub orders: Orders,
}

impl TeachRequest {
    /// Texts to be put.
    pub fn parse_put(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let asked = Self::take(&mut fields)?;
        fields.refuse("quality", "belongs to what is learned, not to what is put")?;
        fields.finish()?;
        Ok(asked)
    }

    /// Texts to be learned, and how good they are: 0 to 1.
    pub fn parse_learn(body: &[u8]) -> Result<(Self, f64), ApiError> {
        let mut fields = Fields::of_body(body)?;
        let asked = Self::take(&mut fields)?;
        let quality = fields.number("quality", 0.0..=1.0)?.ok_or_else(|| missing("quality", "a number from 0 to 1"))?;
        fields.finish()?;
        Ok((asked, quality))
    }

    fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        let texts = strings(fields, "texts", limits::ENGRAM_TEXTS_MAX)?.filter(|texts| !texts.is_empty());
        let texts = texts.ok_or_else(|| missing("texts", "an array of texts, not empty"))?;
        let orders = fields.string("orders")?.unwrap_or_else(|| "2-8".to_owned());
        let orders = orders.parse().map_err(|e| ApiError::invalid("orders", format!("`orders`: {e}")))?;
        Ok(Self { texts, orders })
    }
}
