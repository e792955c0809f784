// Command tally runs one replica of a Tallystick mesh and talks to it.
//
// `tally up` owns the store of this machine; every other verb, and every
// `tally mcp` that a client starts, goes through the owner's unix socket and
// starts a detached owner when there is none (A2). Data goes to stdout and
// talk to stderr; with --json every verb prints one JSON object (watch prints
// one per line), and a failure ends with one JSON error object on stderr.
//
// Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 conflict or claim lost,
// 5 wait timed out, 6 replica or peer unreachable, 7 partial, 130 interrupted.
package main
