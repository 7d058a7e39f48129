//! The thread that publishes events.

use super::payload::{EventBatch, EventEncoding, packed};
use super::peers::{Peers, replay, subscribe};
use super::settings::{Endpoint, EventSettings};
use super::sink::EventSink;
use crate::limits::EVENT_BATCHES_MAX;
use std::cell::RefCell;
use std::future::Future;
use std::io::Result;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

/// Pause after a connection that could not be taken, as where there are no more files.
const PAUSE: Duration = Duration::from_millis(100);

/// A publisher whose sockets are bound. Its thread ends when its sink is dropped.
#[derive(Debug)]
pub struct Publisher {
    batches: mpsc::Receiver<EventBatch>,
    settings: EventSettings,
    subscribers: std::net::TcpListener,
    asking: Option<std::net::TcpListener>,
}

impl Publisher {
    /// Binds the sockets. An error names the address.
    pub fn bind(settings: EventSettings) -> std::result::Result<(Self, EventSink), String> {
        let subscribers = bound(settings.listen)?;
        let asking = settings.replay.map(bound).transpose()?;
        let (sender, batches) = mpsc::channel(EVENT_BATCHES_MAX);
        Ok((Self { batches, settings, subscribers, asking }, EventSink::new(sender)))
    }

    /// Where subscribers connect, and where those who missed some do.
    pub fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let asking = self.asking.as_ref().and_then(|listener| listener.local_addr().ok());
        (self.subscribers.local_addr().ok(), asking)
    }

    /// Starts the thread that publishes.
    pub fn start(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = move || LocalSet::new().block_on(&runtime, self.run());
        std::thread::Builder::new().name("chimere-events".into()).spawn(move || {
            if let Err(error) = run() {
                tracing::error!(%error, "events are published no longer");
            }
        })?;
        Ok(())
    }

    async fn run(mut self) -> Result<()> {
        let peers = Rc::new(RefCell::new(Peers::new(self.settings.topic.clone())));
        let listener = TcpListener::from_std(self.subscribers)?;
        tokio::task::spawn_local(accept(listener, peers.clone(), subscribe));
        if let Some(listener) = self.asking {
            tokio::task::spawn_local(accept(TcpListener::from_std(listener)?, peers.clone(), replay));
        }
        let encoding: EventEncoding = self.settings.encoding;
        while let Some(batch) = self.batches.recv().await {
            let payload = packed(&batch, encoding);
            peers.borrow_mut().publish(payload);
        }
        Ok(())
    }
}

fn bound(Endpoint(address): Endpoint) -> std::result::Result<std::net::TcpListener, String> {
    let bind = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    bind().map_err(|error: std::io::Error| format!("cannot listen on tcp://{address}: {error}"))
}

/// Serves each who connects, in a task of its own.
async fn accept<F: Future<Output = Result<()>> + 'static>(
    listener: TcpListener,
    peers: Rc<RefCell<Peers>>,
    serve: fn(Rc<RefCell<Peers>>, TcpStream) -> F,
) {
    loop {
        match listener.accept().await {
            Ok((peer, from)) => {
                let served = serve(peers.clone(), peer);
                tokio::task::spawn_local(async move {
                    let end = served.await;
                    tracing::debug!(%from, end = ?end.err(), "a listener to events has gone");
                });
            }
            Err(error) => {
                tracing::warn!(%error, "no listener to events could be taken");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::zmtp::{FRAME_BYTES_MAX, FromPeer, SocketKind, framed, greet, read};
    use super::*;
    use crate::limits::EVENT_SUBSCRIBER_MESSAGES_MAX;
    use chimere_engine::scheduler::{CacheTier, PrefixChange};
    use std::time::Duration;
    use tokio::io::AsyncWriteExt;
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_secs(120);

    fn published() -> (EventSink, SocketAddr, SocketAddr) {
        let any = Endpoint("127.0.0.1:0".parse().unwrap());
        let (topic, encoding) = ("kv@here".into(), EventEncoding::Map);
        let settings = EventSettings { listen: any, replay: Some(any), topic, encoding };
        let (publisher, sink) = Publisher::bind(settings).unwrap();
        let (listen, replay) = publisher.addresses();
        publisher.start().unwrap();
        (sink, listen.unwrap(), replay.unwrap())
    }

    async fn connected(to: SocketAddr, says: &[&[u8]]) -> TcpStream {
        let mut peer = TcpStream::connect(to).await.unwrap();
        greet(&mut peer, SocketKind::Pub).await.unwrap();
        peer.write_all(&framed(says)).await.unwrap();
        peer
    }

    /// The next message's parts.
    async fn next(peer: &mut TcpStream) -> Vec<Vec<u8>> {
        match timeout(PATIENCE, read(peer)).await.unwrap().unwrap() {
            FromPeer::Message(parts) => parts,
            other => panic!("{other:?}"),
        }
    }

    fn some() -> Vec<PrefixChange> {
        vec![PrefixChange::Removed { tier: CacheTier::Device, units: (0..20).collect() }]
    }

    #[actix_rt::test]
    async fn who_reads_nothing_holds_up_nobody_and_who_missed_some_may_ask_for_them() {
        let (mut sink, listen, replay) = published();
        let _reads_nothing = connected(listen, &[b"\x01"]).await;
        let mut other = connected(listen, &[b"\x01something else"]).await;
        let mut reads = connected(listen, &[b"\x01kv@"]).await;
        // Until the subscription has arrived nothing comes.
        let mut told = 0;
        let first = loop {
            sink.tell(some());
            told += 1;
            // A socket that was read dry says that it is readable until somebody tries.
            if let Ok(arrived) = timeout(Duration::from_millis(20), reads.peek(&mut [0])).await {
                assert_eq!(arrived.unwrap(), 1);
                break next(&mut reads).await;
            }
        };
        assert_eq!((&first[0][..], first[1].len()), (&b"kv@here"[..], 8));
        let begun = u64::from_be_bytes(first[1][..].try_into().unwrap());
        let end = told + 4 * EVENT_SUBSCRIBER_MESSAGES_MAX as u64;
        for number in begun + 1..end {
            if told < end {
                sink.tell(some());
                told += 1;
            }
            let message = next(&mut reads).await;
            assert_eq!(message[1], number.to_be_bytes());
            assert!(message[2].len() < FRAME_BYTES_MAX, "the test reads short messages alone");
        }
        let asked = end - 2;
        for delimiter in [None, Some(&[][..])] {
            let question = asked.to_be_bytes();
            let parts: Vec<&[u8]> = delimiter.into_iter().chain([&question[..]]).collect();
            let mut asks = connected(replay, &parts).await;
            for number in [asked, asked + 1, u64::MAX] {
                let message = next(&mut asks).await;
                assert_eq!(message.len(), 3 + usize::from(delimiter.is_some()));
                assert_eq!(message[message.len() - 2], number.to_be_bytes());
                assert_eq!(message[message.len() - 1].is_empty(), number == u64::MAX);
            }
        }
        assert!(timeout(Duration::from_millis(1), next(&mut other)).await.is_err(), "another topic");
    }
}
