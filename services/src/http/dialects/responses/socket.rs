//! `GET /v1/responses` with an upgrade: requests for responses as messages of a WebSocket, one after the other, each
//! answered with the events of a stream. A request holds a slot, a place in the queue and its account's budget exactly
//! as one of its own connection would; between two requests a socket has nothing but its memory.

use super::memory::SocketMemory;
use super::request::ResponsesBody;
use super::routes::{answered, continued};
use crate::actors::phase::{Phase, SHUTTING_DOWN};
use crate::http::app::App;
use crate::http::edge::arrival::RequestBody;
use crate::http::edge::encoding::Coding;
use crate::http::edge::sockets::{Incoming, Outgoing, SocketEnd};
use crate::http::intake::bodies::taken;
use crate::http::wire::error::ApiError;
use crate::http::wire::reply::name_anew;
use crate::limits::SOCKET_MESSAGES_WAITING_MAX;
use actix_http::ws::CloseCode;
use actix_rt::time::sleep;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::http::StatusCode;
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web};
use serde_json::json;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Code of the error with which a socket ends whose time is over; clients open another one.
const LIFE_OVER: &str = "websocket_connection_limit_reached";

/// Opens a socket for messages, if the request is a handshake and there is room.
pub(super) async fn open(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let holder = app.holder(&request);
    let (reply, incoming, outgoing) = app.sockets.open(&request, payload, (holder, app.bodies.bytes_max))?;
    let memory = SocketMemory::new(app.sockets.memory.clone(), holder);
    let phase = app.turns.phase.clone();
    let socket = ResponseSocket {
        answers: Responder { app, request, memory, outgoing },
        incoming,
        waiting: VecDeque::new(),
        phase,
    };
    actix_rt::spawn(socket.run());
    Ok(reply)
}

/// A socket with its client.
struct ResponseSocket {
    answers: Responder,
    incoming: Incoming,
    /// Messages that came while an earlier one was answered.
    waiting: VecDeque<RequestBody>,
    phase: watch::Receiver<Phase>,
}

/// What answers the messages of a socket.
struct Responder {
    app: web::Data<App>,
    /// The request that opened the socket: whose it is, and what its headers ask of each message.
    request: HttpRequest,
    memory: SocketMemory,
    outgoing: Outgoing,
}

impl ResponseSocket {
    /// Serves it to its end. When the connection goes, so does all that is done for it.
    async fn run(mut self) {
        let outgoing = self.answers.outgoing.clone();
        let served = async {
            let end = self.serve().await.err().unwrap_or(SocketEnd::Gone);
            self.answers.say_goodbye(end).await;
        };
        tokio::select! {
            () = served => {}
            () = outgoing.gone() => {}
        }
    }

    async fn serve(&mut self) -> Result<(), SocketEnd> {
        let opened = Instant::now();
        loop {
            let message = self.next(opened).await?;
            let Self { answers, incoming, waiting, .. } = self;
            tokio::select! {
                answered = answers.answer(message) => answered?,
                end = listen(incoming, waiting, answers) => return Err(end),
            }
        }
    }

    /// The next message, waited for as long as a client may be silent and the socket may live.
    async fn next(&mut self, opened: Instant) -> Result<RequestBody, SocketEnd> {
        let (app, since) = (&self.answers.app, Instant::now());
        loop {
            if ends(&self.phase.borrow()) {
                return Err(SocketEnd::told(CloseCode::Away, SHUTTING_DOWN));
            }
            let life = app.sockets.life.saturating_sub(opened.elapsed());
            let idle = app.sockets.idle.saturating_sub(since.elapsed());
            if life.is_zero() {
                return Err(life_over(app.sockets.life));
            }
            if let Some(message) = self.waiting.pop_front() {
                return Ok(message);
            }
            if idle.is_zero() {
                return Err(SocketEnd::told(CloseCode::Normal, "no request came for too long"));
            }
            tokio::select! {
                message = self.incoming.message(&app.bodies, &self.answers.outgoing) => return message,
                _ = self.phase.wait_for(ends) => {}
                // Proxies close silent connections, and a peer that vanished shows only when something is sent. No pong
                // is waited for: a client that runs a tool may not read meanwhile.
                () = sleep(app.keep_alive.min(life).min(idle)) => self.answers.outgoing.lines(b"\n").await?,
            }
        }
    }
}

