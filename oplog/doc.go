// Package oplog is the durable log of a replica: entries by origin on badger,
// stamped, chained and covered by signed heads, with the views folded from
// them in the same transaction.
//
// Most callers need Open, Log.Append to write, Log.View to read, and
// Log.Changed to wait. A replica also uses Log.Frontier, Log.ReadRange and
// Log.Ingest to exchange entries with others, and Log.RaiseFloor and
// Log.PutHead to exchange promises.
//
// # Guarantees
//
//   - L1 Append returns after the entry is on disk. Frontier and ReadRange
//     never speak of anything that is not.
//   - L2, L3 Each origin's entries are numbered 1, 2, 3... and chained by hash.
//   - L4 A range is taken from whoever relays it, if its chain ends at a head
//     signed by its origin's device.
//   - L5 Taking a range twice changes nothing; a range that does not verify
//     changes nothing.
//   - L6 An entry that cannot be folded is kept, relayed and listed by Aside.
//   - Content too large for an entry is a blob, put before the entry that names
//     it (PutBlob) and fetched chunk by chunk elsewhere (MissingBlobs, PutChunk).
//     It is checked against its hash before anybody gets it.
//   - M1, M2 A view is a pure function of the entries folded, changed in the
//     transaction that stores them.
//
// # Hazards
//
// There is one writer goroutine; a Projection, a Gate, an Op's Guard and Make
// run on it and must neither block nor call back into the Log. The store is
// owned by one process. On a full disk badger would die of a fault in a memory
// map, so a reserve of free space is checked before each commit (Config.MinFree).
//
// The store's format is 0 and may change until it is frozen; see keys.go and
// docs/format-disk.md.
package oplog
