//! Items that a client only names, because the service has them: they come into the place of what refers to them.

use super::request::ResponsesBody;
use crate::http::wire::error::ApiError;
use crate::limits;
use actix_web::http::StatusCode;
use serde_json::Value as Json;
use std::collections::BTreeSet;

const REFERENCE: &str = "item_reference";

impl ResponsesBody {
    /// The ids of items that the input refers to.
    pub fn referred(&self) -> BTreeSet<String> {
        let items = self.fields.peek("input").and_then(Json::as_array);
        items.into_iter().flatten().filter_map(reference).map(str::to_owned).collect()
    }

    /// Puts items in the place of what refers to them; `item` gives one by its id. An error names the first that is not
    /// there.
    pub fn resolved(mut self, item: impl Fn(&str) -> Option<Json>) -> Result<Self, ApiError> {
        let Some(Json::Array(items)) = self.fields.peek_mut("input") else { return Ok(self) };
        let mut bytes = 0;
        for (i, place) in items.iter_mut().enumerate() {
            let Some(id) = reference(place) else { continue };
            let found = item(id).ok_or_else(|| no_such(i, id))?;
            bytes += found.to_string().len();
            // One large item could be named many times.
            refers_to_at_most("bytes", bytes, limits::RESPONSE_REFERRED_BYTES_MAX)?;
            *place = found;
        }
        Ok(self)
    }
}

/// Bounds what an input refers to.
pub(super) fn refers_to_at_most(what: &str, got: usize, max: usize) -> Result<(), ApiError> {
    if got <= max {
        return Ok(());
    }
    let message = format!("`input` refers to {got} {what}, at most {max} are taken; use `previous_response_id`");
    Err(ApiError::invalid("input", message).with_code("too_many_entries"))
}

fn reference(item: &Json) -> Option<&str> {
    if item["type"] == REFERENCE { item["id"].as_str() } else { None }
}

fn no_such(at: usize, id: &str) -> ApiError {
    let shown: String = id.chars().take(64).collect();
    let message = format!("there is no item {shown:?} here: its response was not kept, or its time is over");
    let error = ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message);
    ApiError { param: Some(format!("input[{at}].id").into()), ..error }.with_code("item_not_found")
}
