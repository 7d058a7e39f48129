//! A page of a list, as OpenAI's clients ask for it and go through it.

use crate::http::intake::page::limit_and_order;
use crate::http::wire::error::ApiError;
use serde_json::{Value, json};
use std::collections::HashMap;

/// What stands behind the question mark of a request.
pub(super) type PageQuery = actix_web::web::Query<HashMap<String, String>>;

/// Which part of a list is wanted.
#[derive(Debug)]
pub(super) struct ListPage {
    limit: usize,
    newest_first: bool,
    after: Option<String>,
    before: Option<String>,
}

impl ListPage {
    /// Of a request that may have these other names; `limits` are the entries where it does not say, and at most.
    pub(super) fn of(query: &PageQuery, others: &[&str], limits: (usize, usize)) -> Result<Self, ApiError> {
        for name in query.keys().map(String::as_str) {
            if !(["limit", "order", "after", "before"].contains(&name) || others.contains(&name)) {
                let shown: String = name.chars().take(64).collect();
                let message = format!("there is no parameter {shown:?} here");
                return Err(ApiError::invalid(shown, message).with_code("unknown_parameter"));
            }
        }
        let (limit, newest_first) = limit_and_order(query, limits)?;
        Ok(Self { limit, newest_first, after: query.get("after").cloned(), before: query.get("before").cloned() })
    }

    /// The page of a list whose entries come oldest first, each with its id.
    pub(super) fn list<T>(
        &self,
        mut entries: Vec<T>,
        id: impl Fn(&T) -> &str,
        object: impl Fn(&T) -> Value,
    ) -> Result<Value, ApiError> {
        if self.newest_first {
            entries.reverse();
        }
        let place = |name: &str, cursor: &String| {
            let at = entries.iter().position(|entry| id(entry) == cursor);
            at.ok_or_else(|| {
                let shown: String = cursor.chars().take(64).collect();
                ApiError::invalid(name, format!("`{name}` is {shown:?}, and the list has no such entry"))
            })
        };
        let begin = self.after.as_ref().map_or(Ok(0), |cursor| place("after", cursor).map(|at| at + 1))?;
        let end = self.before.as_ref().map_or(Ok(entries.len()), |cursor| place("before", cursor))?.max(begin);
        // What comes before an entry ends there, what comes after one begins there.
        let from_end = self.before.is_some() && self.after.is_none();
        let range =
            if from_end { end.saturating_sub(self.limit).max(begin)..end } else { begin..end.min(begin + self.limit) };
        let more = if from_end { range.start > begin } else { range.end < end };
        let page = &entries[range];
        let (first, last) = (page.first().map(&id), page.last().map(&id));
        let data: Vec<Value> = page.iter().map(object).collect();
        Ok(json!({"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": more}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(query: &str) -> Result<(Vec<String>, bool), ApiError> {
        let query = PageQuery::from_query(query).unwrap();
        let entries = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        let page = ListPage::of(&query, &["purpose"], (2, 4))?.list(entries, |id| id, |id| json!(id))?;
        let ids = page["data"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect();
        Ok((ids, page["has_more"].as_bool().unwrap()))
    }

    #[test]
    fn pages_follow_each_other_in_both_directions_and_end() {
        for (query, ids, more) in [
            ("", "e d", true),
            ("purpose=x&order=asc", "a b", true),
            ("order=asc&after=b", "c d", true),
            ("order=asc&after=d", "e", false),
            ("after=d&limit=4", "c b a", false),
            ("order=asc&before=d", "b c", true),
            ("order=asc&before=c", "a b", false),
            ("order=asc&after=a&before=e&limit=4", "b c d", false),
        ] {
            let (got, has_more) = listed(query).unwrap();
            assert_eq!((got.join(" ").as_str(), has_more), (ids, more), "{query}");
        }
        for (query, param) in
            [("limit=5", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=z", "after"), ("a=b", "a")]
        {
            assert_eq!(listed(query).unwrap_err().param.as_deref(), Some(param));
        }
    }
}
