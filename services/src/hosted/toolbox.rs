//! All MCP servers of the operator's file, which is read again when it changes; one with a mistake changes nothing.

use super::approvals::Approvals;
use super::file::{ServerEntry, ToolsFile};
use super::pins::{PinFile, Pins};
use super::requested::{NotRequested, RequestHosts};
use super::requested_server::RequestedServer;
use super::server::McpServer;
use super::tool::{PinState, ServerTool};
use crate::audit::Audit;
use crate::holder::{ToolRights, Watched};
use crate::metrics;
use chimere_engine::ids::KeyId;
use parking_lot::Mutex;
use rmcp::model::Tool;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The tools that there are. Without a file there are none.
#[derive(Default)]
pub struct Toolbox {
    open: Option<OpenToolbox>,
    /// Calls that wait for an approval.
    pub approvals: Approvals,
    /// Where calls are written down.
    pub audit: Audit,
    /// Servers that requests may name themselves.
    pub request_hosts: RequestHosts,
}

struct OpenToolbox {
    file: Watched<NamedServers>,
    pins: PinFile,
    runtime: ToolThread,
    /// Withheld tools that the log has been told of, by name and pin.
    told: Mutex<HashSet<(String, String)>>,
}

/// The servers that the file names, by their names.
struct NamedServers {
    servers: BTreeMap<String, Arc<McpServer>>,
    /// The tools of these servers as they were judged last: they go with the servers, whose connections they would
    /// keep.
    judged: Mutex<BTreeMap<String, JudgedTools>>,
}

/// A server's tools, and the list and the pins by which they were judged: as long as both are the same, so are they,
/// and no request hashes their schemas again.
struct JudgedTools {
    listed: Arc<Vec<Tool>>,
    pins: Arc<Pins>,
    tools: Vec<Arc<ServerTool>>,
}

/// A server's tools, each with what the operator has said of it.
#[derive(Clone, Debug, Default)]
pub struct ListedTools {
    /// In the order of their names.
    pub tools: Vec<Arc<ServerTool>>,
    /// Why there are none.
    pub error: Option<String>,
}

impl Toolbox {
    /// That of a file.
    ///
    /// # Errors
    /// If the file has a mistake, with its place.
    pub fn open(path: &Path, audit: Audit) -> Result<Self, String> {
        let runtime = ToolThread::start()?;
        let read = |path: &Path| Ok(servers_of(ToolsFile::read(path)?, &BTreeMap::new(), &runtime.handle));
        let (file, pins) = (Watched::open(path.to_owned(), read)?, PinFile::beside(path)?);
        let open = OpenToolbox { file, pins, runtime, told: Mutex::default() };
        Ok(Self { open: Some(open), audit, ..Self::default() })
    }

    /// One in which the operator names no server.
    pub fn without_file(audit: Audit) -> Self {
        Self { audit, ..Self::default() }
    }

    /// That of a file, for its operator at a terminal.
    ///
    /// # Errors
    /// If the file has a mistake, with its place.
    pub fn for_operator(path: &Path) -> Result<Self, String> {
        Self::open(path, Audit::default())
    }

    /// All servers, by name.
    pub fn all_servers(&self) -> Vec<Arc<McpServer>> {
        self.open.iter().flat_map(|open| open.named().servers.values().cloned().collect::<Vec<_>>()).collect()
    }

    /// The servers whose tools an account may have run, by name, as far as its key's line allows them.
    pub fn servers(&self, account: KeyId, rights: &ToolRights) -> Vec<Arc<McpServer>> {
        self.all_servers().into_iter().filter(|server| server.admits(account, rights)).collect()
    }

    /// The one of this name, if an account may have its tools run and its key's line allows it.
    pub fn server(&self, account: KeyId, rights: &ToolRights, name: &str) -> Option<Arc<McpServer>> {
        let server = self.open.as_ref()?.named().servers.get(name).cloned()?;
        server.admits(account, rights).then_some(server)
    }

    /// The server that a request names by this label and its address.
    ///
    /// # Errors
    /// If the operator does not allow it, or has a server of this name.
    pub fn requested(
        &self,
        rights: &ToolRights,
        label: &str,
        asked: &RequestedServer,
    ) -> Result<Arc<McpServer>, NotRequested> {
        if self.open.as_ref().is_some_and(|open| open.named().servers.contains_key(label)) {
            return Err((
                "server_label",
                format!("is {label:?}, which the operator's file has: leave `server_url` out"),
            ));
        }
        self.request_hosts.server(label, asked, rights)
    }

    /// A server's tools, accepted and not. Tells the log and the metrics of those that are withheld, each once.
    pub async fn list(&self, server: &Arc<McpServer>) -> ListedTools {
        let tools = match server.tools().await {
            Ok(tools) => tools,
            Err(why) => return ListedTools { tools: Vec::new(), error: Some(why) },
        };
        let tools = match &self.open {
            _ if server.requested_at().is_some() => {
                tools.iter().map(|tool| Arc::new(ServerTool::requested(server, tool))).collect()
            }
            Some(open) => open.judged(server, tools),
            None => Vec::new(),
        };
        ListedTools { tools, error: None }
    }

