//! Attributes of files in a store, and conditions on them.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Attribute {
    /// It is true or false.
    Flag(bool),
    /// It is a finite number.
    Number(f64),
    /// It is made of words.
    Text(String),
}

impl Attribute {
    /// The order of two values of one type; values of different types have none.
    fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Flag(a), Self::Flag(b)) => Some(a.cmp(b)),
            (Self::Number(a), Self::Number(b)) => a.partial_cmp(b),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}

/// Attributes by their keys.
pub type Attributes = BTreeMap<String, Attribute>;

/// A condition on the attributes of a file. An attribute that is not there fulfils none but the negative ones.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeFilter {
    /// An attribute stands to a value in this way.
    Compare(String, Comparison, Attribute),
    /// Whether an attribute is one of these values (true) or none of them (false).
    OneOf(String, Vec<Attribute>, bool),
    /// All of these hold.
    And(Vec<AttributeFilter>),
    /// Some of these hold.
    Or(Vec<AttributeFilter>),
}

/// How an attribute stands to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// It equals the value.
    Eq,
    /// Not equal, or not there.
    Ne,
    /// It is greater than it.
    Gt,
    /// It is at least the value.
    Gte,
    /// It is less than it.
    Lt,
    /// It is at most the value.
    Lte,
}

impl AttributeFilter {
    /// Whether a file with these attributes fulfils the condition.
    pub fn holds(&self, attributes: &Attributes) -> bool {
        match self {
            Self::Compare(key, how, value) => {
                let order = attributes.get(key).and_then(|own| own.order(value));
                match how {
                    Comparison::Eq => order == Some(Ordering::Equal),
                    Comparison::Ne => order != Some(Ordering::Equal),
                    Comparison::Gt => order == Some(Ordering::Greater),
                    Comparison::Gte => order.is_some_and(Ordering::is_ge),
                    Comparison::Lt => order == Some(Ordering::Less),
                    Comparison::Lte => order.is_some_and(Ordering::is_le),
                }
            }
            Self::OneOf(key, values, wanted) => attributes.get(key).is_some_and(|own| values.contains(own)) == *wanted,
            Self::And(all) => all.iter().all(|filter| filter.holds(attributes)),
            Self::Or(some) => some.iter().any(|filter| filter.holds(attributes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_compares_values_of_one_type_and_what_is_not_there_is_only_unequal() {
        let text = |text: &str| Attribute::Text(text.into());
        let own = Attributes::from([("year".into(), Attribute::Number(2024.0)), ("kind".into(), text("report"))]);
        let compare = |key: &str, how, value| AttributeFilter::Compare(key.into(), how, value);
        for (filter, holds) in [
            (compare("year", Comparison::Eq, Attribute::Number(2024.0)), true),
            (compare("year", Comparison::Gt, Attribute::Number(2023.5)), true),
            (compare("year", Comparison::Gte, Attribute::Number(2025.0)), false),
            (compare("year", Comparison::Lt, Attribute::Number(2025.0)), true),
            (compare("year", Comparison::Lte, Attribute::Number(2024.0)), true),
            (compare("year", Comparison::Eq, text("2024")), false),
            (compare("year", Comparison::Ne, text("2024")), true),
            (compare("month", Comparison::Ne, text("May")), true),
            (compare("month", Comparison::Lte, text("May")), false),
            (AttributeFilter::OneOf("kind".into(), vec![text("a"), text("report")], true), true),
            (AttributeFilter::OneOf("kind".into(), vec![text("report")], false), false),
            (AttributeFilter::OneOf("month".into(), vec![text("May")], false), true),
        ] {
            assert_eq!(filter.holds(&own), holds, "{filter:?}");
            assert_eq!(AttributeFilter::And(vec![filter.clone(), AttributeFilter::And(vec![])]).holds(&own), holds);
            assert_eq!(AttributeFilter::Or(vec![AttributeFilter::Or(vec![]), filter]).holds(&own), holds);
        }
    }
}
