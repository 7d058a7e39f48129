//! What the kernel is asked to do with connections. Accepted sockets have the settings of the one that listens, on
//! Linux all of those here.

use crate::limits;
use std::net::TcpListener;
use std::time::Duration;

/// Questions that a silent peer leaves unanswered before it is given up, where the kernel counts them. Linux goes by
/// the time alone.
const QUESTIONS: u32 = 4;

/// Takes a crowd that comes at once: beyond what waits to be accepted a client's first packet is thrown away, and it
/// tries again only a second later. Sends small pieces at once. Gives up connections whose peer neither takes what was
/// sent to it nor answers when asked whether it is still there, for `silence`. Without that a machine that vanished, or
/// one that never reads, would be kept for ever: the server writes only when there is room, and hears nothing of a peer
/// that says nothing.
pub(super) fn prepare(listener: &TcpListener, silence: Duration) {
    if let Err(error) = set(listener, silence) {
        tracing::warn!(%error, "a setting of the socket that listens was refused: a crowd may wait, or a peer that is gone be kept");
    }
}

fn set(listener: &TcpListener, silence: Duration) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    // Whole seconds, as few and as many as Linux takes.
    let between = Duration::from_secs((silence / QUESTIONS).as_secs().clamp(1, 32_767));
    // It listens already; a second call only changes how many may wait.
    rustix::net::listen(listener, limits::ACCEPTS_WAITING_MAX)?;
    sockopt::set_tcp_nodelay(listener, true)?;
    sockopt::set_socket_keepalive(listener, true)?;
    #[cfg(any(target_os = "linux", target_os = "macos", target_os = "freebsd"))]
    {
        sockopt::set_tcp_keepidle(listener, between)?;
        sockopt::set_tcp_keepintvl(listener, between)?;
        sockopt::set_tcp_keepcnt(listener, QUESTIONS)?;
    }
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(listener, u32::try_from(silence.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use rustix::net::sockopt;
    use std::net::TcpStream;

    #[test]
    fn accepted_sockets_have_what_was_asked_of_the_one_that_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        prepare(&listener, Duration::from_secs(60));
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        assert!(sockopt::tcp_nodelay(&socket).unwrap() && sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), Duration::from_secs(15));
        assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap(), Duration::from_secs(15));
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 60_000);
    }
}
