//! Stores of files that answers come from, and the footnotes below an answer.

use chimere_tools::CliError;
use chimere_tools::client::ServiceClient;
use serde_json::{Value, json};

/// Stores that are asked for at once, OpenAI's most.
const PAGE: usize = 100;
/// Characters of a quote in a footnote.
const QUOTE_CHARACTERS: usize = 200;

/// The tool that searches the stores of these names or ids before each answer; none without a name.
pub(super) async fn file_search(server: &ServiceClient, names: &[String]) -> Result<Option<Value>, CliError> {
    if names.is_empty() {
        return Ok(None);
    }
    let stores = all(server).await?;
    let ids = names.iter().map(|name| id_of(&stores, name)).collect::<Result<Vec<_>, _>>()?;
    Ok(Some(json!({ "type": "file_search", "vector_store_ids": ids })))
}

/// The stores of the caller's account, page by page.
async fn all(server: &ServiceClient) -> Result<Vec<Value>, CliError> {
    let (mut stores, mut after): (Vec<Value>, _) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/vector_stores?limit={PAGE}{after}");
        let page = server.get(&path).await.map_err(|e| CliError::Failed(format!("{}: {e}", server.base())))?;
        stores.extend(page["data"].as_array().into_iter().flatten().cloned());
        match page["last_id"].as_str().filter(|_| page["has_more"] == true) {
            Some(last) => after = format!("&after={last}"),
            None => return Ok(stores),
        }
    }
}

/// The id of the one store that has this name or id.
fn id_of(stores: &[Value], name: &str) -> Result<String, CliError> {
    let found: Vec<&Value> = stores.iter().filter(|store| store["id"] == name || store["name"] == name).collect();
    match found[..] {
        [one] => Ok(one["id"].as_str().unwrap_or_default().to_owned()),
        [] => {
            let names: Vec<&str> = stores.iter().filter_map(|store| store["name"].as_str()).collect();
            let there =
                if names.is_empty() { "there are none".to_owned() } else { format!("there are {}", names.join(", ")) };
            Err(CliError::Failed(format!("there is no vector store {name:?} here; {there}")))
        }
        _ => Err(CliError::Failed(format!("{} vector stores are called {name:?}: name one by its id", found.len()))),
    }
}

/// The citations of an answer.
#[derive(Debug, Default)]
pub(super) struct Footnotes {
    lines: Vec<String>,
}

impl Footnotes {
    /// Takes the citations of a piece of the answer, of which `said` is the text so far. A source that is cited again
    /// for the same words has its line already.
    pub(super) fn add(&mut self, annotations: &Value, said: &str) {
        for note in annotations.as_array().into_iter().flatten() {
            let line = line(&note["file_citation"], said);
            self.lines.extend(line.filter(|line| !self.lines.contains(line)));
        }
    }

    /// A line for each citation.
    pub(super) fn lines(&self) -> &[String] {
        &self.lines
    }
}

/// The mark, the file, the page and the words of a citation of a file.
fn line(citation: &Value, said: &str) -> Option<String> {
    let (start, end) = (citation["start_index"].as_u64()? as usize, citation["end_index"].as_u64()? as usize);
    let mark: String = said.chars().skip(start).take(end.saturating_sub(start)).collect();
    let page = citation["page"].as_u64().map_or_else(String::new, |page| format!(", page {page}"));
    let quote: Vec<&str> = citation["quote"].as_str()?.split_whitespace().collect();
    let quote = quote.join(" ");
    let more = if quote.chars().count() > QUOTE_CHARACTERS { "..." } else { "" };
    let shown: String = quote.chars().take(QUOTE_CHARACTERS).collect();
    Some(format!("{mark} {}{page}: \"{shown}{more}\"", citation["filename"].as_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_by_its_name_or_its_id() {
        let stores = [
            json!({"id": "vs_1", "name": "manuals"}),
            json!({"id": "vs_2", "name": "notes"}),
            json!({"id": "vs_3", "name": "notes"}),
        ];
        assert_eq!(id_of(&stores, "manuals").unwrap(), "vs_1");
        assert_eq!(id_of(&stores, "vs_3").unwrap(), "vs_3");
        assert!(id_of(&stores, "notes").unwrap_err().to_string().contains("2 vector stores are called \"notes\""));
        assert!(
            id_of(&stores, "x")
                .unwrap_err()
                .to_string()
                .contains("no vector store \"x\" here; there are manuals, notes")
        );
        assert!(id_of(&[], "x").unwrap_err().to_string().contains("there are none"));
    }

    #[test]
    fn each_citation_has_one_line_with_its_mark_file_page_and_words() {
        let note = |start: usize, quote: &str, page: Value| {
            json!([{"type": "file_citation", "file_citation": {"filename": "ports.pdf", "page": page, "quote": quote,
                "start_index": start, "end_index": start + 3}}])
        };
        let (mut notes, said) = (Footnotes::default(), "Größe [1] und [2].");
        notes.add(&note(6, "It was\n built.", json!(3)), said);
        notes.add(&note(6, "It was\n built.", json!(3)), said);
        notes.add(&note(14, &"é".repeat(201), Value::Null), said);
        notes.add(&Value::Null, said);
        let long = format!("[2] ports.pdf: \"{}...\"", "é".repeat(200));
        assert_eq!(notes.lines(), ["[1] ports.pdf, page 3: \"It was built.\"".to_owned(), long]);
    }
}
