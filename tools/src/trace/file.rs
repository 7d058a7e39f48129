//! A trace of experts as a file: a line of JSON that says what it is, then one a token.

use crate::CliError;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

const FORMAT: &str = "chimere expert trace 1";
/// Experts of a layer, at most.
pub(super) const EXPERTS_MAX: usize = 1 << 16;

/// The first line of a trace: the shape of the model, and the way that the trace was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TraceHead {
    format: String,
    /// Layers that choose experts.
    pub(crate) layers: usize,
    /// Experts of a layer.
    pub(crate) experts: usize,
    /// Of them, those that a token uses.
    pub(crate) used: usize,
    /// The way that the trace was made, for people.
    pub(crate) made: String,
}

impl TraceHead {
    pub(super) fn new(layers: usize, experts: usize, used: usize, made: String) -> Self {
        Self { format: FORMAT.into(), layers, experts, used, made }
    }

    /// Choices of a token.
    pub(super) fn choices(&self) -> usize {
        self.layers * self.used
    }
}

/// Which experts tokens used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpertTrace {
    pub(crate) head: TraceHead,
    /// Of each sequence, token by token: `[tokens][layers][used]`, those of a layer all different.
    pub(crate) sequences: Vec<Vec<u16>>,
}

/// A token of a file.
#[derive(Serialize, Deserialize)]
struct TraceLine {
    sequence: usize,
    experts: Vec<Vec<u16>>,
}

impl ExpertTrace {
    /// Tokens that each of the first `sequences` has.
    pub(crate) fn tokens(&self, sequences: usize) -> usize {
        let all = self.sequences.iter().take(sequences);
        all.map(|s| s.len() / self.head.choices().max(1)).min().unwrap_or(0)
    }

    /// Experts that token `at` of a sequence used, layer by layer.
    pub(crate) fn token(&self, sequence: usize, at: usize) -> &[u16] {
        let each = self.head.choices();
        &self.sequences[sequence][at * each..(at + 1) * each]
    }

    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        writeln!(file, "{}", serde_json::to_string(&self.head)?)?;
        for (sequence, tokens) in self.sequences.iter().enumerate() {
            for token in tokens.chunks_exact(self.head.choices()) {
                let experts = token.chunks_exact(self.head.used).map(<[u16]>::to_vec).collect();
                writeln!(file, "{}", serde_json::to_string(&TraceLine { sequence, experts })?)?;
            }
        }
        file.flush()
    }

    /// Reads a file, and checks every line of it.
    pub(crate) fn open(path: &Path) -> Result<Self, CliError> {
        let failed = |line: usize, why: String| CliError::Failed(format!("{}, line {line}: {why}", path.display()));
        let file = File::open(path).map_err(|e| CliError::Failed(format!("{}: {e}", path.display())))?;
        let mut lines = BufReader::new(file).lines().zip(1..).map(|(text, n)| match text {
            Ok(text) => Ok((text, n)),
            Err(e) => Err(failed(n, e.to_string())),
        });
        let (first, _) = lines.next().ok_or_else(|| failed(1, "wanted what the trace is of, got nothing".into()))??;
        let head = head(&first).map_err(|why| failed(1, why))?;
        let mut sequences: Vec<Vec<u16>> = Vec::new();
        for line in lines {
            let (text, n) = line?;
            let (sequence, experts) = token(&text, &head, sequences.len()).map_err(|why| failed(n, why))?;
            if sequence == sequences.len() {
                sequences.push(Vec::new());
            }
            sequences[sequence].extend(experts);
        }
        Ok(Self { head, sequences })
    }
}

fn head(text: &str) -> Result<TraceHead, String> {
    let head: TraceHead = serde_json::from_str(text).map_err(|e| format!("wanted what the trace is of: {e}"))?;
    if head.format != FORMAT {
        return Err(format!("format: wanted `{FORMAT}`, got `{}`", head.format));
    }
    let TraceHead { layers, experts, used, .. } = head;
    if layers == 0 || used == 0 || used > experts || experts > EXPERTS_MAX {
        return Err(format!(
            "wanted layers that use 1 or more of at most {EXPERTS_MAX} experts, got {layers} with {used} of {experts}"
        ));
    }
    Ok(head)
}

/// Sequence and experts of a line, where `sequences` have come before it.
fn token(text: &str, head: &TraceHead, sequences: usize) -> Result<(usize, Vec<u16>), String> {
    let TraceLine { sequence, experts } = serde_json::from_str(text).map_err(|e| e.to_string())?;
    if sequence > sequences {
        return Err(format!("sequence: wanted at most {sequences}, the next one, got {sequence}"));
    }
    if experts.len() != head.layers {
        return Err(format!("experts: wanted {} layers, got {}", head.layers, experts.len()));
    }
    for layer in &experts {
        let mut sorted = layer.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if layer.len() != head.used || sorted.len() != head.used || layer.iter().any(|e| *e as usize >= head.experts) {
            return Err(format!("experts: wanted {} different ones below {}, got {layer:?}", head.used, head.experts));
        }
    }
    Ok((sequence, experts.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_back_what_was_saved_and_names_the_line_that_is_wrong() {
        let trace = ExpertTrace {
            head: TraceHead::new(2, 8, 2, "by hand".into()),
            sequences: vec![vec![0, 1, 2, 3, 4, 5, 6, 7], vec![7, 6, 5, 4]],
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        trace.save(&path).unwrap();
        assert_eq!(ExpertTrace::open(&path).unwrap(), trace);
        assert_eq!((trace.tokens(1), trace.tokens(2), trace.token(0, 1)), (2, 1, &[4, 5, 6, 7][..]));
        let good = std::fs::read_to_string(&path).unwrap();
        for (line, why) in [
            (r#"{"sequence":3,"experts":[[0,1],[2,3]]}"#, "wanted at most 2, the next one, got 3"),
            (r#"{"sequence":0,"experts":[[0,1]]}"#, "wanted 2 layers, got 1"),
            (r#"{"sequence":0,"experts":[[0,1],[2,2]]}"#, "wanted 2 different ones below 8, got [2, 2]"),
            (r#"{"sequence":0,"experts":[[0,1],[2,8]]}"#, "below 8"),
            ("nonsense", "expected"),
        ] {
            std::fs::write(&path, format!("{good}{line}\n")).unwrap();
            let error = ExpertTrace::open(&path).unwrap_err().to_string();
            assert!(error.contains("line 5") && error.contains(why), "{error}");
        }
        std::fs::write(&path, "").unwrap();
        assert!(ExpertTrace::open(&path).unwrap_err().to_string().contains("got nothing"));
    }
}
