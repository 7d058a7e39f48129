//! MCP servers that a request itself names by their address, on hosts that the operator lists (`mcp.request_hosts`).
//! Nobody has accepted their tools, so nothing that they say of themselves counts.

use super::file::{Approval, Reached, ServerEntry, check_name};
use super::requested_server::RequestedServer;
use super::server::McpServer;
use crate::holder::{AdmittedAccounts, ToolRights};
use crate::limits;
use crate::outbound::{Destination, PublicReach, Refused};
use std::sync::Arc;
use tokio::runtime::Handle;

/// What the operator allows of servers that requests name.
#[derive(Clone, Debug, Default)]
pub struct RequestHosts {
    reach: Option<Arc<PublicReach>>,
    /// As it was configured, for errors.
    listed: Arc<str>,
    /// A request's `require_approval: "never"` counts.
    trusts: bool,
}

/// Why a request may not name a server: the field of its tool that is at fault, and the reason.
pub type NotRequested = (&'static str, String);

impl RequestHosts {
    /// The hosts of a list with commas between them, as [`PublicReach::allow`] reads each; with `trusts` a request may
    /// say that no call waits for an approval.
    ///
    /// # Errors
    /// The first entry that is none.
    pub fn of(list: &str, trusts: bool) -> Result<Self, Refused> {
        let mut entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).peekable();
        if entries.peek().is_none() {
            return Ok(Self::default());
        }
        let mut reach = PublicReach::listed();
        entries.try_for_each(|entry| reach.allow(entry))?;
        Ok(Self { reach: Some(Arc::new(reach)), listed: list.trim().into(), trusts })
    }

    /// A request's word that no call waits counts.
    pub fn trusts(&self) -> bool {
        self.trusts
    }

    /// The server that a request names by this label, for as long as the request lasts.
    pub(super) fn server(
        &self,
        label: &str,
        asked: &RequestedServer,
        rights: &ToolRights,
    ) -> Result<Arc<McpServer>, NotRequested> {
        let url = |why: String| ("server_url", why);
        let Some(reach) = &self.reach else {
            return Err(url(
                "is not supported here: the operator's file names the servers, and `server_label` one of \
                            them (mcp.request_hosts lists no host)"
                    .into(),
            ));
        };
        if *rights != ToolRights::All {
            return Err(url("is not allowed: the line of this key names the servers that it may use".into()));
        }
        check_name(label).map_err(|why| ("server_label", why))?;
        let page = Destination::public(&asked.url, reach).map_err(|refused| match refused {
            Refused::Unlisted { host } => {
                let listed = &self.listed;
                url(format!("must be on a host that the operator lists (mcp.request_hosts: {listed}), got {host:?}"))
            }
            other => url(other.to_string()),
        })?;
        let reached = Reached::Request { server: asked.clone(), reach: reach.clone(), host: page.host() };
        let entry = ServerEntry {
            reached,
            seconds: limits::MCP_SECONDS,
            result_bytes: limits::MCP_RESULT_BYTES,
            keys: AdmittedAccounts::Everybody,
            read_only: Vec::new(),
            // What the request waives is its own affair where the operator trusts it.
            approval: if self.trusts { Approval::Never } else { Approval::Always },
        };
        Ok(Arc::new(McpServer::new(label.to_owned(), entry, Handle::current())))
    }
}
