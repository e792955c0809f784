package carried

import (
	"encoding/binary"
	"encoding/hex"
	"strings"

	"tallystick/hlc"
	"tallystick/oplog"
)

const (
	prefix = "carried/"
	idLen  = len(prefix) + 64 + 1 + 16
)

// OpID is the client op id of the entry that carries e. What was carried
// before keeps its first stamp.
func OpID(e *oplog.Entry) string {
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(Stamp(e)))
	return prefix + e.Hash.String() + "/" + hex.EncodeToString(at[:])
}

// Of reads which entry e carries and when that was stamped; false when e
// carries none.
func Of(e *oplog.Entry) (hash oplog.Hash, at hlc.Timestamp, ok bool) {
	if len(e.OpID) != idLen || !strings.HasPrefix(e.OpID, prefix) || e.OpID[len(prefix)+64] != '/' {
		return hash, 0, false
	}
	hash, err := oplog.ParseHash(e.OpID[len(prefix) : len(prefix)+64])
	if err != nil {
		return hash, 0, false
	}
	var b [8]byte
	if _, err := hex.Decode(b[:], []byte(e.OpID[idLen-16:])); err != nil || hex.EncodeToString(b[:]) != e.OpID[idLen-16:] {
		return hash, 0, false
	}
	return hash, hlc.Timestamp(binary.BigEndian.Uint64(b[:])), true
}

// Stamp is when what an entry says happened: the stamp of the entry it
// carries, else its own. It is never later than its own. The order of entries
// is theirs alone (C2); only times that are shown, and leases, go by this.
func Stamp(e *oplog.Entry) hlc.Timestamp {
	if _, at, ok := Of(e); ok && at < e.Time {
		return at
	}
	return e.Time
}

// Kind says how the entries of one kind are carried.
type Kind struct {
	Name string // of the kind
	// Body gives the body of the carrying entry. It is called in the log's
	// writer, possibly more than once, and must not change e.
	Body func(e *oplog.Entry, m *Map) ([]byte, error)
	// ID is what other entries and people call an entry; nil when they do not.
	ID func(e *oplog.Entry) string
}
