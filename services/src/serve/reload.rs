//! What is read again while the service runs: keys and certificates, when their files change and when somebody asks by
//! SIGHUP.

use crate::audit::{Audit, AuditRecord};
use crate::http::edge::KeyFile;
use crate::http::tls::Certificate;
use crate::limits::KEY_LOOK_SECONDS;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::Signal;

/// Everything of the kind.
#[derive(Clone)]
pub(super) struct Renewals {
    /// Who may come in.
    pub(super) keys: Arc<KeyFile>,
    /// What connections are encrypted with.
    pub(super) certificate: Option<Arc<Certificate>>,
    /// Hears of each file that is read again.
    pub(super) audit: Audit,
}

impl Renewals {
    /// Looks again and again, as long as the service runs.
    pub(super) async fn keep(self, mut hang_up: Signal) {
        loop {
            let asked = tokio::select! {
                () = actix_rt::time::sleep(Duration::from_secs(KEY_LOOK_SECONDS)) => false,
                _ = hang_up.recv() => true,
            };
            self.look(asked);
        }
    }

    fn look(&self, asked: bool) {
        match self.keys.reload(asked) {
            Ok(None) => {}
            Ok(Some(keys)) => {
                tracing::info!(keys, "the key file was read again");
                self.audit.record(&AuditRecord::own("keys.reload", None, "read"));
            }
            Err(error) => {
                tracing::error!(error, "the key file was not taken; the keys of before hold");
                self.audit.record(&AuditRecord::own("keys.reload", None, "refused"));
            }
        }
        match self.certificate.as_ref().map(|certificate| certificate.reload(asked)) {
            None | Some(Ok(false)) => {}
            Some(Ok(true)) => {
                tracing::info!("the certificate was read again");
                self.audit.record(&AuditRecord::own("certificate.reload", None, "read"));
            }
            Some(Err(error)) => {
                tracing::error!(error, "the certificate was not taken; the one of before stays in use");
                self.audit.record(&AuditRecord::own("certificate.reload", None, "refused"));
            }
        }
    }
}
