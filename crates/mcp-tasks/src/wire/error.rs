//! The error codes of JSON-RPC and MCP that we answer with.

/// JSON-RPC: the bytes are not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// JSON-RPC: the JSON is not a request.
pub const INVALID_REQUEST: i64 = -32600;
/// JSON-RPC: no such method, or (2025-11-25 tools) not in this way.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC: the parameters are wrong; also an unknown task or cursor.
pub const INVALID_PARAMS: i64 = -32602;
/// JSON-RPC: our fault.
pub const INTERNAL_ERROR: i64 = -32603;
/// The code of a cancelled request, as LSP has it: `tasks/result` of a cancelled task in 2025-11-25.
pub const REQUEST_CANCELLED: i64 = -32800;
/// 2026-07-28: a header and the body differ.
pub const HEADER_MISMATCH: i64 = -32020;
/// 2026-07-28: the client did not declare a capability that the request needs.
pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
/// 2026-07-28: nobody here speaks the revision.
pub const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;
