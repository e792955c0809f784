// Package query gathers the domains: what is folded from the log, and what a
// replica does on its own account when a fold asks for it. Each domain is a
// folder (logstream, claim, summary) with its payload, its validation, its
// fold and its reads; identity, imported and refusal are shared.
//
//	projections, reactors := query.Default()
//	page, err := query.Events(snap, filter, horizon)
//
// Nothing here writes: domains make ops, the replica appends them. Folds are
// pure functions of the set of entries (M1), so replicas that hold the same
// show the same.
package query
