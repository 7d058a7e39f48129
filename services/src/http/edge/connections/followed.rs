//! Tells a connection's [`Exchange`] what becomes of its request: how much of the body was read, and when the answer is
//! complete.

use super::exchange::Exchange;
use actix_web::Error;
use actix_web::HttpMessage;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::error::PayloadError;
use actix_web::http::{ConnectionType, StatusCode};
use actix_web::middleware::Next;
use bytes::Bytes;
use futures_util::Stream;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

/// Given to the connection at a time, so that the buffer of what is to be sent stays small.
pub(super) const PIECE_BYTES: usize = 16 << 10;

/// Follows each request to the end of its answer.
pub(in crate::http) async fn follow(
    mut request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let Some(exchange) = request.conn_data::<Rc<Exchange>>().cloned() else {
        return Ok(next.call(request).await?.map_into_boxed_body());
    };
    // The end of the answer is told also where there is none, since the request failed or its client left.
    let answering = Answering(exchange.clone());
    let payload = request.take_payload();
    if !matches!(payload, Payload::None) {
        let content = Content { payload, exchange: exchange.clone() };
        request.set_payload(Payload::Stream { payload: Box::pin(content) });
    }
    let mut reply = next.call(request).await?;
    if reply.status() == StatusCode::SWITCHING_PROTOCOLS {
        exchange.upgraded();
    } else if exchange.has_long_head() {
        reply.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    Ok(reply.map_body(|_, body| {
        BoxBody::new(ResponseBody { body: Box::pin(body), rest: Bytes::new(), _answering: answering })
    }))
}

/// Dropped when an answer is complete.
struct Answering(Rc<Exchange>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answered(Instant::now());
    }
}

/// The body of a request.
struct Content {
    payload: Payload,
    exchange: Rc<Exchange>,
}

impl Stream for Content {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.exchange.reads(Instant::now());
        let polled = Pin::new(&mut self.payload).poll_next(cx);
        if let Poll::Ready(Some(Ok(piece))) = &polled {
            self.exchange.took(piece.len());
        }
        polled
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.exchange.discards();
    }
}

/// The body of an answer, in pieces.
struct ResponseBody<B> {
    body: Pin<Box<B>>,
    rest: Bytes,
    _answering: Answering,
}

impl<B: MessageBody> MessageBody for ResponseBody<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, B::Error>>> {
        if self.rest.is_empty() {
            match self.body.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(bytes))) => self.rest = bytes,
                other => return other,
            }
        }
        let piece = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(self.rest.split_to(piece))))
    }
}
