//! What stood behind a token, as JSON: documented in `docs/using/clients.md`.

use crate::actors::request::token_report::{DocumentName, TokenEngram, TokenReport};
use crate::http::wire::json::object;
use chimere_engine::constraint::Source;
use chimere_engine::engram::Origin;
use serde_json::{Value, json};

/// The `report` of a token.
pub(super) fn report_json(report: &TokenReport) -> Value {
    let TokenReport { certainty, row, engram, draft, thought_left } = report;
    let rules = || row.ruled.iter().map(Source::name).collect::<Vec<_>>();
    object([
        ("entropy", certainty.map(|c| json!(c.entropy))),
        ("top_prob", certainty.map(|c| json!(c.top_prob))),
        ("rules", (!row.ruled.is_empty()).then(|| json!(rules()))),
        ("allowed", row.allowed.map(|n| json!(n))),
        ("engram", engram.as_ref().map(engram_json)),
        ("draft", draft.map(|d| json!({"source": d.kind.name(), "accepted": d.accepted}))),
        ("thought_left", thought_left.map(|n| json!(n))),
        ("experts", row.experts.as_ref().map(|layers| json!(layers))),
    ])
}

fn engram_json(report: &TokenEngram) -> Value {
    let mut json = json!({"changed": report.changed});
    if let Some((origin, name)) = &report.source {
        origin_into(&mut json, *origin, Some(name));
    }
    json
}

/// Adds where a token comes from: a document, by its id or its number from 0, and the place in it; or the tables.
pub(super) fn origin_into(json: &mut Value, origin: Origin, name: Option<&DocumentName>) {
    match origin {
        Origin::Document(place, _) => {
            let (id, title) = name.map_or((None, None), |(id, title)| (id.as_ref(), title.as_ref()));
            json["document"] = id.map_or_else(|| json!(place.document), |id| json!(id));
            json["at_token"] = json!(place.token);
            if let Some(title) = title {
                json["title"] = json!(title);
            }
        }
        Origin::Tables(context) => json["context_tokens"] = json!(context),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::request::token_report::DraftedToken;
    use chimere_engine::constraint::Sources;
    use chimere_engine::drafts::DraftKind;
    use chimere_engine::engram::Place;
    use chimere_engine::step::{Certainty, RowReport};

    #[test]
    fn a_report_has_what_there_is_to_tell_and_nothing_else() {
        assert_eq!(report_json(&TokenReport::default()), json!({}));
        let place = Place { document: 1, token: 40 };
        let report = TokenReport {
            certainty: Some(Certainty { entropy: 0.5, top_prob: 0.75 }),
            row: RowReport {
                ruled: Sources::only(Source::Grammar),
                allowed: Some(1),
                experts: Some(vec![vec![3, 1], vec![0, 2]]),
            },
            engram: Some(TokenEngram {
                changed: Some(true),
                source: Some((Origin::Document(place, None), (None, Some("Notes".into())))),
            }),
            draft: Some(DraftedToken { kind: DraftKind::Ngram, accepted: true }),
            thought_left: Some(7),
        };
        let want = json!({
            "entropy": 0.5, "top_prob": 0.75, "rules": ["grammar"], "allowed": 1, "thought_left": 7,
            "engram": {"changed": true, "document": 1, "at_token": 40, "title": "Notes"},
            "draft": {"source": "ngram", "accepted": true}, "experts": [[3, 1], [0, 2]],
        });
        assert_eq!(report_json(&report), want);
        let tables = TokenEngram { changed: None, source: Some((Origin::Tables(3), (None, None))) };
        assert_eq!(engram_json(&tables), json!({"changed": null, "context_tokens": 3}));
    }
}