    /// Accepts all tools of a server as they are, and gives them.
    ///
    /// # Errors
    /// If it cannot be reached, or the file cannot be written.
    pub async fn accept(&self, server: &Arc<McpServer>) -> Result<Vec<ServerTool>, String> {
        let open = self.open.as_ref().ok_or("there is no file of tools")?;
        let tools = server.tools().await?;
        let tools: Vec<ServerTool> = tools.iter().map(|tool| ServerTool::listed(server, tool)).collect();
        let mut pins = Pins::clone(&open.pins.pins());
        pins.accept(server.name(), &tools);
        open.pins.write(&pins)?;
        Ok(tools)
    }

    /// The tools that are accepted, and where that is written down.
    pub fn pins(&self) -> Option<(Arc<Pins>, &Path)> {
        self.open.as_ref().map(|open| (open.pins.pins(), open.pins.path()))
    }
}

impl OpenToolbox {
    fn named(&self) -> Arc<NamedServers> {
        let read = |path: &Path, before: &NamedServers| {
            Ok(servers_of(ToolsFile::read(path)?, &before.servers, &self.runtime.handle))
        };
        self.file.now(read, |error| {
            ::metrics::counter!(metrics::TOOL_FILES_REFUSED).increment(1);
            tracing::error!(error, "the tools stay as they were");
        })
    }

    /// What the operator says of the tools that a server lists.
    fn judged(&self, server: &Arc<McpServer>, listed: Arc<Vec<Tool>>) -> Vec<Arc<ServerTool>> {
        let (pins, named) = (self.pins.pins(), self.named());
        let is_same = |before: &&JudgedTools| {
            let same_server = before.tools.iter().all(|tool| Arc::ptr_eq(&tool.server, server));
            same_server && Arc::ptr_eq(&before.listed, &listed) && Arc::ptr_eq(&before.pins, &pins)
        };
        if let Some(before) = named.judged.lock().get(server.name()).filter(is_same) {
            return before.tools.clone();
        }
        let judged = |tool| {
            let tool = ServerTool::listed(server, tool);
            Arc::new(ServerTool { state: pins.state(&tool), ..tool })
        };
        let tools: Vec<Arc<ServerTool>> = listed.iter().map(judged).collect();
        tools.iter().for_each(|tool| self.tell(tool));
        if named.servers.get(server.name()).is_some_and(|named| Arc::ptr_eq(named, server)) {
            let judged = JudgedTools { listed, pins, tools: tools.clone() };
            named.judged.lock().insert(server.name().to_owned(), judged);
        }
        tools
    }

    /// Says once of a tool that it is withheld: again only if it was accepted in between.
    fn tell(&self, tool: &ServerTool) {
        if tool.state == PinState::Accepted {
            self.told.lock().retain(|(shown, _)| *shown != tool.shown);
            return;
        }
        if !self.told.lock().insert((tool.shown.clone(), format!("{} {}", tool.pin, tool.state.name()))) {
            return;
        }
        if tool.state == PinState::Changed {
            ::metrics::counter!(metrics::TOOLS_CHANGED, "server" => tool.server.name().to_owned()).increment(1);
        }
        let (state, server) = (tool.state.name(), tool.server.name());
        tracing::warn!(tool = tool.shown, state, "a tool is withheld; `chimere mcp accept {server}` takes it as it is");
    }
}

/// The servers of a file. One of which nothing changed keeps its connection.
fn servers_of(file: ToolsFile, before: &BTreeMap<String, Arc<McpServer>>, runtime: &Handle) -> NamedServers {
    let one = |(name, entry): (String, ServerEntry)| {
        let kept = before.get(&name).filter(|server| *server.entry() == entry).cloned();
        (name.clone(), kept.unwrap_or_else(|| Arc::new(McpServer::new(name, entry, runtime.clone()))))
    };
    NamedServers { servers: file.servers.into_iter().map(one).collect(), judged: Mutex::default() }
}

/// The thread that connections live on, until it is dropped.
struct ToolThread {
    handle: Handle,
    _end: oneshot::Sender<()>,
}

impl ToolThread {
    fn start() -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| format!("no thread for tools: {e}"))?;
        let (handle, (end, ended)) = (runtime.handle().clone(), oneshot::channel::<()>());
        let thread = std::thread::Builder::new().name("tools".into());
        // An error is its end too.
        let spawned = thread.spawn(move || runtime.block_on(async { ended.await.ok() }));
        spawned.map_err(|e| format!("no thread for tools: {e}"))?;
        Ok(Self { handle, _end: end })
    }
}
