//! The file of the operator's tools, `tools.toml`: which MCP servers there are, and what each of them may do. Its owner
//! alone may read it, because it names programs that run here.

use super::requested_server::RequestedServer;
use crate::holder::{AdmittedAccounts, ToolRights};
use crate::limits;
use crate::outbound::{OperatorsServer, PublicReach};
use chimere_engine::files::read_regular_text;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Between the name of a server, or of a namespace of the client's own, and that of its tool.
pub const SEPARATOR: &str = "__";

/// The name that a model calls a server's or a namespace's tool by.
pub fn shown_name(server: &str, tool: &str) -> String {
    format!("{server}{SEPARATOR}{tool}")
}

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolsFile {
    /// The servers by their names.
    pub servers: BTreeMap<String, ServerEntry>,
}

/// An MCP server as the operator describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerEntry {
    /// The way to it.
    pub reached: Reached,
    /// Seconds that connecting, listing and each call may take.
    pub seconds: u64,
    /// Bytes of a result that the model reads.
    pub result_bytes: usize,
    /// Who may have its tools run.
    pub keys: AdmittedAccounts,
    /// The tools of which the operator agrees that they change nothing and send nothing out of the LAN.
    pub read_only: Vec<String>,
    /// Which calls wait for somebody's approval.
    pub approval: Approval,
}

/// The way to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// A program that is started here and spoken to over its standard input and output.
    Program {
        /// The program and its arguments.
        argv: Vec<String>,
        /// Files of `NAME=value` lines, which are its environment.
        env_files: Vec<PathBuf>,
        /// The directory that it runs in.
        directory: PathBuf,
    },
    /// An address that is spoken to over HTTP.
    Url(OperatorsServer),
    /// An address that a request names, which is spoken to over HTTP as long as the request lasts.
    Request {
        /// The address, and what its server is told of the caller.
        server: RequestedServer,
        /// Where the connection may go.
        reach: Arc<PublicReach>,
        /// Host of the address.
        host: String,
    },
}

/// Which calls of a server wait for an approval, as long as nothing foreign has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Approval {
    /// All that are not said to be read-only.
    #[default]
    Writes,
    /// All of its calls.
    Always,
    /// None of its calls.
    Never,
}

impl Approval {
    /// The word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Writes => "writes",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawTools {
    mcp: BTreeMap<String, RawServer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawServer {
    argv: Vec<String>,
    env_files: Vec<PathBuf>,
    url: String,
    timeout_seconds: u64,
    result_bytes: usize,
    keys: Vec<String>,
    read_only: Vec<String>,
    approval: Approval,
}

impl Default for RawServer {
    fn default() -> Self {
        Self {
            argv: Vec::new(),
            env_files: Vec::new(),
            url: String::new(),
            timeout_seconds: limits::MCP_SECONDS,
            result_bytes: limits::MCP_RESULT_BYTES,
            keys: vec!["*".to_owned()],
            read_only: Vec::new(),
            approval: Approval::default(),
        }
    }
}

impl ToolsFile {
    /// Reads a file that its owner alone may read.
    ///
    /// # Errors
    /// If it cannot be read or has a mistake, with its place.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = read_private(path)?;
        Self::parse(&text, path.parent().unwrap_or(Path::new(""))).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// From the text of such a file; relative paths in it begin at `directory`.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn parse(text: &str, directory: &Path) -> Result<Self, String> {
        let raw: RawTools = toml::from_str(text).map_err(|e| e.to_string().trim().replace('\n', " "))?;
        if raw.mcp.len() > limits::MCP_SERVERS_MAX {
            let (got, max) = (raw.mcp.len(), limits::MCP_SERVERS_MAX);
            return Err(format!("mcp: names {got} servers, at most {max} are taken"));
        }
        let one = |(name, raw): (String, RawServer)| {
            let entry = entry(&name, raw, directory).map_err(|(key, why)| format!("mcp.{name}.{key}: {why}"))?;
            Ok((name, entry))
        };
        let servers = raw.mcp.into_iter().map(one).collect::<Result<_, String>>()?;
        Ok(Self { servers })
    }
}

/// Checks a server's keys.
fn entry(name: &str, raw: RawServer, directory: &Path) -> Result<ServerEntry, (&'static str, String)> {
    check_name(name).map_err(|why| ("name", why))?;
    let reached = match (raw.argv.is_empty(), raw.url.is_empty()) {
        (false, true) if raw.argv.iter().any(|word| word.contains('\0')) || raw.argv[0].is_empty() => {
            return Err(("argv", "wants a program and its arguments, none with a zero byte".into()));
        }
        (false, true) => Reached::Program {
            argv: raw.argv,
            env_files: raw.env_files.iter().map(|file| directory.join(file)).collect(),
            directory: directory.join("mcp").join(name),
        },
        (true, false) => Reached::Url(OperatorsServer::configured(&raw.url).map_err(|why| ("url", why.to_string()))?),
        _ => return Err(("argv", "give either argv or url".into())),
    };
    if !(1..=limits::MCP_SECONDS_MAX).contains(&raw.timeout_seconds) {
        let why = format!("wants 1 to {}, got {}", limits::MCP_SECONDS_MAX, raw.timeout_seconds);
        return Err(("timeout_seconds", why));
    }
    if !(256..=limits::MCP_RESULT_BYTES_MAX).contains(&raw.result_bytes) {
        let why = format!("wants 256 to {}, got {}", limits::MCP_RESULT_BYTES_MAX, raw.result_bytes);
        return Err(("result_bytes", why));
    }
    Ok(ServerEntry {
        reached,
        seconds: raw.timeout_seconds,
        result_bytes: raw.result_bytes,
        keys: AdmittedAccounts::of(&raw.keys).map_err(|why| ("keys", why))?,
        read_only: raw.read_only,
        approval: raw.approval,
    })
}

