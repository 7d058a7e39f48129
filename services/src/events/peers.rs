//! Those who listen: subscribers, to whom messages go as they come, and those who ask for what they missed.

use super::backlog::Backlog;
use super::zmtp::{FromPeer, SocketKind, framed, greet, read};
use crate::limits::{
    EVENT_SUBSCRIBER_MESSAGES_MAX, EVENT_SUBSCRIBERS_MAX, EVENT_SUBSCRIPTIONS_MAX, EVENT_UNREAD_SECONDS,
};
use bytes::Bytes;
use std::cell::RefCell;
use std::io::{Error, ErrorKind, Result};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Seconds for a peer to begin.
const HANDSHAKE_SECONDS: u64 = 10;
/// The number of the message that ends a replay.
const END: u64 = u64::MAX;

/// All who listen on one thread, and the last messages.
#[derive(Debug)]
pub(super) struct Peers {
    topic: String,
    next: u64,
    backlog: Backlog,
    subscribers: Vec<Rc<Subscriber>>,
    asking: usize,
}

/// One who gets the messages whose topic begins with one of its prefixes.
#[derive(Debug)]
struct Subscriber {
    prefixes: RefCell<Vec<Vec<u8>>>,
    messages: mpsc::Sender<Bytes>,
}

impl Peers {
    pub(super) fn new(topic: String) -> Self {
        Self { topic, next: 0, backlog: Backlog::default(), subscribers: Vec::new(), asking: 0 }
    }

    /// Numbers a payload, keeps it, and sends it to those who want it and have room.
    pub(super) fn publish(&mut self, payload: Vec<u8>) {
        let (number, payload) = (self.next, Bytes::from(payload));
        self.next += 1;
        self.backlog.push(number, payload.clone());
        let topic = self.topic.as_bytes();
        let wants = |one: &&Rc<Subscriber>| one.prefixes.borrow().iter().any(|prefix| topic.starts_with(prefix));
        let mut wanting = self.subscribers.iter().filter(wants).peekable();
        if wanting.peek().is_some() {
            let message = Bytes::from(framed(&[topic, &number.to_be_bytes(), &payload]));
            wanting.for_each(|one| drop(one.messages.try_send(message.clone())));
        }
    }
}

/// Serves one who subscribes, until it goes or reads nothing for too long.
pub(super) async fn subscribe(peers: Rc<RefCell<Peers>>, mut peer: TcpStream) -> Result<()> {
    if peers.borrow().subscribers.len() >= EVENT_SUBSCRIBERS_MAX {
        return Err(Error::new(ErrorKind::ConnectionRefused, "there are as many subscribers as may be"));
    }
    let (messages, mut waiting) = mpsc::channel(EVENT_SUBSCRIBER_MESSAGES_MAX);
    let one = Rc::new(Subscriber { prefixes: RefCell::default(), messages });
    // Before the handshake, so that all of them together are as few as subscribers.
    peers.borrow_mut().subscribers.push(one.clone());
    let served = async {
        greeted(&mut peer, SocketKind::Pub).await?;
        let (mut reads, mut writes) = peer.split();
        let send = async {
            while let Some(message) = waiting.recv().await {
                written(&mut writes, &message).await?;
            }
            Ok(())
        };
        tokio::select! {
            end = hear(&one, &mut reads) => end,
            end = send => end,
        }
    };
    let end = served.await;
    peers.borrow_mut().subscribers.retain(|other| !Rc::ptr_eq(other, &one));
    end
}

/// Takes what a subscriber says about what it wants.
async fn hear(one: &Subscriber, reads: &mut (impl AsyncRead + Unpin)) -> Result<()> {
    loop {
        let FromPeer::Message(parts) = read(reads).await? else { continue };
        let Some((&wants, prefix)) = parts.first().and_then(|part| part.split_first()) else { continue };
        let mut prefixes = one.prefixes.borrow_mut();
        match wants {
            1 if prefixes.len() < EVENT_SUBSCRIPTIONS_MAX => prefixes.push(prefix.to_vec()),
            1 => return Err(Error::new(ErrorKind::InvalidData, "more subscriptions than may be")),
            _ => {
                let at = prefixes.iter().position(|own| own == prefix);
                at.into_iter().for_each(|at| drop(prefixes.swap_remove(at)));
            }
        }
    }
}

/// Says the last messages again to one who asks for those from a number on.
pub(super) async fn replay(peers: Rc<RefCell<Peers>>, mut peer: TcpStream) -> Result<()> {
    if peers.borrow().asking >= EVENT_SUBSCRIBERS_MAX {
        return Err(Error::new(ErrorKind::ConnectionRefused, "as many ask as may"));
    }
    peers.borrow_mut().asking += 1;
    let end = answer(&peers, &mut peer).await;
    peers.borrow_mut().asking -= 1;
    end
}

async fn answer(peers: &RefCell<Peers>, peer: &mut TcpStream) -> Result<()> {
    greeted(peer, SocketKind::Router).await?;
    loop {
        let FromPeer::Message(parts) = read(peer).await? else { continue };
        // One kind of socket puts an empty part before its question and wants one before the answer.
        let delimiter = parts.first().filter(|part| part.is_empty()).map(Vec::as_slice);
        let number = parts.last().and_then(|part| part.as_slice().try_into().ok()).map(u64::from_be_bytes);
        let number = number.ok_or_else(|| Error::new(ErrorKind::InvalidData, "no number of 8 bytes"))?;
        let (kept, topic) = (peers.borrow().backlog.from(number), peers.borrow().topic.clone());
        let end = (END, Bytes::new());
        for (number, payload) in kept.iter().chain([&end]) {
            let topic = if *number == END { &[][..] } else { topic.as_bytes() };
            let number = number.to_be_bytes();
            let parts: Vec<&[u8]> = delimiter.into_iter().chain([topic, &number, &payload[..]]).collect();
            written(peer, &framed(&parts)).await?;
        }
    }
}

async fn greeted(peer: &mut TcpStream, kind: SocketKind) -> Result<()> {
    peer.set_nodelay(true)?;
    timeout(Duration::from_secs(HANDSHAKE_SECONDS), greet(peer, kind)).await?
}

/// Writes to one who reads in time.
async fn written(writes: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<()> {
    timeout(Duration::from_secs(EVENT_UNREAD_SECONDS), writes.write_all(bytes)).await?
}
