//! All versions of one thing that is learned, and which of them is served. Data in, data out: the database is not here.

use super::stage::{StageError, StageEvent, VersionStage};
use crate::learning::gate::{Outcome, Verdict};
use crate::limits::LEARNING_VERSIONS_MAX;
use serde::{Deserialize, Serialize};

/// One version, without its bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Version {
    /// Counted from 1, and never used again.
    pub number: u64,
    /// Seconds since 1970 when it was made.
    pub at: u64,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// The model that it was made for: it is served with no other one.
    pub base: String,
    /// The version that was served when it was made.
    pub parent: Option<u64>,
    /// The stage that it is in.
    pub stage: VersionStage,
    /// What the gate said of it, if it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Why it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Somebody took back what it was made from: it is never served again once another one is.
    #[serde(default)]
    pub stale: bool,
}

/// See the file's head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lineage {
    /// The number of the last version that was made.
    last: u64,
    /// Those that are kept, the oldest first.
    versions: Vec<Version>,
    /// Versions that were served before the current one, the latest last.
    served_before: Vec<u64>,
}

/// A new version, without the number that it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVersion {
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// The model that it was made for.
    pub base: String,
}

/// Why a lineage cannot be changed so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineageError {
    /// There is no such version.
    #[error("there is no version {number}; there are {have}")]
    Unknown {
        /// The version asked for.
        number: u64,
        /// The versions that there are.
        have: String,
    },
    /// That cannot happen to it where it stands.
    #[error(transparent)]
    VersionStage(#[from] StageError),
    /// Its verdict does not let it through.
    #[error("version {number} has not passed the gate")]
    NotPassed {
        /// The version asked for.
        number: u64,
    },
    /// Nothing is served that could be taken back.
    #[error("no version is served, so none can be taken back")]
    NothingServed,
}

impl Version {
    /// Whether its bytes are kept: it may be served, now or again.
    pub fn has_bytes(&self) -> bool {
        self.stage == VersionStage::Current || (self.stage != VersionStage::Refused && !self.stale)
    }
}

impl Lineage {
    /// Those that are kept, the oldest first.
    pub fn versions(&self) -> &[Version] {
        &self.versions
    }

    /// The one that answers everybody.
    pub fn current(&self) -> Option<&Version> {
        self.versions.iter().find(|version| version.stage == VersionStage::Current)
    }

    /// The one that answers everybody of a model: one that was made for another model is withheld.
    pub fn served(&self, base: &str) -> Option<&Version> {
        self.current().filter(|version| version.base == base)
    }

    /// One of them.
    ///
    /// # Errors
    /// If it is not kept.
    pub fn version(&self, number: u64) -> Result<&Version, LineageError> {
        let found = self.versions.iter().find(|version| version.number == number);
        found.ok_or_else(|| self.unknown(number))
    }

    /// Adds a candidate and returns its number. Whatever was on its way is refused: one at a time goes through.
    pub fn propose(&mut self, new: NewVersion, now: u64) -> u64 {
        self.last += 1;
        for other in self.versions.iter_mut().filter(|version| version.stage.is_on_its_way()) {
            other.stage = VersionStage::Refused;
            other.why = Some(format!("version {} took its place", self.last));
        }
        let parent = self.current().map(|version| version.number);
        let NewVersion { sha256, bytes, base } = new;
        self.versions.push(Version {
            number: self.last,
            at: now,
            sha256,
            bytes,
            base,
            parent,
            stage: VersionStage::Candidate,
            verdict: None,
            why: None,
            stale: false,
        });
        self.last
    }

    /// Notes what the gate says of a candidate.
    ///
    /// # Errors
    /// If there is none of this number, or it is no candidate any more.
    pub fn judged(&mut self, number: u64, verdict: Verdict) -> Result<VersionStage, LineageError> {
        let stage = self.version(number)?.stage;
        let said = verdict.reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let (stage, why) = match verdict.outcome {
            Outcome::Passed => (stage.after(StageEvent::Passed)?, None),
            Outcome::Refused => (stage.after(StageEvent::Refused)?, Some(said)),
            // It may be asked more, or be decided by a person, who makes another one.
            Outcome::NeedsMore | Outcome::People => (stage, Some(said)),
        };
        let version = self.version_mut(number)?;
        version.verdict = Some(verdict);
        version.stage = stage;
        version.why = why;
        Ok(stage)
    }

