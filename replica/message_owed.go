package replica

import (
	"encoding/binary"

	"tallystick/oplog"
)

// MsgEntryWant asks for entries that the sender holds without their payload, by
// hash, in the order in which it wants them. Sub rises with each of a session;
// a later one takes the place of an earlier.
type MsgEntryWant struct {
	Sub    uint64
	Hashes []oplog.Hash
}

// MsgEntry carries one entry of a want, whole.
type MsgEntry struct {
	Sub   uint64
	Hash  oplog.Hash
	Entry []byte // exact bytes, payload included
}

// MsgEntryState says of entries that were wanted that they are not here with
// their payload, or, later, that they are.
type MsgEntryState struct {
	Here   bool
	Hashes []oplog.Hash
}

func (*MsgEntryWant) kind() messageKind  { return kindEntryWant }
func (*MsgEntry) kind() messageKind      { return kindEntry }
func (*MsgEntryState) kind() messageKind { return kindEntryState }

func (m *MsgEntryWant) appendBody(b []byte) []byte {
	return appendHashes(binary.BigEndian.AppendUint64(b, m.Sub), m.Hashes)
}

func (m *MsgEntry) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, m.Sub)
	return append(append(b, m.Hash[:]...), m.Entry...)
}

func (m *MsgEntryState) appendBody(b []byte) []byte {
	return appendHashes(append(b, boolByte(m.Here)), m.Hashes)
}

func appendHashes(b []byte, hashes []oplog.Hash) []byte {
	hashes = hashes[:min(len(hashes), maxEntryHashes)]
	b = append(b, byte(len(hashes)))
	for i := range hashes {
		b = append(b, hashes[i][:]...)
	}
	return b
}

func (d *bodyReader) entryWant() *MsgEntryWant {
	return &MsgEntryWant{Sub: d.uint64(), Hashes: d.hashes()}
}

func (d *bodyReader) entry() *MsgEntry {
	m := &MsgEntry{Sub: d.uint64(), Hash: d.hash()}
	switch {
	case d.err != nil:
	case len(d.b) == 0 || len(d.b) > oplog.MaxEntry:
		d.fail("an entry of %d bytes, limit %d", len(d.b), oplog.MaxEntry)
	default:
		m.Entry, d.b = d.b, nil
	}
	return m
}

func (d *bodyReader) entryState() *MsgEntryState {
	m := &MsgEntryState{}
	switch v := d.byte(); v {
	case 0, 1:
		m.Here = v == 1
	default:
		d.fail("here is neither yes nor no")
	}
	m.Hashes = d.hashes()
	return m
}

// hashes reads the hashes of entries.
func (d *bodyReader) hashes() (list []oplog.Hash) {
	n := int(d.byte())
	if d.err == nil && (n == 0 || n > maxEntryHashes) {
		d.fail("%d hashes, limit %d", n, maxEntryHashes)
	}
	if d.err == nil && len(d.b) < n*len(oplog.Hash{}) {
		d.fail("body is too short")
	}
	for range n {
		if d.err != nil {
			return nil
		}
		list = append(list, d.hash())
	}
	return list
}
