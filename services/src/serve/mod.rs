//! `chimere serve`: from the command line to a running service, and its end.

mod audit;
mod documents;
mod files;
mod hello;
mod log;
mod named;
mod prepare;
mod reload;
mod replicas;

use crate::config::{Config, ServeArgs};
use crate::memory;
use crate::service::Service;
use log::ProcessLog;
use prepare::Prepared;
pub use replicas::pace;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code when the configuration or the usage is wrong, as clap has it.
pub const EXIT_USAGE: u8 = 2;
/// Exit code when the engine was lost while serving.
pub const EXIT_ENGINE_LOST: u8 = 3;
/// Exit code after a second signal: what was running was cut off.
pub const EXIT_INTERRUPTED: i32 = 130;
/// How long clients have to read the last event of a broken stream, and probes to see that health is gone.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why there is no service.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The caller asked for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// The model, the address, the memory or a thread is not to be had.
    #[error("{0}")]
    Start(String),
    /// The engine stopped answering, so the process has to be started anew.
    #[error("the engine is lost: {0}")]
    EngineLost(String),
}

impl ServeError {
    fn exit_code(&self) -> ExitCode {
        match self {
            ServeError::Usage(_) => ExitCode::from(EXIT_USAGE),
            ServeError::Start(_) => ExitCode::FAILURE,
            ServeError::EngineLost(_) => ExitCode::from(EXIT_ENGINE_LOST),
        }
    }
}

/// Serves until a signal or until the engine is lost.
pub fn run(args: &ServeArgs) -> ExitCode {
    let begin = Instant::now();
    memory::spare_addresses();
    let config = Config::load(args, std::env::vars()).map_err(|e| ServeError::Usage(e.to_string()));
    let (config, log) = match config.and_then(|config| ProcessLog::start(&config.log).map(|log| (config, log))) {
        Ok(both) => both,
        Err(e) => {
            say_alone(&e);
            return e.exit_code();
        }
    };
    let served = Prepared::new(&config, &log).and_then(|prepared| {
        let drain = Duration::from_secs(config.server.drain_seconds);
        let traces = prepared.parts.traces.clone();
        let served = actix_rt::System::new().block_on(serve(prepared, drain, begin, &log));
        traces.finish();
        served
    });
    let code = served.map_or_else(
        |e| {
            log.say(&format!("chimere: {e}"));
            e.exit_code()
        },
        |()| ExitCode::SUCCESS,
    );
    log.finish();
    code
}

/// Says why there is not even a log. Nobody who does not read it can hold up the end.
fn say_alone(error: &ServeError) {
    if let Ok(log) = ProcessLog::bare() {
        log.say(&format!("chimere: {error}"));
        log.finish();
    }
}

/// Until the end, whichever comes first.
async fn serve(prepared: Prepared, drain: Duration, begin: Instant, log: &ProcessLog) -> Result<(), ServeError> {
    let mut signals = Signals::new().map_err(|e| ServeError::Start(format!("signals: {e}")))?;
    let Prepared { parts, renewals, hello, claims: _claims } = prepared;
    let started = async {
        let service = Service::start(parts).await.map_err(ServeError::Start)?;
        service.warm_up().await.map_err(ServeError::Start)?;
        Ok(service)
    };
    let service = tokio::select! {
        service = started => service?,
        () = signals.next() => return Ok(()),
    };
    tracing::info!(seconds = begin.elapsed().as_secs_f32(), "ready");
    log.say(&hello::Hello { took: begin.elapsed(), ..hello }.to_string());
    signals.hang_up.take().into_iter().for_each(|hang_up| drop(actix_rt::spawn(renewals.clone().keep(hang_up))));
    tokio::select! {
        why = service.lost() => return Err(end_of_engine(service, why).await),
        () = signals.next() => {}
    }
    tracing::info!(
        seconds = drain.as_secs(),
        "shutting down: running streams may finish, a second signal ends them at once"
    );
    actix_rt::spawn(async move {
        signals.next().await;
        std::process::exit(EXIT_INTERRUPTED);
    });
    tokio::select! {
        why = service.lost() => return Err(end_of_engine(service, why).await),
        () = service.drain(drain) => {}
    }
    service.stop().await;
    tracing::info!("all streams have ended");
    Ok(())
}

/// The streams have had their error; what is left is to let clients read it.
async fn end_of_engine(service: Service, why: String) -> ServeError {
    service.flush().await;
    tokio::time::sleep(LAST_WORDS).await;
    service.stop().await;
    ServeError::EngineLost(why)
}

/// Ends the process at once as one whose engine is lost. No destructor and no exit handler runs: those of a driver that
/// does not answer would wait for it without a bound.
pub fn end_process_now() {
    // SAFETY: `_exit` takes any status, touches no memory of this process and does not return.
    unsafe { libc::_exit(i32::from(EXIT_ENGINE_LOST)) }
}

/// SIGINT and SIGTERM, which mean the same.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// SIGHUP, which asks to read again what may have changed. Listened to from the start, or it would end the process.
    hang_up: Option<Signal>,
    /// Never waited for: that somebody listens keeps a log that has reached its largest size from ending the process.
    _file_too_large: Option<Signal>,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let file_too_large = files::SIGNAL_TOO_LARGE.map(|number| signal(SignalKind::from_raw(number))).transpose()?;
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: Some(signal(SignalKind::hangup())?),
            _file_too_large: file_too_large,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
