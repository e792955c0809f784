// Package minted keeps the names that were minted for agents, and decides
// which name an agent goes by: the tuple host:agent:project, or the older flat
// host-agent that it already speaks under (RFC 005, I1 to I7).
//
// A name is minted by an entry, so that the decision is the same in every
// window and after every restart, and is never taken back. Projects are told
// apart by what a repository is, its first commit and its remote, and not by
// the name of the folder it lies in.
//
//	d, err := minted.Decide(snap, minted.Request{Host: "mac", Agent: "claude", Project: "tally", Repo: repo})
//	op, err := minted.NewOp(d.Mint)
package minted
