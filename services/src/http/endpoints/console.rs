//! The web console: static files that are part of the program, under a policy that lets nothing run but them. They hold
//! no secret, so they need no key; everything that they show comes over the API with the key that a person types.

use super::about::here;
use super::hints::no_such_path;
use crate::http::app::App;
use crate::http::wire::routing::{only, read};
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, web};
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::sync::{LazyLock, OnceLock};

/// The page and its files.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config.service(only("/", "GET", read().to(page))).service(only("/console/{file:.+}", "GET", read().to(file)));
}

/// Scripts, styles and pictures of this service alone; no frame, no form, no base, no remote address.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      font-src 'self'; manifest-src 'self'; \
                      form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// A file as it is sent.
struct Asset {
    /// The file's path below `/console/`.
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    /// Made when the file is first asked for in this form: the first page would wait 50 ms for all files.
    gzip: OnceLock<Vec<u8>>,
    /// Strong: another content has another one.
    tag: String,
}

impl Asset {
    fn new(path: &'static str, bytes: &'static [u8]) -> Self {
        let tag = Sha256::digest(bytes)[..8].iter().map(|b| format!("{b:02x}")).collect();
        Self { path, kind: kind(path), bytes, gzip: OnceLock::new(), tag }
    }

    fn gzip(&self) -> &[u8] {
        self.gzip.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(self.bytes).and_then(|()| encoder.finish()).expect("memory takes what is written to it")
        })
    }
}

fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        Some("webmanifest") => "application/manifest+json",
        _ => "text/plain; charset=utf-8",
    }
}

macro_rules! assets {
    ($($path:literal),* $(,)?) => {
        [$(Asset::new($path, include_bytes!(concat!("../../../console/", $path)))),*]
    };
}

/// All files of the page.
static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    assets![
        "index.html",
        "icon.svg",
        "manifest.webmanifest",
        "style.css",
        "app.js",
        "annotations.js",
        "api.js",
        "approval.js",
        "chat.js",
        "choice.js",
        "citations.js",
        "clipboard.js",
        "code.js",
        "colours.js",
        "composer.js",
        "documents.js",
        "dropped.js",
        "exchange.js",
        "feedback.js",
        "focus.js",
        "footnotes.js",
        "formula.js",
        "generation.js",
        "identity.js",
        "inspector.js",
        "later.js",
        "library.js",
        "list.js",
        "learnview.js",
        "live.js",
        "markdown.js",
        "members.js",
        "memory.js",
        "message.js",
        "nesting.js",
        "passage.js",
        "pieces.js",
        "settings.js",
        "slices.js",
        "steplist.js",
        "steps.js",
        "store.js",
        "stores.js",
        "system.js",
        "tools.js",
        "toolview.js",
        "tree.js",
        "turns.js",
        "unset.js",
        "uploads.js",
        "vendor/preact-htm.js",
        "vendor/marked.js",
        "vendor/purify.js",
        "vendor/temml.js",
        "vendor/math.woff2",
        "vendor/LICENSES.txt",
    ]
    .into()
});

/// The page itself, for a browser; a program that asks whether somebody is there gets a word.
async fn page(app: web::Data<App>, request: HttpRequest) -> HttpResponse {
    let accepts = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let browser = accepts.is_some_and(|accepts| accepts.contains("text/html"));
    let page = (app.console && browser).then(|| serve(&request, "index.html")).flatten();
    match page {
        Some(page) => page,
        None => here().await,
    }
}

/// A file of the page; one that is not there is no path of the service.
async fn file(app: web::Data<App>, request: HttpRequest, name: web::Path<String>) -> HttpResponse {
    match serve(&request, &name).filter(|_| app.console) {
        Some(reply) => reply,
        None => no_such_path(request).await,
    }
}

fn serve(request: &HttpRequest, path: &str) -> Option<HttpResponse> {
    let asset = ASSETS.iter().find(|asset| asset.path == path)?;
    let says = |name, what: &str| {
        let value = request.headers().get(name).and_then(|v: &HeaderValue| v.to_str().ok());
        value.is_some_and(|value| {
            value.split(',').any(|part| part.split(';').next().is_some_and(|part| part.trim() == what))
        })
    };
    let tag = format!("\"{}\"", asset.tag);
    let known = says(header::IF_NONE_MATCH, &tag);
    let mut reply = if known { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    reply
        .insert_header((header::ETAG, tag))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .insert_header((header::VARY, "accept-encoding"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header(("cross-origin-opener-policy", "same-origin"));
    if known {
        return Some(reply.finish());
    }
    reply.content_type(asset.kind);
    Some(if says(header::ACCEPT_ENCODING, "gzip") {
        reply.insert_header((header::CONTENT_ENCODING, "gzip")).body(asset.gzip())
    } else {
        reply.body(asset.bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// 200 KB, the first visit of somebody on a slow line.
    const BYTES_MAX: usize = 200 * 1024;
    /// A view that is asked for when an administrator opens it.
    const OF_ADMINISTRATORS: &str = "learnview.js";

    #[test]
    fn all_that_users_may_ask_for_is_at_most_200_kib_over_the_wire() {
        let (others, all): (Vec<&Asset>, Vec<&Asset>) =
            ASSETS.iter().partition(|asset| asset.path.ends_with(OF_ADMINISTRATORS));
        assert_eq!(others.len(), 1, "there is such a view");
        let bytes: usize = all.iter().map(|asset| asset.gzip().len()).sum();
        assert!(bytes <= BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn every_file_of_the_console_is_part_of_the_program() {
        fn below(folder: &Path, found: &mut Vec<String>, root: &Path) {
            for entry in folder.read_dir().unwrap().map(|e| e.unwrap().path()) {
                if entry.is_dir() {
                    below(&entry, found, root);
                } else {
                    found.push(entry.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/"));
                }
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
        let mut found = Vec::new();
        below(&root, &mut found, &root);
        found.retain(|path| !path.ends_with(".md"));
        found.sort_unstable();
        let mut served: Vec<_> = ASSETS.iter().map(|asset| asset.path.to_owned()).collect();
        served.sort_unstable();
        assert_eq!(served, found);
    }

    #[test]
    fn vendored_files_are_those_that_were_taken() {
        let list = include_str!("../../../console/vendor/README.md");
        let vendored = |path: &str| path.starts_with("vendor/") && !path.ends_with(".txt");
        for asset in ASSETS.iter().filter(|asset| vendored(asset.path)) {
            let hash: String = Sha256::digest(asset.bytes).iter().map(|b| format!("{b:02x}")).collect();
            let name = asset.path.trim_start_matches("vendor/");
            assert!(list.lines().any(|line| line.contains(name) && line.contains(&hash)), "{name} has sha256 {hash}");
        }
    }

    #[test]
    fn no_file_of_ours_names_a_remote_address() {
        for asset in ASSETS.iter().filter(|asset| !asset.path.starts_with("vendor/")) {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            let address = text
                .match_indices("http")
                .map(|(at, _)| &text[at..text.len().min(at + 40)])
                .find(|a| a.contains("://"));
            // An XML namespace is a name and nothing that is fetched.
            assert!(address.is_none_or(|a| a.starts_with("http://www.w3.org/")), "{}: {address:?}", asset.path);
        }
    }
}
