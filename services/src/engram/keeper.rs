//! The thread that keeps tables up to date: with what was taught, and with what lies in their directory.

use super::tables::Tables;
use super::teacher::Teacher;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::sync::Arc;
use std::time::Duration;

/// Works until it is dropped.
#[derive(Clone, Debug)]
pub struct Keeper {
    /// One message is enough: whatever came until it is taken is seen then.
    wake: Sender<()>,
}

impl Keeper {
    /// Works now, every `period` (zero for never), and when it is woken. Without a directory there is nothing to do.
    pub fn start(tables: Arc<Tables>, teacher: Option<Arc<Teacher>>, period: Duration) -> std::io::Result<Self> {
        let (wake, woken) = bounded(1);
        if let Some(teacher) = teacher.filter(|_| tables.directory().is_some()) {
            // A century stands for never.
            let period = if period.is_zero() { Duration::from_secs(100 * 365 * 24 * 3600) } else { period };
            std::thread::Builder::new().name("engram-tables".into()).spawn(move || keep(&teacher, period, &woken))?;
        }
        Ok(Self { wake })
    }

    /// Something was written to the store.
    pub fn wake(&self) {
        // Full means that it will look anyway; closed, that the service ends, and the next one will look.
        self.wake.try_send(()).ok();
    }
}

fn keep(teacher: &Teacher, period: Duration, woken: &Receiver<()>) {
    let mut complained = None;
    loop {
        let mistake = work(teacher).err();
        // Once for each mistake, not once a period.
        if let Some(error) = mistake.as_ref().filter(|_| mistake != complained) {
            tracing::error!(error, "a table cannot be used or made; what was there before stays");
        }
        complained = mistake;
        if woken.recv_timeout(period) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

fn work(teacher: &Teacher) -> Result<(), String> {
    let published = teacher.publish_due(teacher.now());
    if teacher.tables().reload().map_err(|e| e.to_string())? {
        tracing::info!(tables = teacher.tables().snapshot().len(), "tables were changed");
    }
    published.map(drop).map_err(|e| e.to_string())
}
