//! How long contexts are: the bounds that all parts of Engram share, and the lengths that a table is built for.

use std::str::FromStr;

/// The longest context of which a table has all that stood in its texts, in tokens.
pub const ORDER_MAX: usize = 8;
/// The longest context that is looked for in documents and in tables of version 3, in tokens.
pub const MATCH_MAX: usize = 32;

/// A range of orders within 1..=[`ORDER_MAX`], both ends included. Written `2-5`, or `3` for one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orders {
    low: usize,
    high: usize,
}

/// A range of orders that no table can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("orders: wanted one number or a rising range within 1-{ORDER_MAX}, such as 2-5, got {0:?}")]
pub struct OrdersError(String);

impl Orders {
    /// From the shortest context to the longest.
    pub fn new(low: usize, high: usize) -> Result<Self, OrdersError> {
        if low < 1 || low > high || high > ORDER_MAX {
            return Err(OrdersError(format!("{low}-{high}")));
        }
        Ok(Self { low, high })
    }

    /// The context lengths, shortest first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = usize> {
        self.low..=self.high
    }
}

impl FromStr for Orders {
    type Err = OrdersError;

    fn from_str(text: &str) -> Result<Self, OrdersError> {
        let refused = || OrdersError(text.to_owned());
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let number = |part: &str| part.trim().parse().map_err(|_| refused());
        Self::new(number(low)?, number(high)?).map_err(|_| refused())
    }
}
