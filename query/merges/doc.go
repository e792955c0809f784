// Package merges shows every automatic decision that discarded something: a
// claim that lost, a copy of an imported row that does not count, a fact that
// was overwritten elsewhere. Each is told with both sides, the rule and the
// stamps, and can be undone by a new op (M3).
//
//	page, err := merges.List(snap, env, merges.Filter{})
//	undo, err := merges.NewUndo(snap, env, author, page.Merges[0].ID)
//
// Domains know what they discard; a [Source] shows it here. Undoing never
// changes what the log holds: it appends what restores the other side, and
// tells when nobody or only somebody else may do so.
package merges
