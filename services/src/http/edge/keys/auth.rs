//! API keys from a file, the check that a request has one, and what a key entitles to. Keys are kept and compared as
//! hashes, in constant time; the file has hashes too, so whoever reads it cannot use it.

use super::cache;
use crate::clock::{days_since_1970, unix_seconds};
use crate::engram::Asker;
use crate::holder::{HASHED, ToolRights, account, digest, key_hash};
use crate::http::edge::gateway;
use crate::http::wire::error::ApiError;
use crate::learning::Consent;
use crate::limits::{CACHE_GROUP_CHARS_MAX, KEY_CHARS_MIN, KEY_FILE_BYTES_MAX};
use actix_web::http::StatusCode;
use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use actix_web::{HttpMessage, HttpRequest};
use chimere_engine::files::read_regular_text;
use chimere_engine::ids::{CacheScope, KeyId, Micros};
use chimere_engine::scheduler::{KeyLimits, WEIGHT_MAX};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::Path;
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// Where Anthropic's clients put a key.
const X_API_KEY: &str = "x-api-key";

/// The keys that are accepted.
#[derive(Clone, Debug)]
pub enum AcceptedKeys {
    /// No key is asked for, and nobody but this machine's users can come: whoever comes may do everything.
    Open,
    /// No key is asked for, and other machines can come: nobody is an administrator.
    OpenToAll,
    /// One of these keys is asked for.
    Hashed(Vec<Key>),
}

/// A key of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    hash: [u8; 32],
    admin: bool,
    limits: KeyLimits,
    /// Shares what its prompts leave behind with all keys of this name.
    cache_group: Option<Box<str>>,
    tools: ToolRights,
    learn: Consent,
    /// Seconds since 1970 from which on it is not known any more.
    ends: Option<u64>,
}

/// Who sent a request, as the check found.
#[derive(Clone, Debug, PartialEq)]
pub struct Caller {
    /// On whose account it runs.
    pub key: KeyId,
    /// May change what others use.
    pub admin: bool,
    /// What the key is entitled to.
    pub limits: KeyLimits,
    /// Among whose prompts its own are looked up.
    pub cache: CacheScope,
    /// It is that of a group, which a gateway's users share too.
    pub cache_shared: bool,
    /// What it may have the service run.
    pub tools: ToolRights,
    /// What of its answers may be kept to learn from.
    pub learn: Consent,
    /// When the request's head was there.
    pub arrived: Micros,
}

impl Caller {
    /// As the middleware left it; nobody in particular where there is none.
    pub fn of(request: &HttpRequest) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or_else(Self::nobody)
    }

    fn nobody() -> Self {
        Self {
            key: KeyId::default(),
            admin: false,
            limits: KeyLimits::default(),
            cache: cache::of_nobody(),
            cache_shared: false,
            tools: ToolRights::All,
            learn: Consent::Off,
            arrived: Micros(0),
        }
    }

    /// On the account of whoever a trusted gateway says that it sends this for. Each of them has what the gateway's key
    /// entitles to.
    pub fn on_behalf(mut self, request: &HttpRequest) -> Self {
        if let Some(id) = gateway::account(request.headers()) {
            self.key = account(&[&self.key.0.to_le_bytes(), id.as_bytes()]);
            if !self.cache_shared {
                self.cache = cache::of_user(self.cache, id.as_bytes());
            }
        }
        self
    }
}

/// Who asks for tables with a request.
pub fn asker(request: &HttpRequest) -> Asker {
    viewer(request).asker
}

/// Of a caller all that says what of the service it sees.
#[derive(Clone, Debug)]
pub struct Viewer {
    /// The one who asks for tables and adapters.
    pub asker: Asker,
    /// What the caller may have the service run.
    pub tools: ToolRights,
}

/// Who looks at the service with a request.
pub fn viewer(request: &HttpRequest) -> Viewer {
    let Caller { admin, tools, .. } = Caller::of(request);
    Viewer { asker: Asker { key: AcceptedKeys::hash_of(request.headers()), admin }, tools }
}

/// 403 unless the request's key is an administrator's. Without a key file that is everybody, as long as only this
/// machine can come.
pub fn require_admin(request: &HttpRequest) -> Result<(), ApiError> {
    if Caller::of(request).admin {
        return Ok(());
    }
    let message = "this takes an API key with scope=admin; without a key file it can be done only while the service listens on loopback";
    Err(ApiError::new(StatusCode::FORBIDDEN, "permission_error", message)
        .with_code("admin_required")
        .rejected_as("admin"))
}

