// Package rawmemory keeps turns verbatim: what was asked, thought and answered,
// in which session, by whom.
//
//	op, err := rawmemory.NewOp("mac:claude:tally", rawmemory.Turn{Session: "s1", Prompt: "why?", Response: "because"})
//	page, err := rawmemory.Session(snap, rawmemory.SessionQuery{Session: "s1", Filter: identity.Filter{All: true}})
//	turns, err := rawmemory.Recent(snap, rawmemory.RecentQuery{Filter: f})
//
// Turns are a grow-only set. Whose a turn is, sourceAgentIdentities says: whole
// tokens, case-sensitive, one leading @ stripped; the writer unless others are
// named. agentIdentity filters by them on every reading.
//
// Order is by (timestamp, C2 order), so that turns of one instant keep the
// order in which they were written, and the same on every replica. A turn of a
// peer whose timestamp is no date is kept with a null timestamp, sorts as the
// oldest and is counted. Rows of one import key count once, the earliest.
//
// Reads cost the page: recent turns by identity, turns of a session and their
// counts have index rows of their own. Nothing is written on a read (M2).
package rawmemory
