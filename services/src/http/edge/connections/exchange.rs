//! One request of a connection after the other: which bytes the client may send now, how long it may take for them, and
//! how many of them are kept here. The stream ([`Connection`](super::connection::Connection)) tells it what arrives and
//! what was sent, the request's handling ([`follow`](super::followed::follow)) what was read and answered. No byte of a
//! request reaches the parser before the one before it was answered and sent, so a connection never holds more than
//! one.
//!
//! Each phase has its time: the head, the body, the rest of a body that nobody waits for any more, an answer that lies
//! in the socket, and the silence between two requests. Only while the service itself is at work there is none here.

use super::framing::{Framing, FramingState};
use crate::holder::Holder;
use crate::http::edge::settings::Patience;
use crate::http::edge::shares::{Room, Share};
use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// Bytes that a connection has in hand without asking for room: of a head, of content that its handler has not read,
/// of the next request.
pub(super) const FREE_BYTES: usize = 8 << 10;
/// Room is taken by so much at a time.
const STEP_BYTES: usize = 8 << 10;
/// How long the end of a connection may take: the rest of a body after its answer, the last bytes of a shutdown.
pub(super) const LAST_BYTES: Duration = Duration::from_secs(1);

/// What one connection does.
#[derive(Debug)]
pub(super) struct Exchange {
    patience: Patience,
    room: Arc<Room>,
    holder: Holder,
    state: RefCell<ExchangeState>,
}

#[derive(Debug, Default)]
struct ExchangeState {
    framing: Framing,
    /// Bytes of the head, which are kept until the request was answered.
    head_bytes: usize,
    /// Room for those beyond what is free.
    share: Option<Share>,
    /// Bytes of content that came and that the handler has not read.
    unread: usize,
    /// The handler began to read.
    reads: bool,
    /// Nobody reads the content any more; the parser throws it away.
    discarded: bool,
    /// The answer is complete, and may wait in a buffer.
    answered: bool,
    /// A request was answered before this one.
    served: bool,
    /// When the present phase is over.
    deadline: Option<Instant>,
    /// Whoever waits for bytes, to be woken when more may come.
    reader: Option<Waker>,
}

/// What may come now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// So many bytes of a request.
    Bytes(usize),
    /// Nothing before the handler has read what came.
    Nothing,
    /// Nothing but the client's end: the request is whole.
    End,
}

/// Which time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    Head,
    Body,
    /// No request was begun. That is no fault: browsers connect ahead of time.
    Idle,
    /// The rest of a body whose answer was sent. That is no fault either.
    Rest,
    /// The client left its answer unread.
    Answer,
}

/// There is no room for more of a head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

impl Exchange {
    /// Of a new connection.
    pub(super) fn new(patience: Patience, room: Arc<Room>, holder: Holder, now: Instant) -> Self {
        let state = ExchangeState { deadline: Some(now + patience.head), ..ExchangeState::default() };
        Self { patience, room, holder, state: RefCell::new(state) }
    }

    /// Whoever polls for bytes is woken when something changes what is wanted.
    pub(super) fn wait(&self, cx: &Context<'_>) {
        let reader = &mut self.state.borrow_mut().reader;
        if reader.as_ref().is_none_or(|known| !known.will_wake(cx.waker())) {
            *reader = Some(cx.waker().clone());
        }
    }

    pub(super) fn wanted(&self) -> Wanted {
        let state = self.state.borrow();
        match state.framing.part() {
            FramingState::End => Wanted::End,
            FramingState::Head => Wanted::Bytes(FREE_BYTES),
            _ if state.discarded => Wanted::Bytes(FREE_BYTES),
            _ => match FREE_BYTES.saturating_sub(state.unread) {
                0 => Wanted::Nothing,
                bytes => Wanted::Bytes(bytes),
            },
        }
    }

