//! Names that requests may have as `model`: of the model, its encoder, adapters and pipelines. Each has one owner.

use crate::limits::SERVED_NAME_BYTES_MAX;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The names that are taken, in capitals or not. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ServedNames(Arc<Mutex<BTreeMap<String, NameOwner>>>);

/// Who answers to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameOwner {
    /// The served model, by its name or an alias.
    Model,
    /// The encoder of embeddings.
    Encoder,
    /// An adapter of the model.
    Adapter,
    /// A pipeline of the operator.
    Pipeline,
}

impl fmt::Display for NameOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Model => "the served model",
            Self::Encoder => "the encoder",
            Self::Adapter => "an adapter",
            Self::Pipeline => "a pipeline",
        })
    }
}

impl ServedNames {
    /// Those of a model.
    pub fn of_model<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let own = names.map(|name| (name.to_ascii_lowercase(), NameOwner::Model));
        Self(Arc::new(Mutex::new(own.collect())))
    }

    /// Takes a name.
    ///
    /// # Errors
    /// Whose the name is, if it is taken.
    pub fn claim(&self, name: &str, owner: NameOwner) -> Result<(), NameOwner> {
        let mut taken = self.0.lock();
        match taken.get(&name.to_ascii_lowercase()) {
            Some(other) => Err(*other),
            None => {
                taken.insert(name.to_ascii_lowercase(), owner);
                Ok(())
            }
        }
    }

    /// Gives a name back that was claimed.
    pub fn release(&self, name: &str) {
        self.0.lock().remove(&name.to_ascii_lowercase());
    }
}

/// Whether an adapter or a pipeline may have this name: every client can send it, and every file system keep it.
pub fn is_served_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    (1..=SERVED_NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_owner_however_it_is_written() {
        let names = ServedNames::of_model(["Tiny", "gpt-tiny"].into_iter());
        assert_eq!(names.claim("tiny", NameOwner::Adapter), Err(NameOwner::Model));
        names.claim("Poet", NameOwner::Adapter).unwrap();
        assert_eq!(names.claim("poet", NameOwner::Pipeline), Err(NameOwner::Adapter));
        names.release("POET");
        names.claim("poet", NameOwner::Pipeline).unwrap();
    }
}
