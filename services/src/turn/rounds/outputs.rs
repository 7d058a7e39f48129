//! The outputs of a turn: those of its only generation, or those of all its rounds as if they were one.

use crate::actors::request::Outputs;
use crate::actors::request::output::Output;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// The receiving end of a turn. Dropping it cancels the turn at once, whatever it is doing.
pub enum TurnOutputs {
    /// Of a turn with one generation: its request's own.
    Once(Outputs),
    /// Of a turn in which the server may run calls.
    Rounds(Rounds),
}

/// What a driver tells, and the driver. It runs where its outputs are awaited, so that it ends with who awaits them.
pub struct Rounds {
    told: mpsc::Receiver<Output>,
    /// None once it has ended.
    driver: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl TurnOutputs {
    /// The outputs that a driver sends to the other end of `told`.
    pub(in crate::turn) fn driven(told: mpsc::Receiver<Output>, driver: impl Future<Output = ()> + 'static) -> Self {
        Self::Rounds(Rounds { told, driver: Some(Box::pin(driver)) })
    }

    /// The next output, or `None` when no more come.
    pub async fn next(&mut self) -> Option<Output> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// The next output, for who polls a stream of them.
    pub fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Output>> {
        match self.get_mut() {
            Self::Once(outputs) => Pin::new(outputs).poll_next(cx),
            Self::Rounds(rounds) => rounds.poll_next(cx),
        }
    }
}

impl Rounds {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Output>> {
        if let told @ Poll::Ready(Some(_)) = self.told.poll_recv(cx) {
            return told;
        }
        if let Some(driver) = &mut self.driver
            && driver.as_mut().poll(cx).is_ready()
        {
            self.driver = None;
        }
        self.told.poll_recv(cx)
    }
}
