//! The tools that the operator has accepted, by a hash of all that a model is told of each: a file beside `tools.toml`
//! whose name ends in `.pins`, written by `chimere mcp accept` and read again when it changes.

use super::file::read_private;
use super::tool::{PinState, ServerTool};
use crate::holder::Watched;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Hashes by server and tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins(BTreeMap<String, BTreeMap<String, String>>);

impl Pins {
    /// What was said of a tool.
    pub fn state(&self, tool: &ServerTool) -> PinState {
        if let PinState::Unfit(_) = tool.state {
            return tool.state.clone();
        }
        match self.0.get(tool.server.name()).and_then(|server| server.get(&tool.name)) {
            Some(pin) if *pin == tool.pin => PinState::Accepted,
            Some(_) => PinState::Changed,
            None => PinState::New,
        }
    }

    /// Accepts these tools of a server as they are, and forgets all others of it.
    pub fn accept(&mut self, server: &str, tools: &[ServerTool]) {
        let fit = tools.iter().filter(|tool| !matches!(tool.state, PinState::Unfit(_)));
        self.0.insert(server.to_owned(), fit.map(|tool| (tool.name.clone(), tool.pin.clone())).collect());
    }

    /// Names of a server's accepted tools.
    pub fn names(&self, server: &str) -> impl Iterator<Item = &str> {
        self.0.get(server).into_iter().flat_map(|tools| tools.keys().map(String::as_str))
    }
}

/// The file of what was accepted.
pub struct PinFile {
    file: Watched<Pins>,
}

impl PinFile {
    /// The one beside a file of tools; without it nothing is accepted.
    ///
    /// # Errors
    /// If it is there and cannot be read.
    pub fn beside(tools: &Path) -> Result<Self, String> {
        Ok(Self { file: Watched::open(tools.with_extension("pins"), read)? })
    }

    /// The tools that are accepted now.
    pub fn pins(&self) -> Arc<Pins> {
        let told = |error| tracing::error!(error, "which tools are accepted stays as it was");
        self.file.now(|path, _| read(path), told)
    }

    /// Writes it anew, in one step.
    ///
    /// # Errors
    /// In the system's words.
    pub fn write(&self, pins: &Pins) -> Result<(), String> {
        let text = toml::to_string(&pins.0).map_err(|e| e.to_string())?;
        let (path, beside) = (self.path(), self.path().with_extension("pins.new"));
        let written = || {
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create(true).truncate(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let mut file = options.open(&beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&beside, path)
        };
        written().map_err(|e| format!("{}: {e}", path.display()))
    }

    /// The place where it lies.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

fn read(path: &Path) -> Result<Pins, String> {
    if !path.exists() {
        return Ok(Pins::default());
    }
    let text = read_private(path)?;
    let pins = toml::from_str(&text).map_err(|e| e.to_string().trim().replace('\n', " "));
    pins.map(Pins).map_err(|e| format!("{}: {e}", path.display()))
}
