//go:build !unix

package oplog

// checkSpace is not available on this system: a full disk shows as an error
// of the store.
func checkSpace(string, int64) error { return nil }
