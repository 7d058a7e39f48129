//! The terms that a request runs under, from its key and its headers.

use super::auth::Caller;
use crate::http::wire::error::ApiError;
use crate::limits::DEADLINE_MS_MAX;
use actix_web::HttpRequest;
use chimere_engine::ids::Micros;
use chimere_engine::scheduler::Terms;

/// Milliseconds, from the request's arrival on, after which its answer is of no use.
const DEADLINE: &str = "x-chimere-deadline-ms";

/// The account that a request runs on, its limits, and when it has to be done.
pub(in crate::http) fn terms_of(request: &HttpRequest) -> Result<Terms, ApiError> {
    let caller = Caller::of(request);
    let deadline = deadline_ms(request)?.map(|ms| Micros(caller.arrived.0 + 1_000 * ms));
    Ok(Terms { key: caller.key, limits: caller.limits, deadline, ..Terms::default() })
}

fn deadline_ms(request: &HttpRequest) -> Result<Option<u64>, ApiError> {
    let Some(value) = request.headers().get(DEADLINE) else { return Ok(None) };
    let ms =
        value.to_str().ok().and_then(|text| text.trim().parse().ok()).filter(|ms| (1..=DEADLINE_MS_MAX).contains(ms));
    ms.map(Some).ok_or_else(|| {
        let got = String::from_utf8_lossy(value.as_bytes()).chars().take(40).collect::<String>();
        ApiError::invalid(
            DEADLINE,
            format!("`{DEADLINE}` must be a whole number from 1 to {DEADLINE_MS_MAX}, got {got:?}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    #[test]
    fn a_deadline_is_a_number_of_milliseconds_within_bounds() {
        let read = |text: &str| deadline_ms(&TestRequest::default().insert_header((DEADLINE, text)).to_http_request());
        assert_eq!(read("1500"), Ok(Some(1500)));
        for bad in ["0", "-1", "1.5", "soon", "86400001", ""] {
            let error = read(bad).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(DEADLINE));
            assert!(error.message.contains("from 1 to 86400000"), "{}", error.message);
        }
        assert_eq!(deadline_ms(&TestRequest::default().to_http_request()), Ok(None));
    }
}
