//! Large whole replies, given out piece by piece: a client that leaves its reply unread for too long loses it, as one
//! does that leaves a stream unread. Small ones lie in the socket's own buffers anyway.

use super::shares::{Room, Share};
use crate::holder::Holder;
use crate::http::wire::error::ApiError;
use crate::http::wire::reply::BODIES_FULL;
use crate::limits::WHOLE_REPLY_BYTES;
use actix_rt::time::sleep;
use actix_web::ResponseError;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::ServiceResponse;
use actix_web::http::StatusCode;
use bytes::Bytes;
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
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
    left: Rc<RefCell<UnreadReply>>,
}

struct UnreadReply {
    /// With its room, since the whole reply is kept until its last piece was taken. `None` when it was let go.
    unread: Option<(Bytes, Share)>,
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
        let Some((bytes, _)) = &mut left.unread else { return Poll::Ready(Some(Err(Unread))) };
        let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
        Poll::Ready((!piece.is_empty()).then_some(Ok(piece)))
    }
}

/// Lets the bytes go when no piece was taken for so long. Ends with the body.
async fn watch(left: Weak<RefCell<UnreadReply>>, unread: Duration) {
    loop {
        let Some(since) = left.upgrade().map(|left| left.borrow().taken.elapsed()) else { return };
        if since >= unread {
            if let Some(left) = left.upgrade() {
                left.borrow_mut().unread = None;
            }
            return;
        }
        sleep(unread - since).await;
    }
}

/// The reply with its body paced, if that is whole and large. Its bytes count among those of all that are not read yet,
/// or a client could have hundreds of megabytes kept for it by reading a little now and then.
pub(super) fn paced(
    reply: ServiceResponse<BoxBody>,
    replies: &Arc<Room>,
    holder: Holder,
    unread: Duration,
) -> ServiceResponse<BoxBody> {
    let bytes = match reply.response().body().size() {
        BodySize::Sized(bytes) if bytes > WHOLE_REPLY_BYTES as u64 => bytes as usize,
        _ => return reply,
    };
    let Some(share) = replies.take(holder, bytes) else {
        return reply.into_response(no_room(replies.total()).error_response());
    };
    reply.map_body(|_, body| match body.try_into_bytes() {
        Ok(bytes) => {
            let paced = Paced::new(bytes, share);
            actix_rt::spawn(watch(Rc::downgrade(&paced.left), unread));
            BoxBody::new(paced)
        }
        Err(body) => body,
    })
}

/// Says what there is for all, and nothing of who has it.
fn no_room(total: usize) -> ApiError {
    let message = format!("there is no room for this reply now: those that are not read yet share {total} bytes");
    let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message).with_code("replies_full");
    error.with_retry_after(Duration::from_secs(1)).rejected_as(BODIES_FULL)
}

impl Paced {
    fn new(bytes: Bytes, share: Share) -> Self {
        let size = bytes.len() as u64;
        let left = UnreadReply { unread: Some((bytes, share)), taken: Instant::now() };
        Self { bytes: size, left: Rc::new(RefCell::new(left)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::Holder;
    use crate::http::edge::shares::Room;
    use std::future::poll_fn;

    async fn next(body: &mut Paced) -> Option<Result<Bytes, Unread>> {
        poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await
    }

    #[actix_rt::test]
    async fn a_reply_that_is_read_is_whole_and_one_that_is_not_is_let_go() {
        let text: Bytes = (0..100_000u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>().into();
        let room = Room::new(1 << 20, 0);
        let share = || room.take(Holder::Many, 400_000).unwrap();
        let mut read = Paced::new(text.clone(), share());
        let mut all = Vec::new();
        while let Some(piece) = next(&mut read).await {
            all.extend(piece.unwrap());
        }
        assert_eq!((all.len() as u64, all == text), (read.bytes, true));
        drop(read);
        let mut left = Paced::new(text, share());
        next(&mut left).await.unwrap().unwrap();
        let inner = left.left.clone();
        watch(Rc::downgrade(&inner), Duration::from_millis(20)).await;
        assert!(inner.borrow().unread.is_none() && room.take(Holder::Many, 1 << 20).is_some());
        assert!(
            next(&mut left).await.unwrap().is_err(),
            "the connection ends without its last bytes, so the client can tell"
        );
    }
}
