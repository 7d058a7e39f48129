//! `chimere mcp`: the tools of MCP servers that a service may run for its models: listed, accepted, imported.

use chimere::hosted::{ListedTools, McpServer, PinState, ServerTool, Toolbox, imported};
use chimere::printable::printable;
use chimere_tools::CliError;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The commands on MCP servers.
#[derive(clap::Subcommand, Debug, Clone)]
pub(crate) enum McpCommand {
    /// Show the servers of a file of tools, their tools, and which of these are accepted.
    List(ToolsArgs),
    /// Accept all tools of a server as they are now. What changes later is withheld.
    Accept {
        /// The server's name in the file.
        name: String,
        #[command(flatten)]
        tools: ToolsArgs,
    },
    /// Print the lines of a file of tools for the `mcpServers` of a JSON file, as other programs have it.
    Import {
        /// The JSON file of the other program.
        file: PathBuf,
    },
}

/// Where the servers are named.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ToolsArgs {
    /// The file of tools, as `tools.file` of the configuration names it.
    #[arg(long, value_name = "FILE", default_value = "tools.toml")]
    tools: PathBuf,
}

/// Does what was asked for.
pub(crate) fn run(command: &McpCommand) -> Result<(), CliError> {
    match command {
        McpCommand::List(args) => within(&args.tools, async |tools| list(tools).await),
        McpCommand::Accept { name, tools: args } => within(&args.tools, async |tools| accept(tools, name).await),
        McpCommand::Import { file } => {
            let text = std::fs::read_to_string(file).map_err(|e| failed(&file.display(), &e))?;
            println!("{}", imported(&text).map_err(|e| failed(&file.display(), &e))?.trim_end());
            Ok(())
        }
    }
}

fn within(file: &Path, job: impl AsyncFnOnce(&Toolbox) -> Result<(), CliError>) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| CliError::Failed(e.to_string()))?;
    let tools = Toolbox::for_operator(file).map_err(CliError::Failed)?;
    runtime.block_on(job(&tools))
}

async fn list(tools: &Toolbox) -> Result<(), CliError> {
    for server in tools.all_servers() {
        let listed = tools.list(&server).await;
        println!("{}  approval {}", server.name(), server.entry().approval.name());
        if let Some(error) = &listed.error {
            println!("  cannot be used: {}", printable(error));
        }
        listed.tools.iter().for_each(|tool| show(tool));
        gone(tools, &server, &listed).iter().for_each(|name| println!("  gone      {}", printable(name)));
    }
    Ok(())
}

/// Accepted tools that the server does not list any more.
fn gone(tools: &Toolbox, server: &McpServer, listed: &ListedTools) -> Vec<String> {
    let there: HashSet<&str> = listed.tools.iter().map(|tool| tool.name.as_str()).collect();
    let pins = tools.pins().map(|(pins, _)| pins).unwrap_or_default();
    let gone = pins.names(server.name()).filter(|name| listed.error.is_none() && !there.contains(name));
    gone.map(str::to_owned).collect()
}

async fn accept(tools: &Toolbox, name: &str) -> Result<(), CliError> {
    let server: Option<Arc<McpServer>> = tools.all_servers().into_iter().find(|server| server.name() == name);
    let server = server.ok_or_else(|| CliError::Failed(format!("the file names no server {name:?}")))?;
    let accepted = tools.accept(&server).await.map_err(|e| failed(&name, &e))?;
    for tool in accepted.iter() {
        let fit = !matches!(tool.state, PinState::Unfit(_));
        show(&ServerTool { state: if fit { PinState::Accepted } else { tool.state.clone() }, ..tool.clone() });
    }
    if let Some((_, path)) = tools.pins() {
        println!("written to {}", path.display());
    }
    Ok(())
}

/// A tool with the whole of what a model is told of it: whoever accepts it has to read that.
fn show(tool: &ServerTool) {
    let reads = if tool.reads_only() { "  reads only" } else { "" };
    println!("  {:<9} {}{reads}", tool.state.name(), printable(&tool.name));
    if let PinState::Unfit(why) = &tool.state {
        println!("            {}", printable(why));
    }
    tool.description.lines().for_each(|line| println!("            {}", printable(line)));
    println!("            {}", printable(&tool.schema.to_string()));
}

fn failed(what: &dyn std::fmt::Display, why: &dyn std::fmt::Display) -> CliError {
    CliError::Failed(format!("{what}: {why}"))
}
