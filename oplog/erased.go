package oplog

// ErasedBy gives the entries that an erase names, for indexes beside the log
// that must forget them too (T5). It is empty for every other entry.
func ErasedBy(e *Entry) []Hash {
	if e.Kind != kindErase || !e.Present() {
		return nil
	}
	x, err := parseErasure(e.Body)
	if err != nil {
		return nil
	}
	return x.Hashes
}