/// Hears a client while its message is answered: it may leave, and say more, which waits.
async fn listen(incoming: &mut Incoming, waiting: &mut VecDeque<RequestBody>, answers: &Responder) -> SocketEnd {
    loop {
        match incoming.message(&answers.app.bodies, &answers.outgoing).await {
            Ok(_) if waiting.len() == SOCKET_MESSAGES_WAITING_MAX => {
                let text = format!("at most {SOCKET_MESSAGES_WAITING_MAX} messages may wait for an answer");
                return SocketEnd::told(CloseCode::Policy, &text);
            }
            Ok(message) => waiting.push_back(message),
            Err(end) => return end,
        }
    }
}

impl Responder {
    /// Answers a message with the events of a response, or with an error after which the client may go on.
    async fn answer(&self, message: RequestBody) -> Result<(), SocketEnd> {
        self.renew()?;
        let mut events = match self.events(message).await {
            Ok(events) => events,
            Err(error) => return self.tell(&error).await,
        };
        while let Some(Ok(events)) = poll_fn(|cx| Pin::new(&mut events).poll_next(cx)).await {
            self.outgoing.lines(&events).await?;
        }
        Ok(())
    }

    /// Makes of the request that opened the socket one that came now, if its key is known still.
    fn renew(&self) -> Result<(), SocketEnd> {
        let (gate, request) = (&self.app.gate, &self.request);
        let checked = gate.keys.keys().check(request.headers());
        let caller = checked
            .map_err(|error| SocketEnd::refused(error, CloseCode::Policy, "the API key is not known here any more"))?;
        name_anew(request);
        request.extensions_mut().insert(gate.arrived(caller, request));
        Ok(())
    }

    /// The events of the response that a message asks for, as lines.
    async fn events(&self, message: RequestBody) -> Result<BoxBody, ApiError> {
        let Self { app, request, memory, .. } = self;
        let parsed =
            taken(app, request, (message, Coding::Identity), |body, _| ResponsesBody::of_message(body)).await?;
        let parsed = continued(app, request, parsed, Some(memory)).await?;
        Ok(answered(app, request, parsed, Some(memory)).await?.into_body())
    }

    async fn tell(&self, error: &ApiError) -> Result<(), SocketEnd> {
        self.outgoing.lines(&told(error)).await
    }

    async fn say_goodbye(&self, end: SocketEnd) {
        let reason = match end {
            SocketEnd::Gone => return,
            SocketEnd::Closed(reason) => reason,
            SocketEnd::Told(reason) => Some(reason),
            SocketEnd::Refused(error, reason) => {
                self.tell(&error).await.ok();
                Some(reason)
            }
        };
        self.outgoing.close(reason).await;
    }
}

/// An error as a message.
fn told(error: &ApiError) -> Vec<u8> {
    error.counted();
    let mut message = json!(error);
    let code = error.code.unwrap_or(error.kind);
    message["error"]["code"] = code.into();
    let headers =
        error.retry_headers().into_iter().flatten().map(|(name, value)| (name.to_string(), value.to_string().into()));
    let headers: serde_json::Map<_, _> = headers.collect();
    let mut told = json!({"type": "error", "status": error.status.as_u16(), "error": message["error"]});
    if !headers.is_empty() {
        told["headers"] = headers.into();
    }
    told.to_string().into_bytes()
}

/// The service takes nothing new any more.
fn ends(phase: &Phase) -> bool {
    matches!(phase, Phase::Draining | Phase::Drained | Phase::Lost(_))
}

fn life_over(life: Duration) -> SocketEnd {
    let message =
        format!("this WebSocket has been open for {} s, the most there are; open another one", life.as_secs());
    let error = ApiError::new(StatusCode::BAD_REQUEST, "invalid_request_error", message).with_code(LIFE_OVER);
    SocketEnd::refused(error, CloseCode::Normal, "the time of this socket is over")
}
