//! On which GPUs the model is computed, as people write it.

use crate::limits::REPLICAS_MAX;
use serde::{Deserialize, Serialize};

/// The GPUs that compute, by the numbers that the driver gives them. Each named one has a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Devices {
    /// The first one that the driver shows, where the device is a GPU.
    #[default]
    First,
    /// Every one that holds the model.
    All,
    /// These. One that is named several times has as many replicas, which share its memory evenly.
    These(Vec<usize>),
}

impl Devices {
    /// The largest number of replicas that share one of the devices.
    pub fn shares_max(&self) -> u32 {
        match self {
            Self::First | Self::All => 1,
            Self::These(all) => all.iter().map(|one| shares(all, *one)).max().unwrap_or(1),
        }
    }
}

/// How many times a device is named.
pub(crate) fn shares(all: &[usize], one: usize) -> u32 {
    all.iter().filter(|other| **other == one).count() as u32
}

impl std::str::FromStr for Devices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text {
            "" => return Ok(Self::First),
            "all" => return Ok(Self::All),
            _ => {}
        }
        let numbers: Result<Vec<usize>, _> = text.split(',').map(|one| one.trim().parse::<usize>()).collect();
        let most = REPLICAS_MAX as usize;
        match numbers {
            Ok(these) if these.len() <= most => Ok(Self::These(these)),
            Ok(these) => Err(format!("at most {most} GPUs can be named, got {}", these.len())),
            Err(_) => Err(format!("wanted all, or numbers of GPUs such as 0,1, got {text:?}")),
        }
    }
}

impl TryFrom<String> for Devices {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Devices> for String {
    fn from(devices: Devices) -> String {
        devices.to_string()
    }
}

impl std::fmt::Display for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::First => Ok(()),
            Self::All => f.write_str("all"),
            Self::These(all) => f.write_str(&all.iter().map(usize::to_string).collect::<Vec<_>>().join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_named_by_their_numbers_and_one_may_be_named_again() {
        for (text, want, shares) in [
            ("", Devices::First, 1),
            ("all", Devices::All, 1),
            ("0", Devices::These(vec![0]), 1),
            ("1,0", Devices::These(vec![1, 0]), 1),
            ("0,2,0,0", Devices::These(vec![0, 2, 0, 0]), 3),
        ] {
            let read: Devices = text.parse().unwrap();
            assert_eq!((&read, read.shares_max()), (&want, shares), "{text}");
            assert_eq!(String::from(want).parse(), Ok(read), "{text} there and back");
        }
        assert_eq!(" 0, 1 ".parse(), Ok(Devices::These(vec![0, 1])));
        for text in ["-1", "0,", "0;1", "cuda:0", "none"] {
            let why = text.parse::<Devices>().unwrap_err();
            assert!(why.contains("such as 0,1") && why.contains(&format!("{text:?}")), "{why}");
        }
        let many = ["0"; REPLICAS_MAX as usize + 1].join(",");
        assert_eq!(many.parse::<Devices>(), Err("at most 32 GPUs can be named, got 33".into()));
    }
}
