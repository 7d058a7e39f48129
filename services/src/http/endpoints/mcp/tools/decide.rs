//! `decide`: how probable each of some given answers to questions about an input is.

use super::ToolOutput;
use crate::http::app::App;
use crate::http::body::fields::Fields;
use crate::http::endpoints::decisions::request::{input, questions};
use crate::http::endpoints::decisions::routes::shown;
use crate::http::intake::caller::{cache_scope, turn_caller};
use crate::http::wire::error::ApiError;
use crate::turn::decisions::{DecisionRequest, decide};
use crate::turn::options::CacheRequest;
use actix_web::{HttpRequest, web};
use serde_json::{Value, json};

/// See the file's head.
pub(super) async fn decide_questions(
    app: &web::Data<App>,
    request: &HttpRequest,
    mut arguments: Fields,
) -> Result<ToolOutput, ApiError> {
    let (input, questions) = (input(&mut arguments)?, questions(&mut arguments)?);
    arguments.finish()?;
    let cache = CacheRequest { on: true, salt: None };
    let asked = DecisionRequest {
        input,
        questions: questions.clone(),
        orders: None,
        raw: false,
        cache: cache_scope(request, &cache),
    };
    let decided = decide(&app.turns, &turn_caller(app, request)?, asked).await?;
    let answers: Vec<Value> = questions.iter().zip(&decided.answers).map(|(q, a)| shown(q, a)).collect();
    let structured = json!({"answers": answers});
    Ok(ToolOutput { text: structured.to_string(), structured })
}
