//go:build !unix && !windows

package oplog

// placeID is not available on this system.
func placeID(string) string { return "" }

// locked is left to the engine on this system.
func locked(string) bool { return false }
