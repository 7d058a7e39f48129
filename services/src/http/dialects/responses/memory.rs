//! What a socket remembers between two requests: its latest response, whether that is kept for others to find or not.

use crate::holder::Holder;
use crate::http::edge::shares::{Room, Share};
use crate::responses::KeptResponse;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The memory of one socket.
#[derive(Clone)]
pub(super) struct SocketMemory {
    latest: Rc<RefCell<Option<Remembered>>>,
    room: Arc<Room>,
    holder: Holder,
}

struct Remembered {
    id: String,
    response: KeptResponse,
    _share: Share,
}

impl SocketMemory {
    /// An empty one, whose bytes count among those of all sockets.
    pub(super) fn new(room: Arc<Room>, holder: Holder) -> Self {
        Self { latest: Rc::default(), room, holder }
    }

    /// The response of this id, for a request that goes on from it. What comes of the request takes its place; if
    /// nothing does, there is none to go on from.
    pub(super) fn take(&self, id: &str) -> Option<KeptResponse> {
        let latest = self.latest.borrow_mut().take_if(|latest| latest.id == id);
        latest.map(|latest| latest.response)
    }

    /// Remembers a response in the place of the one before it, as far as there is room.
    pub(super) fn put(&self, id: &str, response: KeptResponse) {
        let mut latest = self.latest.borrow_mut();
        // The room of the old one is there for the new one.
        *latest = None;
        let share = self.room.take(self.holder, response.items.len() + response.response.len());
        *latest = share.map(|_share| Remembered { id: id.to_owned(), response, _share });
        if latest.is_none() {
            tracing::warn!(response = id, "a socket does not remember its response: there is no room for it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: usize) -> KeptResponse {
        KeptResponse { items: vec![b'i'; bytes / 2].into(), response: vec![b'r'; bytes - bytes / 2].into() }
    }

    #[test]
    fn the_latest_response_is_there_once_and_gives_its_room_back() {
        let room = Room::new(100, 100);
        let memory = SocketMemory::new(room.clone(), Holder::Many);
        memory.put("a", of(60));
        memory.put("b", of(80));
        assert!(memory.take("a").is_none(), "another one came after it");
        assert_eq!(memory.take("b"), Some(of(80)));
        assert!(memory.take("b").is_none() && room.take(Holder::Many, 100).is_some());
        memory.put("c", of(101));
        assert!(memory.take("c").is_none(), "there is no room for it");
    }
}