/// The line of the file for a key, without options.
pub fn hashed(key: &str) -> String {
    digest(key)
}

impl AcceptedKeys {
    /// From a file that its owner alone can read: one key a line; blank lines and those that begin with `#` are left
    /// out. A file without any key is an error, because it would lock everybody out or, worse, be taken for none.
    pub fn read(path: &Path) -> Result<Self, String> {
        Self::read_with(path, KeyLimits::default())
    }

    /// Reads such a file; `limits` hold for keys whose line says nothing else.
    pub fn read_with(path: &Path, limits: KeyLimits) -> Result<Self, String> {
        let read = || {
            check_mode(path)?;
            read_regular_text(path, KEY_FILE_BYTES_MAX).map_err(|e| e.to_string())
        };
        let text = read().map_err(|e| format!("cannot read key file {}: {e}", path.display()))?;
        Self::parse(&text, limits).map_err(|e| format!("key file {}: {e}", path.display()))
    }

    /// One key, a user's.
    pub fn one(key: &str) -> Self {
        Self::Hashed(vec![Key {
            hash: Sha256::digest(key).into(),
            admin: false,
            limits: KeyLimits::default(),
            cache_group: None,
            tools: ToolRights::All,
            learn: Consent::Off,
            ends: None,
        }])
    }

    /// These keys on a service that other machines can reach: without keys nobody is an administrator there.
    pub fn beyond_loopback(self) -> Self {
        if matches!(self, Self::Open) { Self::OpenToAll } else { self }
    }

    /// From the text of such a file.
    pub fn parse(text: &str, limits: KeyLimits) -> Result<Self, String> {
        let lines =
            || (1..).zip(text.lines().map(str::trim)).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let mut keys: Vec<Key> = Vec::new();
        let mut places: HashMap<[u8; 32], usize> = HashMap::new();
        for (n, line) in lines() {
            let key = key(line, limits).map_err(|e| format!("line {n} {e}"))?;
            // Which of two lines holds would depend on their order, and be found out by whoever has more than he
            // should.
            if let Some(before) = places.insert(key.hash, n) {
                return Err(format!("line {n} has the key of line {before} again"));
            }
            keys.push(key);
        }
        let plain = lines().filter(|(_, line)| !line.starts_with(HASHED)).count();
        if plain > 0 {
            tracing::warn!(
                keys = plain,
                "the key file has keys that can be read; `chimere key hash` gives the line to write instead"
            );
        }
        if keys.is_empty() { Err("it has no key".into()) } else { Ok(Self::Hashed(keys)) }
    }

    /// How many there are; 0 where none is asked for.
    pub fn len(&self) -> usize {
        if let Self::Hashed(keys) = self { keys.len() } else { 0 }
    }

    /// None is asked for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// SHA-256 of the key that a request brings, known or not: as OpenAI's clients send it, else as Anthropic's do.
    pub fn hash_of(headers: &HeaderMap) -> Option<[u8; 32]> {
        let header = |name| headers.get(name)?.to_str().ok();
        let bearer = header(AUTHORIZATION.as_str()).and_then(|value| value.split_once(' '));
        let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, key)| key);
        Some(Sha256::digest(bearer.or_else(|| header(X_API_KEY))?.trim()).into())
    }

    /// Lets a request with a known key pass, and every request where no key is asked for.
    pub fn check(&self, headers: &HeaderMap) -> Result<Caller, ApiError> {
        let keys = match self {
            Self::Hashed(keys) => keys,
            open => {
                let admin = matches!(open, Self::Open);
                return Ok(Caller { admin, ..Caller::nobody() });
            }
        };
        let hash = Self::hash_of(headers)
            .ok_or_else(|| refused("no API key: send it as Authorization: Bearer KEY, or as x-api-key: KEY"))?;
        // All are compared, so that the time does not tell which one came close.
        let none = keys.len() as u32;
        let found =
            (0..).zip(keys).fold(none, |found, (i, key)| u32::conditional_select(&found, &i, key.hash.ct_eq(&hash)));
        let key = keys.get(found as usize).filter(|key| key.ends.is_none_or(|end| unix_seconds() < end));
        let key = key.ok_or_else(|| refused("the API key is not known here"))?;
        let cache = key.cache_group.as_deref().map_or_else(|| cache::of_key(&key.hash), cache::of_group);
        let (admin, limits, cache_shared) = (key.admin, key.limits, key.cache_group.is_some());
        let (account, tools, learn) = (account(&[&key.hash]), key.tools.clone(), key.learn);
        Ok(Caller { key: account, admin, limits, cache, cache_shared, tools, learn, arrived: Micros(0) })
    }
}

