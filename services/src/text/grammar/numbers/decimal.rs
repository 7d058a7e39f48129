//! A number by its decimal digits, which no double has to hold.

use std::cmp::Ordering;

/// Digits of a number that are looked at.
const DIGITS_MAX: usize = 400;
/// The farthest that the digits of a number may lie from its point.
const EXPONENT_MAX: i64 = 1_000_000;

/// `0.DIGITS` times ten to the power of `exponent`; zero has no digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    /// What a number of JSON says; `None` where that is too long.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (mantissa, power) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let power: i64 = power.parse().ok()?;
        let negative = mantissa.starts_with('-');
        let (whole, places) =
            mantissa.trim_start_matches('-').split_once('.').unwrap_or((mantissa.trim_start_matches('-'), ""));
        let all: Vec<u8> = whole.bytes().chain(places.bytes()).collect();
        let zeros = all.iter().take_while(|digit| **digit == b'0').count();
        let end = all.iter().rposition(|digit| *digit != b'0').map_or(zeros, |last| last + 1);
        let digits = all[zeros..end].to_vec();
        let exponent = power.checked_add(whole.len() as i64 - zeros as i64)?;
        if digits.is_empty() {
            return Some(Self { negative: false, digits, exponent: 0 });
        }
        (digits.len() <= DIGITS_MAX && exponent.abs() <= EXPONENT_MAX).then_some(Self { negative, digits, exponent })
    }

    /// The digits of an integer, behind its sign; `None` of another number, and of one that is too long.
    pub(super) fn integer(&self) -> Option<(bool, String)> {
        let zeros = self.exponent - self.digits.len() as i64;
        if self.digits.is_empty() {
            return Some((false, "0".into()));
        }
        if zeros < 0 || self.exponent > DIGITS_MAX as i64 {
            return None;
        }
        let digits = self.digits.iter().map(|digit| char::from(*digit));
        Some((self.negative, digits.chain(std::iter::repeat_n('0', zeros as usize)).collect()))
    }

    fn magnitude(&self, other: &Self) -> Ordering {
        self.digits
            .is_empty()
            .cmp(&other.digits.is_empty())
            .reverse()
            .then_with(|| self.exponent.cmp(&other.exponent).then_with(|| self.digits.cmp(&other.digits)))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.magnitude(other),
            (true, true) => other.magnitude(self),
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_by_all_their_digits() {
        let texts = [
            "-1e400",
            "-18446744073709551617",
            "-18446744073709551616",
            "-0.5",
            "0",
            "1e-400",
            "0.1",
            "0.1000000000000000055",
            "9",
            "10",
            "9007199254740992",
            "9007199254740993",
            "1e30",
        ];
        let read: Vec<Decimal> = texts.iter().map(|text| Decimal::read(text).unwrap()).collect();
        assert!(read.is_sorted() && read.windows(2).all(|two| two[0] != two[1]));
        for (one, other) in [("-0", "0.0"), ("1.50", "15e-1"), ("100", "1e2"), ("0.01", "1E-2")] {
            assert_eq!(Decimal::read(one), Decimal::read(other));
        }
        let integer = |text: &str| Decimal::read(text).unwrap().integer();
        assert_eq!(integer("-1.2e3"), Some((true, "1200".into())));
        assert_eq!((integer("0.5"), integer("1e9999")), (None, None));
    }
}
