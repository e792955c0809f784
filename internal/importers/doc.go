// Package importers reads the memory of other tools and turns it into rows that
// a replica imports: JSONL of the MCP reference memory server, Claude Code's
// memory files, GrayMatter's JSON export, engram's JSONL, folders of Markdown,
// and Tallystick's own export.
//
//	res, err := importers.Read(importers.Markdown, "notes")
//
// Most callers need Read. A row that cannot be read is listed with its file,
// line and reason, and the others are given; reading fails only when nothing of
// the path can be read. Every row has a key made of where it came from, never of
// when, so that importing again adds nothing. What is read is data: it is never
// interpreted, and links in it are not followed.
package importers