/// Whoever can read keys in plain text has them, and whoever can write the file gives himself one.
#[cfg(unix)]
fn check_mode(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).map_err(|e| e.to_string())?.permissions().mode() & 0o777;
    if mode & 0o027 == 0 {
        return Ok(());
    }
    Err(format!(
        "everybody on this machine or its group can read or write it: wanted mode 600 or 640, got {mode:03o} (chmod 600)"
    ))
}

#[cfg(not(unix))]
fn check_mode(_: &Path) -> Result<(), String> {
    Ok(())
}

/// The end of a day in UTC, seconds since 1970.
fn end_of_day(date: &str) -> Option<u64> {
    let mut parts = date.splitn(3, '-');
    let mut part = |digits: usize| {
        parts.next().filter(|p| p.len() == digits && p.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
    };
    let (year, month, day) = (part(4)?, part(2)?, part(2)?);
    Some((days_since_1970(year, month, day)? + 1) * 24 * 3600)
}

/// `sha256:HEX` or the key itself, then `scope=user|admin`, `weight=N`, `requests=N`, `tokens_per_minute=N`,
/// `cache_group=NAME`, `tools=NAMES`, `learn=off|feedback|all`, `expires=YYYY-MM-DD`.
fn key(line: &str, limits: KeyLimits) -> Result<Key, String> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    if !name.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("has a key with a character that is not plain ASCII".into());
    }
    let hash = match name.strip_prefix(HASHED) {
        Some(hex) => {
            key_hash(name).map_err(|_| format!("wants 64 hexadecimal digits after {HASHED}, got {}", hex.len()))?
        }
        None if name.len() < KEY_CHARS_MIN => {
            return Err(format!(
                "has a key of {} characters, at least {KEY_CHARS_MIN} are wanted (`chimere key new`)",
                name.len()
            ));
        }
        None => Sha256::digest(name).into(),
    };
    let (tools, learn) = (ToolRights::All, Consent::Off);
    let mut key = Key { hash, admin: false, limits, cache_group: None, tools, learn, ends: None };
    for word in words {
        let no_option =
            || format!("has a blank in its key, or {word:?} is no option (a comment has a line of its own)");
        let (option, value) = word.split_once('=').ok_or_else(no_option)?;
        let number = || value.parse::<u32>().map_err(|_| format!("wants a whole number for {option}, got {value:?}"));
        match (option, value) {
            ("scope", "user") => key.admin = false,
            ("scope", "admin") => key.admin = true,
            ("scope", other) => return Err(format!("wants scope=user or scope=admin, got {other:?}")),
            ("weight", _) => {
                key.limits.weight = number()?;
                if !(1..=WEIGHT_MAX).contains(&key.limits.weight) {
                    return Err(format!("wants a weight from 1 to {WEIGHT_MAX}, got {value}"));
                }
            }
            ("requests", _) => key.limits.requests = number()?,
            ("tokens_per_minute", _) => key.limits.tokens_per_minute = number()?,
            ("cache_group", name) => key.cache_group = Some(group_name(name)?.into()),
            ("tools", names) => key.tools = ToolRights::parse(names)?,
            ("learn", word) => key.learn = word.parse().map_err(|why| format!("has learn, which {why}"))?,
            ("expires", _) => {
                let end = end_of_day(value)
                    .ok_or_else(|| format!("wants a date such as 2027-01-31 for expires, got {value:?}"))?;
                key.ends = Some(end);
            }
            _ => {
                return Err(format!(
                    "has the option {option:?}; there are scope, weight, requests, tokens_per_minute, cache_group, \
                     tools, learn and expires"
                ));
            }
        }
    }
    Ok(key)
}

fn group_name(name: &str) -> Result<&str, String> {
    if (1..=CACHE_GROUP_CHARS_MAX).contains(&name.len()) {
        return Ok(name);
    }
    Err(format!("wants a name of 1 to {CACHE_GROUP_CHARS_MAX} characters for cache_group, got {}", name.len()))
}

fn refused(message: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "authentication_error", message)
        .with_code("invalid_api_key")
        .rejected_as("key")
}