    /// Moves a version on; one that becomes the current one takes the place of the one before. `why` is kept where it
    /// is refused.
    ///
    /// # Errors
    /// If there is none of this number, it has not passed the gate, or that cannot happen to it where it stands.
    pub fn advance(&mut self, number: u64, event: StageEvent, why: Option<&str>) -> Result<VersionStage, LineageError> {
        let version = self.version(number)?;
        // Only the gate lets through, and only a rollback restores.
        if matches!(event, StageEvent::Passed | StageEvent::Replaced | StageEvent::Restored) {
            return Err(StageError { stage: version.stage, event }.into());
        }
        let (was, stage) = (version.stage, version.stage.after(event)?);
        if stage == VersionStage::Current {
            if version.stale || version.verdict.is_none() {
                return Err(LineageError::NotPassed { number });
            }
            self.replace_current()?;
        }
        let version = self.version_mut(number)?;
        version.stage = stage;
        version.why = why.map(str::to_owned);
        if was == VersionStage::Current {
            self.restore_former()?;
        }
        Ok(stage)
    }

    /// Takes the current version back. What was served before it is served again, if nobody has taken back what it was
    /// made from; returns that.
    ///
    /// # Errors
    /// If none is served.
    pub fn roll_back(&mut self) -> Result<Option<u64>, LineageError> {
        let number = self.current().map(|version| version.number).ok_or(LineageError::NothingServed)?;
        self.advance(number, StageEvent::Refused, Some("it was taken back"))?;
        Ok(self.current().map(|version| version.number))
    }

    /// Somebody took back what a version was made from. Its bytes go at once, but for those of the one that is served:
    /// they stay until another one is.
    pub fn spoil(&mut self, number: u64) {
        let Ok(version) = self.version_mut(number) else { return };
        version.stale = true;
        if version.stage.is_on_its_way() {
            version.stage = VersionStage::Refused;
            version.why = Some("somebody took back what it was made from".to_owned());
        }
    }

