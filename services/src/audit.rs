//! Who did what that others feel, when, and how it ended: tables that were taught, removed or taken back, collections
//! made and removed, keys that were read again, keys that nobody has. One JSON object a line, in a log of its own;
//! never what was said.

use crate::limits::AUDIT_NAME_CHARS;
use chimere_engine::ids::KeyId;
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The target of its records where they go to the log of everything else.
pub const TARGET: &str = "chimere::audit";

/// The outcome of what nobody waited for any more.
const CANCELLED: &str = "cancelled";

/// Where records go. Clones share it.
#[derive(Clone, Default)]
pub struct Audit(Option<AuditSink>);

type AuditSink = Arc<dyn Fn(&str) + Send + Sync>;

/// One thing that was done or tried.
#[derive(Debug, Serialize)]
pub struct AuditRecord<'a> {
    /// What: `table.learn`, `keys.reload`, `key.unknown`.
    pub action: &'a str,
    /// On which table or collection, in which file. Clients name these: of a name that is longer than
    /// [`AUDIT_NAME_CHARS`] its beginning and its length are written down.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "name")]
    pub on: Option<&'a str>,
    /// By which account: a number from which no key can be found.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "account")]
    pub account: Option<KeyId>,
    /// The address that it came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// How many of its kind there were lately, of which not each is written down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// The request's name in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<&'a str>,
    /// Hash of the arguments of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<&'a str>,
    /// The account that approved a call, as [`Self::account`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "account")]
    pub approved: Option<KeyId>,
    /// The status of the reply, or a word.
    pub outcome: &'a str,
}

impl AuditRecord<'_> {
    /// Something that the service did by itself or for its operator.
    pub fn own<'a>(action: &'a str, on: Option<&'a str>, outcome: &'a str) -> AuditRecord<'a> {
        AuditRecord {
            action,
            on,
            account: None,
            address: None,
            times: None,
            request: None,
            arguments: None,
            approved: None,
            outcome,
        }
    }
}

fn account<S: serde::Serializer>(key: &Option<KeyId>, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&format!("{:016x}", key.unwrap_or_default().0))
}

fn name<S: serde::Serializer>(name: &Option<&str>, out: S) -> Result<S::Ok, S::Error> {
    let name = name.unwrap_or_default();
    match name.char_indices().nth(AUDIT_NAME_CHARS) {
        Some((end, _)) => out.serialize_str(&format!("{}... ({} bytes)", &name[..end], name.len())),
        None => out.serialize_str(name),
    }
}

impl Audit {
    /// Into a sink of its own, which takes whole lines.
    pub fn to(sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(sink)))
    }

    /// Something begins that is written down at its end, as cancelled if it does not come to it.
    pub fn begin<'a>(&'a self, record: AuditRecord<'a>) -> AuditedDeed<'a> {
        AuditedDeed { audit: self, record: AuditRecord { outcome: CANCELLED, ..record } }
    }

    /// Writes a record down.
    pub fn record(&self, record: &AuditRecord<'_>) {
        #[derive(Serialize)]
        struct Line<'a> {
            time_ms: u64,
            #[serde(flatten)]
            record: &'a AuditRecord<'a>,
        }
        let time_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        let line = serde_json::to_string(&Line { time_ms, record }).unwrap_or_default();
        match &self.0 {
            Some(sink) => sink(&line),
            None => tracing::info!(target: TARGET, "{line}"),
        }
    }
}

/// Something that is being done and is written down at its end. That nobody waits for its end any more is one too: what
/// was begun may have had its effect.
pub struct AuditedDeed<'a> {
    audit: &'a Audit,
    record: AuditRecord<'a>,
}

impl AuditedDeed<'_> {
    /// It has come to its end by itself, with this outcome.
    pub fn ends(mut self, outcome: &'static str) {
        self.record.outcome = outcome;
    }
}

impl Drop for AuditedDeed<'_> {
    fn drop(&mut self) {
        self.audit.record(&self.record);
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Audit(own sink)" } else { "Audit(log)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    #[test]
    fn a_deed_is_written_down_once_with_its_end_or_as_cancelled() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let audit = Audit::to({
            let lines = lines.clone();
            move |line| lines.lock().push(line.to_owned())
        });
        audit.begin(AuditRecord::own("web.fetch", Some("a"), "")).ends("read");
        drop(audit.begin(AuditRecord::own("web.fetch", Some("b"), "")));
        let lines = lines.lock();
        assert!(lines[0].ends_with(r#""on":"a","outcome":"read"}"#), "{lines:?}");
        assert!(lines[1].ends_with(r#""on":"b","outcome":"cancelled"}"#) && lines.len() == 2, "{lines:?}");
    }

    #[test]
    fn a_record_is_a_line_of_json_with_what_is_known_and_nothing_else() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let audit = Audit::to({
            let lines = lines.clone();
            move |line| lines.lock().push(line.to_owned())
        });
        audit.record(&AuditRecord {
            action: "table.learn",
            on: Some("a\n\"b"),
            account: Some(KeyId(255)),
            address: Some("127.0.0.1".parse().unwrap()),
            times: None,
            request: Some("req_1"),
            arguments: None,
            approved: None,
            outcome: "200",
        });
        audit.record(&AuditRecord::own("keys.reload", None, "3 keys"));
        audit.record(&AuditRecord::own("response.delete", Some(&"ä".repeat(60_000)), "404"));
        let lines = lines.lock();
        let read: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.iter().all(|line| !line.contains('\n')));
        assert_eq!(
            (&read[0]["on"], &read[0]["account"], &read[0]["address"]),
            (&"a\n\"b".into(), &"00000000000000ff".into(), &"127.0.0.1".into())
        );
        assert_eq!(read[1].as_object().unwrap().keys().collect::<Vec<_>>(), ["time_ms", "action", "outcome"]);
        let cut = format!("{}... (120000 bytes)", "ä".repeat(AUDIT_NAME_CHARS));
        assert_eq!(read[2]["on"], cut, "what a client makes long is not written whole");
    }
}