/// A key file as operators keep it.
#[cfg(test)]
pub(super) fn write_key_file(path: &Path, text: &str) {
    // A new file each time, as an operator's editor makes one.
    std::fs::remove_file(path).ok();
    std::fs::write(path, text).unwrap();
    #[cfg(unix)]
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    fn parse(text: &str) -> Result<AcceptedKeys, String> {
        AcceptedKeys::parse(text, KeyLimits::default())
    }

    fn request(header: Option<&str>) -> HttpRequest {
        header.iter().fold(TestRequest::default(), |r, h| r.insert_header((AUTHORIZATION, *h))).to_http_request()
    }

    fn caller(keys: &AcceptedKeys, key: &str) -> Caller {
        keys.check(request(Some(&format!("Bearer {key}"))).headers()).unwrap()
    }

    #[test]
    fn a_request_needs_one_of_the_keys_of_the_file() {
        let keys = parse(&format!("# ours\nsk-one-0123456789\n\n  {}\n # of the tests\n", hashed("sk-two"))).unwrap();
        let check = |header| keys.check(request(header).headers()).is_ok();
        assert!(check(Some("Bearer sk-one-0123456789")));
        assert!(check(Some("bearer  sk-two")));
        let named = |key: &str| TestRequest::default().insert_header((X_API_KEY, key)).to_http_request();
        assert!(keys.check(named("sk-two").headers()).is_ok() && keys.check(named("sk-three").headers()).is_err());
        for bad in [
            None,
            Some("sk-one-0123456789"),
            Some("Bearer sk-three"),
            Some("Bearer "),
            Some("Basic sk-one-0123456789"),
            Some(&*format!("Bearer {}", hashed("sk-two"))),
            Some("Bearer sk-two # of the tests"),
        ] {
            assert!(!check(bad), "{bad:?}");
        }
        assert!(AcceptedKeys::Open.check(request(None).headers()).is_ok());
    }

    #[test]
    fn a_line_says_what_its_key_entitles_to() {
        let text =
            format!("sk-a-0123456789ab\n{} scope=admin weight=3 requests=8 tokens_per_minute=60000\n", hashed("sk-b"));
        let defaults = KeyLimits { requests: 4, ..KeyLimits::default() };
        let keys = AcceptedKeys::parse(&text, defaults).unwrap();
        let (a, b) = (caller(&keys, "sk-a-0123456789ab"), caller(&keys, "sk-b"));
        assert_eq!((a.admin, a.limits), (false, defaults));
        assert_eq!((b.admin, b.limits), (true, KeyLimits { weight: 3, requests: 8, tokens_per_minute: 60_000 }));
        assert_ne!(a.key, b.key);
        let learns = |line: &str| caller(&parse(line).unwrap(), "sk-a-0123456789ab").learn.name();
        assert_eq!(["", " learn=all"].map(|end| learns(&format!("sk-a-0123456789ab{end}"))), ["off", "all"]);
        assert_eq!(
            a,
            caller(&parse("sk-a-0123456789ab requests=4").unwrap(), "sk-a-0123456789ab"),
            "the account is the key's, wherever it stands"
        );
    }

    #[test]
    fn an_administrator_is_who_has_the_scope_or_an_open_service_s_own_machine() {
        let keys = parse("sk-a-0123456789ab scope=user\nsk-b-0123456789ab scope=admin").unwrap();
        for (keys, header, admin) in [
            (&keys, Some("Bearer sk-a-0123456789ab"), false),
            (&keys, Some("Bearer sk-b-0123456789ab"), true),
            (&AcceptedKeys::Open, None, true),
            (&AcceptedKeys::OpenToAll, None, false),
        ] {
            let request = request(header);
            let caller = keys.check(request.headers()).unwrap();
            request.extensions_mut().insert(caller);
            let refused = require_admin(&request).err().map(|e| e.status);
            assert_eq!(refused, (!admin).then_some(StatusCode::FORBIDDEN));
        }
        assert!(require_admin(&request(None)).is_err(), "a request that nobody checked is nobody's");
    }

    #[test]
    fn those_whom_a_gateway_sends_for_have_accounts_of_their_own() {
        let request =
            |id: &str| TestRequest::default().insert_header(("x-llm-d-inference-fairness-id", id)).to_http_request();
        let nobody = Caller::of(&TestRequest::default().to_http_request());
        let (a, b) = (nobody.clone().on_behalf(&request("a")), nobody.clone().on_behalf(&request("b")));
        assert!(a.key != b.key && a.key != nobody.key);
        assert_eq!(a, nobody.clone().on_behalf(&request("a")));
        assert_eq!(nobody.clone().on_behalf(&TestRequest::default().to_http_request()), nobody);
    }

    #[test]
    fn keys_share_prompts_only_by_a_group_of_the_same_name() {
        let keys = parse(
            "sk-a-0123456789ab\nsk-b-0123456789ab\nsk-c-0123456789ab cache_group=x\nsk-d-0123456789ab cache_group=x\n\
             sk-e-0123456789ab cache_group=y",
        );
        let keys = keys.unwrap();
        let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(|name| caller(&keys, &format!("sk-{name}-0123456789ab")));
        assert_eq!(c.cache, d.cache);
        let nobody = Caller::of(&request(None));
        let all: std::collections::HashSet<_> = [&nobody, &a, &b, &c, &e].iter().map(|caller| caller.cache).collect();
        assert_eq!(all.len(), 5, "everybody else has his own");
        let sent_for =
            |id: &str| TestRequest::default().insert_header(("x-llm-d-inference-fairness-id", id)).to_http_request();
        assert_ne!(
            a.clone().on_behalf(&sent_for("u")).cache,
            a.clone().on_behalf(&sent_for("v")).cache,
            "so have a gateway's users"
        );
        assert_ne!(a.clone().on_behalf(&sent_for("u")).cache, b.clone().on_behalf(&sent_for("u")).cache);
        assert_eq!(c.clone().on_behalf(&sent_for("u")).cache, c.cache, "unless its key is of a group");
    }

    #[test]
    fn what_follows_a_sharp_sign_is_part_of_the_key() {
        let keys = parse("sk#very-long-0123456789").unwrap();
        assert!(keys.check(request(Some("Bearer sk")).headers()).is_err());
        assert!(keys.check(request(Some("Bearer sk#very-long-0123456789")).headers()).is_ok());
    }

    #[test]
    fn a_key_is_known_until_the_day_it_expires_is_over() {
        let keys = parse("sk-old-0123456789 expires=2020-02-29\nsk-new-0123456789 expires=9999-12-31").unwrap();
        assert!(keys.check(request(Some("Bearer sk-old-0123456789")).headers()).is_err());
        assert!(keys.check(request(Some("Bearer sk-new-0123456789")).headers()).is_ok());
        assert_eq!(end_of_day("1970-01-01"), Some(86_400));
        assert_eq!(end_of_day("1970-13-01"), None);
    }

    #[test]
    #[cfg(unix)]
    fn a_file_that_others_can_read_or_write_is_refused_by_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        write_key_file(&path, "sk-one-0123456789");
        for (mode, taken) in
            [(0o600, true), (0o400, true), (0o440, true), (0o640, true), (0o644, false), (0o660, false), (0o666, false)]
        {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let read = AcceptedKeys::read(&path);
            assert_eq!(read.is_ok(), taken, "{mode:o}: {read:?}");
            assert!(taken || read.unwrap_err().contains(&format!("got {mode:o}")));
        }
        assert!(AcceptedKeys::read(dir.path()).is_err());
    }

    #[test]
    fn no_key_is_readable_in_memory_or_in_logs() {
        assert!(!format!("{:?}", parse("sk-one-0123456789").unwrap()).contains("sk-one"));
    }

    #[test]
    fn a_file_without_a_key_or_with_a_strange_one_is_refused() {
        assert_eq!(parse("# nothing\n\n").unwrap_err(), "it has no key");
        let twice = format!("{HASHED}{}", digest("sk-a-0123456789ab"));
        for (line, part) in [
            ("sk-a-0123456789ab one", "line 1 has a blank in its key"),
            ("sk#very-long-0123456789 # x", "a comment has a line of its own"),
            ("sk", "at least 16 are wanted"),
            ("sk-a-0123456789ab expires=2027-02-x", "a date such as"),
            ("sk-a-0123456789ab expires=27-02-01", "a date such as"),
            ("sk-a-0123456789ab\n\nsk-a-0123456789ab scope=admin", "line 3 has the key of line 1 again"),
            ("sk-ä", "plain ASCII"),
            ("sha256:12", "64 hexadecimal digits"),
            (&*twice, "64 hexadecimal digits"),
            ("sk-a-0123456789ab weight=0", "from 1 to 1000, got 0"),
            ("sk-a-0123456789ab weight=x", "whole number for weight"),
            ("sk-a-0123456789ab scope=root", "scope=user or scope=admin"),
            ("sk-a-0123456789ab cache_group=", "a name of 1 to 64 characters for cache_group, got 0"),
            ("sk-a-0123456789ab tools=files,", "line 1 wants names of MCP servers"),
            ("sk-a-0123456789ab learn=yes", "line 1 has learn, which must be off, feedback or all, got \"yes\""),
            ("sk-a-0123456789ab colour=red", "\"colour\""),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{part:?} in {error}");
        }
        assert!(AcceptedKeys::read(Path::new("/nowhere/keys")).unwrap_err().contains("/nowhere/keys"));
    }
}