/// The name stands before that of each tool, parted from it by two underscores.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if ToolRights::has_word(name) {
        return Err("is a word of its own on the line of a key (`tools=web`, `tools=none`), and can be no name".into());
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let most = limits::MCP_SERVER_NAME_CHARS_MAX;
    if (1..=most).contains(&name.len()) && name.chars().all(plain) && !name.contains(SEPARATOR) && !name.ends_with('_')
    {
        return Ok(());
    }
    Err(format!("wants 1 to {most} letters, digits, `-` or single `_`"))
}

/// Text of a file that nobody but its owner can read or change.
///
/// # Errors
/// If it is of another kind, too large, no text, or others may read it.
pub(super) fn read_private(path: &Path) -> Result<String, String> {
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    check_private(path).map_err(|e| failed(&e))?;
    read_regular_text(path, limits::TOOLS_FILE_BYTES_MAX).map_err(|e| failed(&e))
}

#[cfg(unix)]
fn check_private(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).map_err(|e| e.to_string())?.permissions().mode() & 0o777;
    if mode & 0o177 == 0 {
        return Ok(());
    }
    Err(format!("others can read or change it: wanted mode 600, got {mode:03o} (chmod 600)"))
}

#[cfg(not(unix))]
fn check_private(_: &Path) -> Result<(), String> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ToolsFile, String> {
        ToolsFile::parse(text, Path::new("/etc/chimere"))
    }

    #[test]
    fn a_server_is_a_program_or_an_address_with_bounds_of_its_own() {
        let file =
            parse("[mcp.files]\nargv = [\"srv\", \"-x\"]\nenv_files = [\"files.env\"]\nread_only = [\"ls\"]").unwrap();
        let entry = &file.servers["files"];
        let Reached::Program { argv, env_files, directory } = &entry.reached else { panic!("{entry:?}") };
        assert_eq!(argv, &["srv", "-x"]);
        assert_eq!(
            (env_files[0].as_path(), directory.as_path()),
            (Path::new("/etc/chimere/files.env"), Path::new("/etc/chimere/mcp/files"))
        );
        assert_eq!((entry.approval, entry.seconds), (Approval::Writes, limits::MCP_SECONDS));
        let file =
            parse("[mcp.wiki]\nurl = \"http://10.0.0.7/mcp\"\napproval = \"always\"\ntimeout_seconds = 2").unwrap();
        let entry = &file.servers["wiki"];
        assert_eq!((entry.approval, entry.seconds), (Approval::Always, 2));
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        for (text, said) in [
            ("[mcp.a]", "mcp.a.argv: give either argv or url"),
            ("[mcp.a]\nargv = [\"x\"]\nurl = \"http://x\"", "mcp.a.argv: give either"),
            ("[mcp.a]\nurl = \"file:///mcp\"", "mcp.a.url: wants an address"),
            ("[mcp.a]\nargv = [\"x\"]\ncommand = \"y\"", "unknown field `command`"),
            ("[mpc.a]\nargv = [\"x\"]", "unknown field `mpc`"),
            ("[mcp.a__b]\nargv = [\"x\"]", "mcp.a__b.name: wants 1 to 32"),
            ("[mcp.web]\nargv = [\"x\"]", "mcp.web.name: is a word of its own on the line of a key"),
            ("[mcp.none]\nargv = [\"x\"]", "mcp.none.name: is a word of its own on the line of a key"),
            ("[mcp.a]\nargv = [\"x\"]\ntimeout_seconds = 0", "mcp.a.timeout_seconds: wants 1 to 600, got 0"),
            ("[mcp.a]\nargv = [\"x\"]\nresult_bytes = 9", "mcp.a.result_bytes: wants 256 to"),
            ("[mcp.a]\nargv = [\"x\"]\nkeys = [\"bob\"]", "mcp.a.keys: wanted the SHA-256"),
            ("[mcp.a]\nargv = [\"x\"]\napproval = \"ask\"", "unknown variant `ask`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tools.toml");
        std::fs::write(&path, "[mcp.a]\nargv = [\"x\"]").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o640);
        assert!(ToolsFile::read(&path).unwrap_err().contains("wanted mode 600, got 640"));
        mode(0o600);
        assert_eq!(ToolsFile::read(&path).unwrap().servers.len(), 1);
    }
}