    /// These bytes came. How many of them are the present request's; the rest is the next one's.
    pub(super) fn came(&self, bytes: &[u8], now: Instant) -> Result<usize, NoRoom> {
        let mut state = self.state.borrow_mut();
        let begins = state.head_bytes == 0 && state.served;
        let in_head = state.framing.part() == FramingState::Head;
        let taken = state.framing.advance(bytes);
        if in_head {
            if begins {
                state.deadline = Some(now + self.patience.head);
            }
            state.head_bytes += taken.bytes - taken.content;
            self.hold(&mut state)?;
        }
        if !state.discarded {
            state.unread += taken.content;
        }
        match state.framing.part() {
            FramingState::Head => {}
            FramingState::End => state.deadline = state.answered.then_some(now + self.patience.unread),
            _ if in_head => state.deadline = Some(now + self.patience.body + LAST_BYTES),
            _ => {}
        }
        Ok(taken.bytes)
    }

    /// Holds room for all steps that the head began beyond what is free.
    fn hold(&self, state: &mut ExchangeState) -> Result<(), NoRoom> {
        let wanted = state.head_bytes.saturating_sub(FREE_BYTES).div_ceil(STEP_BYTES) * STEP_BYTES;
        let held = state.share.as_ref().map_or(0, Share::units);
        let taken = match &mut state.share {
            _ if wanted <= held => true,
            Some(share) => share.grow(wanted - held),
            none => {
                *none = self.room.take(self.holder, wanted);
                none.is_some()
            }
        };
        if taken { Ok(()) } else { Err(NoRoom) }
    }

    /// The head is longer than what a connection keeps: the parser's buffer has grown, and goes with the connection.
    pub(super) fn has_long_head(&self) -> bool {
        self.state.borrow().head_bytes > FREE_BYTES
    }

    /// The handler reads the body, maybe after it had to wait for its turn. The client has its whole time from now on,
    /// once.
    pub(super) fn reads(&self, now: Instant) {
        let state = &mut *self.state.borrow_mut();
        if !std::mem::replace(&mut state.reads, true) && state.framing.part() != FramingState::End {
            state.deadline = Some(now + self.patience.body + LAST_BYTES);
        }
    }

    /// The connection is another protocol's from now on: all that comes is content, and whoever speaks that protocol
    /// knows how long the client may take for it.
    pub(super) fn upgraded(&self) {
        let state = &mut *self.state.borrow_mut();
        state.framing.goes_on();
        (state.reads, state.deadline) = (true, None);
        state.wake();
    }

    /// The handler has read so many bytes of content.
    pub(super) fn took(&self, bytes: usize) {
        let mut state = self.state.borrow_mut();
        state.unread = state.unread.saturating_sub(bytes);
        state.wake();
    }

    /// The handler reads no more.
    pub(super) fn discards(&self) {
        let mut state = self.state.borrow_mut();
        state.discard();
        state.wake();
    }

    /// The last piece of the answer was taken, or it will never be whole.
    pub(super) fn answered(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        state.answered = true;
        state.discard();
        let time = if state.framing.part() == FramingState::End { self.patience.unread } else { LAST_BYTES };
        state.deadline = Some(now + time);
        state.wake();
    }

    /// The answer is complete.
    pub(super) fn is_answered(&self) -> bool {
        self.state.borrow().answered
    }

    /// All that there was to send has been sent. After an answer to a request that is whole the next one may come.
    pub(super) fn sent(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        if !state.answered || state.framing.part() != FramingState::End {
            return;
        }
        let reader = state.reader.take();
        let deadline = Some(now + self.patience.idle);
        *state = ExchangeState { served: true, deadline, reader, ..ExchangeState::default() };
        state.wake();
    }

    /// When the client is late; `None` while it is the service that takes its time.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.state.borrow().deadline
    }

    /// What took too long when the deadline passes now.
    pub(super) fn late(&self) -> Late {
        let state = self.state.borrow();
        match state.framing.part() {
            FramingState::End => Late::Answer,
            FramingState::Head if state.head_bytes == 0 => Late::Idle,
            FramingState::Head => Late::Head,
            _ if state.answered => Late::Rest,
            _ => Late::Body,
        }
    }
}