    /// Lets go of all but the last versions that were served and the last that were refused; the current one stays, and
    /// so does what is on its way. Returns the numbers of those that are gone.
    pub fn prune(&mut self) -> Vec<u64> {
        let of = |stages: &'static [VersionStage]| {
            let all: Vec<&Version> = self.versions.iter().filter(|version| stages.contains(&version.stage)).collect();
            let over = all.len().saturating_sub(LEARNING_VERSIONS_MAX);
            let old = all.into_iter().filter(|version| version.stage != VersionStage::Current).take(over);
            old.map(|version| version.number).collect::<Vec<_>>()
        };
        let gone = [of(&[VersionStage::Former, VersionStage::Current]), of(&[VersionStage::Refused])].concat();
        self.versions.retain(|version| !gone.contains(&version.number));
        self.served_before.retain(|number| !gone.contains(number));
        gone
    }

    fn replace_current(&mut self) -> Result<(), LineageError> {
        let Some(current) = self.versions.iter_mut().find(|version| version.stage == VersionStage::Current) else {
            return Ok(());
        };
        current.stage = current.stage.after(StageEvent::Replaced)?;
        self.served_before.push(current.number);
        Ok(())
    }

    /// What was served last and can still be served is served again.
    fn restore_former(&mut self) -> Result<(), LineageError> {
        while let Some(number) = self.served_before.pop() {
            let Ok(former) = self.version_mut(number) else { continue };
            if !former.stale {
                former.stage = former.stage.after(StageEvent::Restored)?;
                return Ok(());
            }
        }
        Ok(())
    }

    fn version_mut(&mut self, number: u64) -> Result<&mut Version, LineageError> {
        let unknown = self.unknown(number);
        self.versions.iter_mut().find(|version| version.number == number).ok_or(unknown)
    }

    fn unknown(&self, number: u64) -> LineageError {
        let have: Vec<_> = self.versions.iter().map(|version| version.number.to_string()).collect();
        let have = if have.is_empty() { "none".to_owned() } else { have.join(", ") };
        LineageError::Unknown { number, have }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::learning::gate::{BatchFindings, Canaries, ProbeDivergence, Reason};

    pub(in crate::learning) fn verdict(outcome: Outcome) -> Verdict {
        let reasons = match outcome {
            Outcome::Passed => Vec::new(),
            _ => vec![Reason::Contradiction { subjects: 1 }],
        };
        let (families, batch) = (Vec::new(), BatchFindings::default());
        let (divergence, canaries) = (ProbeDivergence::default(), Canaries::default());
        Verdict { outcome, reasons, families, divergence, canaries, speed: 1.0, batch }
    }

    fn new(base: &str) -> NewVersion {
        NewVersion { sha256: "aa".into(), bytes: 2, base: base.into() }
    }

    fn served(lineage: &mut Lineage) -> u64 {
        let number = lineage.propose(new("m"), 0);
        lineage.judged(number, verdict(Outcome::Passed)).unwrap();
        lineage.advance(number, StageEvent::Accepted, None).unwrap();
        number
    }

    fn current(lineage: &Lineage) -> Option<u64> {
        lineage.current().map(|version| version.number)
    }

    #[test]
    fn each_version_takes_the_place_of_the_one_before_and_gives_it_back() {
        let mut lineage = Lineage::default();
        let numbers = [0; 3].map(|_| served(&mut lineage));
        assert_eq!((numbers, current(&lineage)), ([1, 2, 3], Some(3)));
        assert_eq!(lineage.versions()[2].parent, Some(2));
        assert_eq!(lineage.roll_back(), Ok(Some(2)));
        assert_eq!(served(&mut lineage), 4);
        assert_eq!(
            [lineage.roll_back(), lineage.roll_back(), lineage.roll_back()],
            [Ok(Some(2)), Ok(Some(1)), Ok(None)]
        );
        assert_eq!(lineage.roll_back(), Err(LineageError::NothingServed));
    }

    #[test]
    fn nothing_is_served_that_the_gate_has_not_let_through() {
        let mut lineage = Lineage::default();
        let number = lineage.propose(new("m"), 0);
        for event in [StageEvent::Accepted, StageEvent::CanaryHeld, StageEvent::Passed, StageEvent::Restored] {
            assert!(lineage.advance(number, event, None).is_err(), "{event:?}");
        }
        for outcome in [Outcome::NeedsMore, Outcome::People] {
            assert_eq!(lineage.judged(number, verdict(outcome)), Ok(VersionStage::Candidate));
            assert!(lineage.advance(number, StageEvent::Accepted, None).is_err());
        }
        assert_eq!(lineage.judged(number, verdict(Outcome::Refused)), Ok(VersionStage::Refused));
        let why = lineage.version(number).unwrap().why.clone().unwrap();
        assert!(why.contains("a person has to choose"), "{why}");
        assert!(lineage.judged(number, verdict(Outcome::Passed)).is_err(), "it stays refused");
        let error = lineage.version(9).unwrap_err().to_string();
        assert_eq!(error, "there is no version 9; there are 1");
    }

    #[test]
    fn one_version_at_a_time_is_on_its_way_and_one_of_another_model_is_withheld() {
        let mut lineage = Lineage::default();
        let first = served(&mut lineage);
        let second = lineage.propose(new("m"), 5);
        lineage.judged(second, verdict(Outcome::Passed)).unwrap();
        lineage.advance(second, StageEvent::ShadowHeld, None).unwrap();
        let third = lineage.propose(new("m"), 6);
        let replaced = lineage.version(second).unwrap();
        assert_eq!(
            (replaced.stage, replaced.why.as_deref()),
            (VersionStage::Refused, Some("version 3 took its place"))
        );
        assert_eq!((third, current(&lineage)), (3, Some(first)));
        assert!(lineage.served("m").is_some() && lineage.served("another").is_none());
    }

    #[test]
    fn what_somebody_took_back_is_never_restored() {
        let mut lineage = Lineage::default();
        let numbers = [0; 3].map(|_| served(&mut lineage));
        numbers[1..].iter().for_each(|number| lineage.spoil(*number));
        let kept: Vec<bool> = lineage.versions().iter().map(Version::has_bytes).collect();
        assert_eq!(kept, [true, false, true], "the one that is served is so until another one is");
        assert_eq!(lineage.roll_back(), Ok(Some(1)));
        let fourth = lineage.propose(new("m"), 0);
        lineage.judged(fourth, verdict(Outcome::Passed)).unwrap();
        lineage.spoil(fourth);
        assert_eq!(lineage.version(fourth).unwrap().stage, VersionStage::Refused);
    }

    #[test]
    fn the_last_eight_that_were_served_are_kept_and_the_last_eight_that_were_refused() {
        let mut lineage = Lineage::default();
        let first = served(&mut lineage);
        for _ in 0..20 {
            lineage.propose(new("m"), 0);
        }
        assert_eq!(lineage.prune(), (2..=12).collect::<Vec<_>>());
        let kept: Vec<u64> = lineage.versions().iter().map(|version| version.number).collect();
        assert_eq!(kept, [first, 13, 14, 15, 16, 17, 18, 19, 20, 21], "the last one is on its way");
        let later = [0; 10].map(|_| served(&mut lineage));
        assert_eq!(lineage.prune(), [first, later[0], later[1], 13]);
        let back: Vec<_> = (0..8).map(|_| lineage.roll_back().unwrap()).collect();
        assert_eq!(back[6..], [Some(later[2]), None], "each that is kept can be gone back to");
    }
}
