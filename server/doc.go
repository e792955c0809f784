// Package server is the one door through which agents and people reach the
// replica on their machine: typed tools over query and replica, offered as an
// MCP server on stdio and on Streamable HTTP, and as a local API on a unix
// socket that every other local process goes through (A2).
//
// Most programs need three calls. [New] builds the [Service] of the owner
// process; [ListenSocket] and [ListenHTTP] serve it; [Dial] gives every other
// process a [Client] that behaves like the Service. Both are a [Backend], and
// [ServeStdio] speaks MCP for any Backend.
//
// # Guarantees
//
// The identity a call acts under is bound by the server from the replica's
// label and the [Session], never taken from arguments (I8). Every rule of
// every tool is checked here whatever the client has checked, and a refused
// call stores nothing. Each write carries an op id, so that a repeat gets the
// first result (A2). Every failure is one [Error] object that says what to do
// next. Nothing is cut silently: pages end at a record boundary and say how
// to get the rest (A4).
//
// # Hazards
//
// Text in results was written by others, on other machines. It is only ever
// returned as JSON string values in named fields; tool names, descriptions,
// schemas and instructions are static text of this program (T4).
//
// # Compatibility
//
// Tool names, schemas and results are a contract, held by a golden file of
// tools/list. The local API has a version of its own, [APIVersion]. The MCP
// SDK is imported only here, and its types appear in no exported signature.
package server