impl ExchangeState {
    fn discard(&mut self) {
        (self.discarded, self.unread) = (true, 0);
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::ids::KeyId;

    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const CHUNKED: &[u8] = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn exchange(room: &Arc<Room>, of: u64, now: Instant) -> Exchange {
        let patience = Patience { head: seconds(5), body: seconds(6), idle: seconds(75), ..Patience::default() };
        Exchange::new(patience, room.clone(), Holder::Key(KeyId(of)), now)
    }

    fn answer(exchange: &Exchange, now: Instant) {
        exchange.answered(now);
        exchange.sent(now);
    }

    #[test]
    fn a_long_head_holds_room_until_it_is_answered_whatever_came_before_it() {
        let (room, now) = (Room::new(64 << 10, 0), Instant::now());
        let long = exchange(&room, 1, now);
        assert_eq!(long.came(&[GET, b"rest"].concat(), now), Ok(GET.len()), "the rest is the next request's");
        assert_eq!(long.wanted(), Wanted::End);
        answer(&long, now);
        assert!(long.came(&[b'a'; FREE_BYTES], now).is_ok() && room.take(Holder::Many, 64 << 10).is_some());
        assert!((0..4).all(|_| long.came(&[b'a'; STEP_BYTES], now).is_ok()));
        assert_eq!(exchange(&room, 1, now).came(&[b'a'; FREE_BYTES + 1], now), Err(NoRoom), "half is for others");
        assert!(exchange(&room, 2, now).came(&[b'a'; FREE_BYTES + STEP_BYTES], now).is_ok());
        assert_eq!(long.came(b"a", now), Err(NoRoom));
        let whole = exchange(&room, 3, now);
        whole.came(&[&[b'a'; 2 * FREE_BYTES][..], b"\r\n\r\n"].concat(), now).unwrap();
        assert!(whole.has_long_head() && whole.state.borrow().share.is_some(), "its request has it still");
        answer(&whole, now);
        assert!(whole.state.borrow().share.is_none() && !whole.has_long_head());
    }

    #[test]
    fn content_comes_as_fast_as_it_is_read() {
        let (room, now) = (Room::new(0, 0), Instant::now());
        let body = exchange(&room, 1, now);
        body.came(b"POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n", now).unwrap();
        assert_eq!(body.wanted(), Wanted::Bytes(FREE_BYTES));
        body.came(&[0; FREE_BYTES - 1], now).unwrap();
        assert_eq!(body.wanted(), Wanted::Bytes(1));
        body.came(&[0], now).unwrap();
        assert_eq!(body.wanted(), Wanted::Nothing);
        body.took(100);
        assert_eq!(body.wanted(), Wanted::Bytes(100));
        body.discards();
        body.came(&[0; FREE_BYTES], now).unwrap();
        assert_eq!(body.wanted(), Wanted::Bytes(FREE_BYTES), "what is thrown away is not kept");
    }

    #[test]
    fn each_phase_has_its_time_and_no_byte_makes_it_longer() {
        let (room, begin) = (Room::new(1 << 20, 0), Instant::now());
        let one = exchange(&room, 1, begin);
        let check = |deadline: Option<u64>, late| {
            assert_eq!(one.deadline().map(|at| (at - begin).as_secs()), deadline);
            assert_eq!(one.late(), late);
        };
        let at = |n| begin + seconds(n);
        let came = |bytes: &[u8], n| one.came(bytes, at(n)).unwrap();
        check(Some(5), Late::Idle);
        came(&GET[..10], 4);
        check(Some(5), Late::Head);
        came(&GET[10..], 5);
        assert_eq!(one.deadline(), None, "the service is at work");
        one.answered(at(50));
        check(Some(110), Late::Answer);
        one.sent(at(51));
        check(Some(126), Late::Idle);
        came(b"\r", 100);
        check(Some(105), Late::Head);
        came(b"\n", 104);
        check(Some(105), Late::Head);
        came(CHUNKED, 104);
        check(Some(111), Late::Body);
        came(b"0", 110);
        check(Some(111), Late::Body);
        one.reads(at(110));
        one.reads(at(114));
        check(Some(117), Late::Body);
        one.answered(at(112));
        check(Some(113), Late::Rest);
        came(b"\r\nTrailer: a", 112);
        check(Some(113), Late::Rest);
        one.sent(at(112));
        check(Some(113), Late::Rest);
        came(b"\r\n\r\n", 113);
        one.sent(at(113));
        check(Some(188), Late::Idle);
    }
}
