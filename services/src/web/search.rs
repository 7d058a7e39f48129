//! Searches and pages: queries go to SearXNG, its lists become one, the best pages are read, cut and ranked by words.

use super::hosts::WebHosts;
use super::page::format_of;
use super::results::{WebError, WebFinding, WebHit, WebHits, WebPage, fused};
use crate::audit::{Audit, AuditRecord};
use crate::citations::{NumberedSource, SourcePlace};
use crate::documents::parse::DocumentFormat;
use crate::documents::{PageReader, ReadPage};
use crate::holder::Holder;
use crate::limits::{
    OUTBOUND_SECONDS, WEB_JOBS_MAX, WEB_PAGES_MAX, WEB_QUERY_BYTES_MAX, WEB_RESULTS_MAX, WEB_SEARCH_BYTES_MAX,
    WEB_THREADS,
};
use crate::outbound::{
    Destination, OperatorsServer, Outbound, OutboundBounds, OutboundError, OutboundRequest, PublicReach,
};
use crate::text::TextPool;
use bytes::Bytes;
use chimere_engine::ids::KeyId;
use futures_util::future::join_all;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::Arc;
use std::time::Duration;

/// What the operator allows.
#[derive(Clone, Debug, Default)]
pub struct WebSettings {
    /// The server that is asked for pages; none where there are no searches.
    pub searxng: Option<OperatorsServer>,
    /// Pages that may be read; none where none may.
    pub reach: Option<Arc<PublicReach>>,
    /// Bytes of a page that are read.
    pub bytes: usize,
}

impl WebSettings {
    /// What requests may ask for.
    pub fn offer(&self) -> WebOffer {
        WebOffer { search: self.searxng.is_some(), fetch: self.reach.is_some() }
    }
}

/// What requests may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WebOffer {
    /// Searches of the web.
    pub search: bool,
    /// Reading the pages that were found, or that a user names.
    pub fetch: bool,
}

/// On whose behalf the web is read.
#[derive(Clone, Debug)]
pub struct WebVisitor {
    /// The one whose share of the threads it takes.
    pub holder: Holder,
    /// The account, for the log of what was done.
    pub account: KeyId,
    /// The request's name there.
    pub request: Arc<str>,
}

/// The way to the web.
pub struct Web {
    settings: WebSettings,
    out: Outbound,
    reader: Arc<PageReader>,
    /// None where nothing is offered.
    pool: Option<TextPool>,
    audit: Audit,
}

/// A page that came, with its words as they came.
struct FetchedPage {
    url: String,
    format: DocumentFormat,
    bytes: Bytes,
}

impl Web {
    /// The web as far as the operator allows it. Threads that read pages are there only where some are.
    pub fn new(settings: WebSettings, reader: PageReader, audit: Audit) -> std::io::Result<Self> {
        let offered = settings.offer() != WebOffer::default();
        let pool = offered.then(|| TextPool::in_the_background("web", WEB_THREADS, WEB_JOBS_MAX)).transpose()?;
        Ok(Self { settings, out: Outbound::default(), reader: Arc::new(reader), pool, audit })
    }

    /// What requests may ask for.
    pub fn offer(&self) -> WebOffer {
        self.settings.offer()
    }

    /// Searches for all queries together: passages of the pages that may be read, and of the others the words that
    /// SearXNG shows of them. Pages of other hosts than `hosts` wants do not count.
    pub async fn search(
        &self,
        visitor: &WebVisitor,
        queries: &[String],
        hosts: &WebHosts,
        most: usize,
    ) -> Result<WebFinding, WebError> {
        let lists = join_all(queries.iter().map(|query| self.asked(query))).await;
        // One list is enough; without any the first error says why.
        let (found, mut failed): (Vec<_>, Vec<_>) = lists.into_iter().partition(Result::is_ok);
        if let Some(Err(why)) = if found.is_empty() { failed.pop() } else { None } {
            return Err(why);
        }
        let mut hits = fused(found.into_iter().flatten().collect());
        hits.retain(|hit| hosts.admit(&hit.url));
        hits.truncate(WEB_RESULTS_MAX);
        let read = hits.iter().take(WEB_PAGES_MAX).map(|hit| self.page(visitor, &hit.url));
        let read = join_all(read).await;
        let mut read = read.into_iter();
        let page = |hit: &WebHit| match read.next() {
            Some(Ok(page)) if hit.title.is_empty() => page,
            Some(Ok(page)) => page.titled(&hit.title),
            // What SearXNG shows of it stands for a page that is not read.
            _ => ReadPage::of_text(&hit.url, &hit.title, &hit.content),
        };
        let pages: Vec<ReadPage> = hits.iter().map(page).collect();
        let found = pages.iter().map(found_page).collect();
        Ok(WebFinding { passages: self.ranked(visitor, pages, queries.join(" "), most).await?, pages: found })
    }

