//go:build !unix

package oplog

// placeID is not available on this system.
func placeID(string) string { return "" }
