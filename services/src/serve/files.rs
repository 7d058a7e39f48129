//! What the system allows of files: how many at once, and how large.

/// The signal for a file that would grow beyond what the process may write, which ends a process that does not listen
/// to it.
#[cfg(target_os = "linux")]
pub(super) const SIGNAL_TOO_LARGE: Option<i32> = Some(25);
#[cfg(not(target_os = "linux"))]
pub(super) const SIGNAL_TOO_LARGE: Option<i32> = None;

/// Files beside connections: the model, libraries, sockets that listen, wake-ups of threads.
#[cfg(target_os = "linux")]
const OTHERS: u64 = 256;

/// Raises the soft limit of open files to what this many connections need, and tells if the hard limit is lower.
/// Without a file to spare no connection is accepted, so whoever waits would wait until another leaves.
#[cfg(target_os = "linux")]
pub(super) fn allow(connections: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = connections as u64 + OTHERS;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` is no limit.
    let Some(current) = current.filter(|current| *current < wanted) else { return };
    let possible = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum }).is_ok();
    let files = if raised { possible } else { current };
    if files < wanted {
        tracing::warn!(
            files,
            wanted,
            "fewer files may be open than limits.connections needs: later connections will wait"
        );
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn allow(_: usize) {}