    /// Reads one page: its passages that fit a query, or its first ones where there is none.
    pub async fn open(
        &self,
        visitor: &WebVisitor,
        url: &str,
        query: &str,
        most: usize,
    ) -> Result<WebFinding, WebError> {
        let page = self.page(visitor, url).await?;
        let found = vec![found_page(&page)];
        Ok(WebFinding { passages: self.ranked(visitor, vec![page], query.to_owned(), most).await?, pages: found })
    }

    /// The list of one query.
    async fn asked(&self, query: &str) -> Result<Vec<WebHit>, WebError> {
        let Some(server) = &self.settings.searxng else { return Ok(Vec::new()) };
        let query = &query[..query.floor_char_boundary(WEB_QUERY_BYTES_MAX)];
        let path = format!("/search?format=json&q={}", utf8_percent_encode(query, NON_ALPHANUMERIC));
        let destination = Destination::operators(server, &path).map_err(OutboundError::from)?;
        let request = OutboundRequest { headers: headers("application/json"), ..OutboundRequest::default() };
        let reply = self.out.open(destination, &request, bounds(WEB_SEARCH_BYTES_MAX)).await?;
        match reply.status() {
            200 => {}
            403 => return Err(WebError::NoJson),
            other => return Err(WebError::Unreadable(format!("SearXNG answers with the status {other}"))),
        }
        let hits: WebHits = serde_json::from_slice(&reply.whole().await?)
            .map_err(|e| WebError::Unreadable(format!("SearXNG's answer is not the JSON that was asked for: {e}")))?;
        Ok(hits.results)
    }

    /// A page as text. What is done is written down, with its host and never its path.
    async fn page(&self, visitor: &WebVisitor, url: &str) -> Result<ReadPage, WebError> {
        let Some(reach) = &self.settings.reach else {
            return Err(WebError::Unreadable("no pages are read here (web.fetch)".into()));
        };
        let destination = Destination::public(url, reach).map_err(OutboundError::from);
        let host = destination.as_ref().map_or_else(|_| "refused".to_owned(), Destination::host);
        let visit = self.audit.begin(AuditRecord {
            account: Some(visitor.account),
            request: Some(&visitor.request),
            ..AuditRecord::own("web.fetch", Some(&host), "")
        });
        let fetched = match destination {
            Ok(destination) => self.fetched(destination).await,
            Err(refused) => Err(refused.into()),
        };
        visit.ends(match &fetched {
            Ok(_) => "read",
            Err(WebError::Outbound(OutboundError::Refused(refused))) => refused.why(),
            Err(_) => "failed",
        });
        let FetchedPage { url, format, bytes } = fetched?;
        let reader = self.reader.clone();
        let read = self.run(visitor, move || reader.read(&url, format, &bytes)).await?;
        read.map_err(WebError::Unreadable)
    }

    async fn fetched(&self, destination: Destination) -> Result<FetchedPage, WebError> {
        let request = OutboundRequest {
            headers: headers("text/html, text/plain;q=0.9, text/*;q=0.5"),
            ..OutboundRequest::default()
        };
        let reply = self.out.open(destination, &request, bounds(self.settings.bytes)).await?;
        if reply.status() != 200 {
            return Err(WebError::Unreadable(format!("the page answers with the status {}", reply.status())));
        }
        let (url, format) = (reply.destination().url(), format_of(reply.header("content-type"))?);
        Ok(FetchedPage { url, format, bytes: reply.whole().await? })
    }

    async fn ranked(
        &self,
        visitor: &WebVisitor,
        pages: Vec<ReadPage>,
        query: String,
        most: usize,
    ) -> Result<Vec<NumberedSource>, WebError> {
        let reader = self.reader.clone();
        self.run(visitor, move || {
            let found = reader.passages(&pages, &query, most);
            found.into_iter().map(|passage| source(&pages[passage.page], passage.text)).collect()
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        visitor: &WebVisitor,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WebError> {
        let Some(pool) = &self.pool else { return Err(WebError::Busy) };
        pool.run(visitor.holder, job).await.map_err(|_| WebError::Busy)
    }
}

fn bounds(bytes: usize) -> OutboundBounds {
    OutboundBounds { time: Duration::from_secs(OUTBOUND_SECONDS), bytes }
}

fn headers(accept: &str) -> Vec<(String, String)> {
    let named = [("accept", accept), ("accept-encoding", "gzip"), ("user-agent", "chimere")];
    named.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// A page under its title, or under its address where it has none.
fn found_page(page: &ReadPage) -> WebPage {
    let title = if page.title.is_empty() { &page.url } else { &page.title };
    WebPage { url: page.url.clone(), title: title.clone() }
}

fn source(page: &ReadPage, text: String) -> NumberedSource {
    let WebPage { url, title } = found_page(page);
    let shown = format!("{title} ({url})");
    NumberedSource { text: text.into(), title: Some(shown), place: SourcePlace::Web { url, title } }
}
