//! Large whole replies, given out piece by piece: a client that leaves its reply unread for too long loses it, as one
//! does that leaves a stream unread. Small ones lie in the socket's own buffers anyway.

use crate::limits::WHOLE_REPLY_BYTES;
use actix_rt::time::sleep;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::ServiceResponse;
use bytes::Bytes;
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Given to the connection at a time.
const PIECE_BYTES: usize = 32 << 10;

/// Why a reply ends early.
#[derive(Debug, thiserror::Error)]
#[error("the reply was not read for too long")]
struct Unread;

/// A body that is let go when nobody takes it.
struct Paced {
    bytes: u64,
    left: Rc<RefCell<Left>>,
}

struct Left {
    /// `None` when it was let go.
    bytes: Option<Bytes>,
    /// When the last piece was taken.
    taken: Instant,
}

impl MessageBody for Paced {
    type Error = Unread;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.bytes)
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Unread>>> {
        let mut left = self.left.borrow_mut();
        left.taken = Instant::now();
        let Some(bytes) = &mut left.bytes else { return Poll::Ready(Some(Err(Unread))) };
        let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
        Poll::Ready((!piece.is_empty()).then_some(Ok(piece)))
    }
}

/// Lets the bytes go when no piece was taken for so long. Ends with the body.
async fn watch(left: Weak<RefCell<Left>>, unread: Duration) {
    loop {
        let Some(since) = left.upgrade().map(|left| left.borrow().taken.elapsed()) else { return };
        if since >= unread {
            if let Some(left) = left.upgrade() {
                left.borrow_mut().bytes = None;
            }
            return;
        }
        sleep(unread - since).await;
    }
}

/// The reply with its body paced, if that is whole and large.
pub(super) fn paced(reply: ServiceResponse<BoxBody>, unread: Duration) -> ServiceResponse<BoxBody> {
    let large = matches!(reply.response().body().size(), BodySize::Sized(bytes) if bytes > WHOLE_REPLY_BYTES as u64);
    if !large {
        return reply;
    }
    reply.map_body(|_, body| match body.try_into_bytes() {
        Ok(bytes) => {
            let paced = Paced::new(bytes);
            actix_rt::spawn(watch(Rc::downgrade(&paced.left), unread));
            BoxBody::new(paced)
        }
        Err(body) => body,
    })
}

impl Paced {
    fn new(bytes: Bytes) -> Self {
        let left = Left { bytes: Some(bytes.clone()), taken: Instant::now() };
        Self { bytes: bytes.len() as u64, left: Rc::new(RefCell::new(left)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    async fn next(body: &mut Paced) -> Option<Result<Bytes, Unread>> {
        poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await
    }

    #[actix_rt::test]
    async fn a_reply_that_is_read_is_whole_and_one_that_is_not_is_let_go() {
        let text: Bytes = (0..100_000u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>().into();
        let mut read = Paced::new(text.clone());
        let mut all = Vec::new();
        while let Some(piece) = next(&mut read).await {
            all.extend(piece.unwrap());
        }
        assert_eq!((all.len() as u64, all == text), (read.bytes, true));
        let mut left = Paced::new(text);
        next(&mut left).await.unwrap().unwrap();
        let inner = left.left.clone();
        watch(Rc::downgrade(&inner), Duration::from_millis(20)).await;
        assert!(inner.borrow().bytes.is_none());
        assert!(
            next(&mut left).await.unwrap().is_err(),
            "the connection ends without its last bytes, so the client can tell"
        );
    }
}
