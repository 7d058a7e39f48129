//! The text of all metrics, of which every reply shows the present: rendering it takes milliseconds of a thread that
//! others' requests wait for, so all who ask while it is not being rendered share the next one, and it is rendered for
//! a small part of the time only, however many ask.

use crate::limits::METRICS_TIME_SHARE;
use actix_rt::time::sleep;
use actix_web::web::Bytes;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// A text that is rendered for those who ask for it.
#[derive(Debug, Default)]
pub struct Rendered(Mutex<Option<Last>>);

/// The one that was rendered last.
#[derive(Debug)]
struct Last {
    text: Bytes,
    begun: Instant,
    /// Before that it is not rendered again.
    next: Instant,
}

impl Rendered {
    /// The text, rendered by `render` after this was called.
    pub(in crate::http) async fn text(&self, render: impl Fn() -> String) -> Bytes {
        let asked = Instant::now();
        // Whoever comes first renders; the others find what it left. Where its client leaves, the next one does.
        let mut last = self.0.lock().await;
        if let Some(last) = last.as_ref() {
            if last.begun >= asked {
                return last.text.clone();
            }
            sleep(last.next.saturating_duration_since(Instant::now())).await;
        }
        let begun = Instant::now();
        let text = Bytes::from(render());
        let ended = Instant::now();
        let pause: Duration = (ended - begun) * METRICS_TIME_SHARE;
        *last = Some(Last { text: text.clone(), begun, next: ended + pause });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use std::cell::Cell;

    #[actix_rt::test]
    async fn many_who_ask_at_once_share_a_text_that_is_not_older_than_their_question() {
        let (rendered, times) = (Rendered::default(), Cell::new(0));
        let render = || {
            times.set(times.get() + 1);
            times.get().to_string()
        };
        assert_eq!(rendered.text(render).await, "1");
        assert_eq!(rendered.text(render).await, "2", "what was rendered before is not shown");
        let texts = join_all((0..100).map(|_| rendered.text(render))).await;
        // The first may have begun in the very moment in which another asked.
        assert!(texts.iter().all(|text| text == "3" || text == "4") && times.get() <= 4, "{}", times.get());
    }
}
