//! A connection to an MCP server: the handshake in whichever revision the server speaks, and the program behind it, if
//! it is one that was started here.

use super::file::{Reached, ServerEntry, read_private};
use super::http_client::{HttpAddress, HttpClient};
use crate::limits::MCP_MESSAGE_BYTES_MAX;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, Peer, RoleClient, RunningService, serve_client_with_lifecycle};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// Where programs are looked for, which have no other environment than their files.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A connection that is open until it is dropped.
pub(super) struct McpConnection {
    running: RunningService<RoleClient, ClientConfig>,
    /// Ends the program and all that it started.
    _program: Option<ServerProgram>,
}

impl McpConnection {
    /// Connects, and starts the program before if the server is one. Takes no longer than the entry allows.
    pub(super) async fn open(entry: &ServerEntry) -> Result<Self, String> {
        let within = Duration::from_secs(entry.seconds);
        let opened = tokio::time::timeout(within, Self::open_soon(entry)).await;
        opened.unwrap_or_else(|_| Err(format!("it did not answer within {} s", entry.seconds)))
    }

    async fn open_soon(entry: &ServerEntry) -> Result<Self, String> {
        match &entry.reached {
            Reached::Program { argv, env_files, directory } => {
                let mut program = ServerProgram::start(argv, env_files, directory)?;
                let (read, write) = program.pipes()?;
                let transport = AsyncRwTransport::new(read, write).with_max_line_length(MCP_MESSAGE_BYTES_MAX);
                let running = serve_client_with_lifecycle(about_us(), transport, lifecycle()).await;
                let running = running.map_err(|e| e.to_string())?;
                Ok(Self { running, _program: Some(program) })
            }
            Reached::Url(server) => Self::over_http(HttpAddress::Operators(server.clone()), entry.seconds).await,
            Reached::Request { server, reach, .. } => {
                Self::over_http(HttpAddress::Requested(server.clone(), reach.clone()), entry.seconds).await
            }
        }
    }

    async fn over_http(address: HttpAddress, seconds: u64) -> Result<Self, String> {
        let config = StreamableHttpClientTransportConfig::with_uri(address.url());
        let client = HttpClient::new(address, Duration::from_secs(seconds));
        let transport = StreamableHttpClientTransport::with_client(client, config);
        let running = serve_client_with_lifecycle(about_us(), transport, lifecycle()).await;
        Ok(Self { running: running.map_err(|e| e.to_string())?, _program: None })
    }

    /// What requests go through.
    pub(super) fn peer(&self) -> Peer<RoleClient> {
        self.running.peer().clone()
    }

    /// It is over, and no request would be answered.
    pub(super) fn is_over(&self) -> bool {
        self.running.is_closed() || self.running.peer().is_transport_closed()
    }
}

/// The stateless revision, or a handshake with who does not know it.
fn lifecycle() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    }
}

/// The service as servers know it. It offers them nothing: no sampling, no roots, no questions to the user.
fn about_us() -> ClientConfig {
    ClientConfig::new(ClientCapabilities::default(), Implementation::new("chimere", env!("CARGO_PKG_VERSION")))
}

/// A program that was started here, in a process group of its own.
struct ServerProgram(Child);

impl ServerProgram {
    fn start(argv: &[String], env_files: &[std::path::PathBuf], directory: &Path) -> Result<Self, String> {
        let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", argv[0]);
        std::fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).env_clear().env("PATH", PATH).env("HOME", directory).env("LANG", "C.UTF-8");
        for file in env_files {
            command.envs(variables(&read_private(file)?).map_err(|e| format!("{}: {e}", file.display()))?);
        }
        command.current_dir(directory).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        #[cfg(unix)]
        command.process_group(0);
        command.spawn().map(Self).map_err(|e| failed(&e))
    }

    fn pipes(&mut self) -> Result<(tokio::process::ChildStdout, tokio::process::ChildStdin), String> {
        self.0.stdout.take().zip(self.0.stdin.take()).ok_or_else(|| "the program has no pipes".into())
    }
}

impl Drop for ServerProgram {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(group) = self.0.id().and_then(|id| rustix::process::Pid::from_raw(id as i32)) {
            // It may have ended by itself.
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
        }
    }
}

/// Lines of `NAME=value`; blank ones and those that begin with `#` are left out.
fn variables(text: &str) -> Result<Vec<(String, String)>, String> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let variable = |(n, line): (usize, &str)| {
        let parted = line.split_once('=').filter(|(name, _)| !name.trim().is_empty() && !line.contains('\0'));
        let (name, value) = parted.ok_or_else(|| format!("line {n} is not NAME=value"))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    lines.map(variable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_lines_of_names_and_values() {
        let read = variables("# token\nTOKEN = a=b \n\nX=").unwrap();
        assert_eq!(read, [("TOKEN".to_owned(), "a=b".to_owned()), ("X".to_owned(), String::new())]);
        assert_eq!(variables("A=1\nsecret").unwrap_err(), "line 2 is not NAME=value");
    }
}
