//! Bounds of tools: of the servers that have them, their calls and approvals.

/// Generations of one turn in which the server runs calls itself.
pub const TURN_ROUNDS_MAX: u32 = 8;
/// Calls that the server answers in one turn.
pub const TURN_CALLS_MAX: u32 = 16;
/// Searches of files in one turn whose queries the model writes.
pub const FILE_SEARCHES_MAX: u32 = 4;
/// Bytes of the file of the operator's tools, and of the file of what he accepted.
pub const TOOLS_FILE_BYTES_MAX: u64 = 1 << 20;
/// MCP servers that the operator names.
pub const MCP_SERVERS_MAX: usize = 32;
/// Characters of the name that an operator gives an MCP server.
pub const MCP_SERVER_NAME_CHARS_MAX: usize = 32;
/// Tools of one MCP server; further ones are withheld.
pub const MCP_TOOLS_MAX: usize = 128;
/// Bytes of one tool's description and schema; a tool with more is withheld.
pub const MCP_TOOL_BYTES_MAX: usize = 64 << 10;
/// Bytes of the address of an MCP server that a request names.
pub const MCP_URL_BYTES_MAX: usize = 2048;
/// Bytes of what such a server is told of its caller.
pub const MCP_AUTHORIZATION_BYTES_MAX: usize = 8192;
/// Bytes of one message of an MCP server; a longer one ends its connection, or is dropped.
pub const MCP_MESSAGE_BYTES_MAX: usize = 4 << 20;
/// How often the stream of an answer that an MCP server cut off is asked for again, and how often a call that it does
/// not finish is.
pub const MCP_RESUMES_MAX: usize = 16;
/// Seconds that connecting to an MCP server, listing its tools and each call may take, where the file says nothing
/// else.
pub const MCP_SECONDS: u64 = 30;
/// The most that the file may say.
pub const MCP_SECONDS_MAX: u64 = 600;
/// Bytes of a result that the model reads, where the file says nothing else; the rest is cut off.
pub const MCP_RESULT_BYTES: usize = 16 << 10;
/// The most that the file may say.
pub const MCP_RESULT_BYTES_MAX: usize = 256 << 10;
/// Seconds after which a server's tools are asked for again, by the next request that wants some.
pub const MCP_LIST_SECONDS: u64 = 60;
/// Seconds that a server which cannot be reached is left alone, at most: 1, 2, 4 and so on up to this.
pub const MCP_RETRY_SECONDS_MAX: u64 = 60;
/// Calls that only read and run at once in one turn.
pub const MCP_READS_AT_ONCE: usize = 4;
/// Calls of one key that wait for its approval, or whose results are kept for the conversation they belong to; older
/// ones go first.
pub const APPROVALS_PER_KEY: usize = 64;
/// Such calls of all keys together.
pub const APPROVALS_MAX: usize = 1024;
/// Seconds that such a call waits, and its result is kept.
pub const APPROVAL_SECONDS: u64 = 3600;
/// Bytes of a file's text that one call of `read_passage` reads.
pub const MCP_READ_BYTES_MAX: usize = 64 << 10;
/// Seconds that the call of a tool over MCP may take.
pub const MCP_CALL_SECONDS: u64 = 120;
