//! Arbiters with a name that shows in `top -H`, and a core of their own where one is asked for.

use actix_rt::Arbiter;

/// A thread for an actor. `core` pins it there.
pub fn arbiter(name: &'static str, core: Option<usize>) -> std::io::Result<Arbiter> {
    Arbiter::try_with_tokio_rt(move || {
        name_this_thread(name);
        if let Some(core) = core {
            pin_this_thread(core)?;
        }
        tokio::runtime::Builder::new_current_thread().enable_all().build()
    })
}

#[cfg(target_os = "linux")]
fn name_this_thread(name: &str) {
    // The kernel keeps 15 bytes; a name that it refuses costs nothing but the name.
    if let Ok(name) = std::ffi::CString::new(&name[..name.len().min(15)]) {
        rustix::thread::set_name(&name).ok();
    }
}

#[cfg(not(target_os = "linux"))]
fn name_this_thread(_: &str) {}

#[cfg(target_os = "linux")]
fn pin_this_thread(core: usize) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(std::io::Error::other(format!("no core {core}")));
    }
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|e| std::io::Error::other(format!("cannot pin to core {core}: {e}")))
}

#[cfg(not(target_os = "linux"))]
fn pin_this_thread(core: usize) -> std::io::Result<()> {
    Err(std::io::Error::other(format!("cannot pin to core {core}: only Linux has a way")))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    fn status_line(field: &'static str, core: Option<usize>) -> std::io::Result<String> {
        actix_rt::System::new().block_on(async move {
            let arbiter = arbiter("chimere-test", core)?;
            let (tx, rx) = tokio::sync::oneshot::channel();
            arbiter.spawn_fn(move || tx.send(std::fs::read_to_string("/proc/thread-self/status").unwrap()).unwrap());
            let status = rx.await.unwrap();
            arbiter.stop();
            Ok(status.lines().find(|l| l.starts_with(field)).unwrap().to_owned())
        })
    }

    #[test]
    fn the_thread_of_an_arbiter_carries_its_name() {
        assert_eq!(status_line("Name:", None).unwrap(), "Name:\tchimere-test");
    }

    #[test]
    fn a_pinned_thread_may_run_on_its_core_only_and_an_absent_core_is_an_error() {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let core = (0..rustix::thread::CpuSet::MAX_CPU).rfind(|&c| allowed.is_set(c)).unwrap();
        assert_eq!(status_line("Cpus_allowed_list:", Some(core)).unwrap(), format!("Cpus_allowed_list:\t{core}"));
        assert!(status_line("Name:", Some(usize::MAX)).is_err());
    }
}
