package oplog

import (
	"crypto/sha256"
	"encoding/binary"
)

// The store's keys, format 0 (may change until the log's format is frozen).
// One byte of table, then big-endian fields, so that byte order is the order
// of reading. A lane is the local number of one branch of one origin; it never
// leaves the replica.
//
//	m <name>               meta: "format", "store", "self", "state", "recut" (ending.go)
//	o lane4                what a lane is: origin id, device key, incarnation, parent lane, fork seq
//	e lane4 seq8           an entry: state 1, arrival 8, exact bytes; state with bit 0x10: what an amend makes its stamp 8
//	a arrival8             lane4 seq8 of the entry that became visible then
//	h hash8                lane4 seq8 of the entry whose hash begins so
//	p sha256(author 0 opid)16   lane4 seq8 of the first result of a client op id
//	d lane4                latest signed head whose tip is held
//	c lane4 seq8           a signed head kept so that ranges can end there
//	x lane4 seq8           why an entry is aside: state 1, reason
//	v <view> 0 gen1 <key>  rows of a view, of one generation
//	w <view>               version 4, digest 16, row count 8, generation 1 of a view
//	z hash32               an entry that is to be erased: Ref of the erase, state 1
//	q class1 lane4 seq8   an entry that is owed, or damaged: state 1, its hash 32, since when in unix ms 8
//	y origin16 seq8 hash32 an amended entry and those before: lowest stamp of its amends 8, state 1
//	b hash32               a blob: state 1, size 8, number of its chunks' run 8, chunks here 4
//	k run8 index4          a chunk of a blob
//	n hash32 Ref           nothing: an entry that names a blob
//	u run8                 chunks that no blob has: state 1, how many 4
const (
	tabMeta  = 'm'
	tabLane  = 'o'
	tabEntry = 'e'
	tabArr   = 'a'
	tabHash  = 'h'
	tabOp    = 'p'
	tabHead  = 'd'
	tabCheck = 'c'
	tabAside = 'x'
	tabView  = 'v'
	tabInfo  = 'w'
	tabErase = 'z'
	tabAmend = 'y'
	tabOwed  = 'q'

	tabBlob   = 'b'
	tabChunk  = 'k'
	tabName   = 'n'
	tabUpload = 'u'
)

// States of a stored entry.
const (
	stateVisible     = 1 // folded, has an arrival number
	stateHeld        = 2 // waits for its time or for its device's admission
	stateQuarantined = 3 // cannot be folded by this version
	stateOwed        = 4 // its payload is not here and not erased
	stateBeyond      = 5 // beyond a cut of its device; keeps the arrival number it had
)

const (
	hashKeyLen     = 8
	entryPrefixLen = 9
)

func metaKey(name string) []byte { return append([]byte{tabMeta}, name...) }

func laneKey(tab byte, lane uint32) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, 5), tab), lane)
}

func seqKey(tab byte, lane uint32, seq uint64) []byte {
	b := append(make([]byte, 0, 13), tab)
	b = binary.BigEndian.AppendUint32(b, lane)
	return binary.BigEndian.AppendUint64(b, seq)
}

func arrKey(n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 9), tabArr), n)
}

func hashKey(h []byte) []byte {
	return append(append(make([]byte, 0, 1+hashKeyLen), tabHash), h[:hashKeyLen]...)
}

func opKey(author, opID string) []byte {
	d := sha256.Sum256([]byte(author + "\x00" + opID))
	return append([]byte{tabOp}, d[:16]...)
}

// viewPrefix is what the rows of one generation of a view begin with. A view
// that is rebuilt while it is read grows in the next generation.
func viewPrefix(name string, gen byte) []byte {
	return append(append([]byte{tabView}, name...), 0, gen)
}

// viewTable is what the rows of all generations of a view begin with.
func viewTable(name string) []byte { return append(append([]byte{tabView}, name...), 0) }

func eraseKey(h *Hash) []byte { return append([]byte{tabErase}, h[:]...) }

const amendKeyLen = 1 + 16 + 8 + 32

func amendKey(o OriginID, t Tip) []byte {
	b := append(append(make([]byte, 0, amendKeyLen), tabAmend), o[:]...)
	return append(binary.BigEndian.AppendUint64(b, t.Seq), t.Hash[:]...)
}

const owedKeyLen = 1 + 1 + 4 + 8

func owedKey(class byte, p place) []byte {
	b := append(make([]byte, 0, owedKeyLen), tabOwed, class)
	return append(b, p.bytes()...)
}

func blobKey(h *Hash) []byte { return append([]byte{tabBlob}, h[:]...) }

func chunkKey(run uint64, index uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64([]byte{tabChunk}, run), index)
}

func nameKey(h *Hash, ref Ref) []byte {
	return append(append(append(make([]byte, 0, 1+len(h)+RefSize), tabName), h[:]...), ref[:]...)
}

func uploadKey(run uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{tabUpload}, run)
}

func infoKey(name string) []byte { return append([]byte{tabInfo}, name...) }

// place is where an entry lies: lane and seq.
type place struct {
	lane uint32
	seq  uint64
}

func (p place) bytes() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(make([]byte, 0, 12), p.lane), p.seq)
}

func placeOf(b []byte) (place, error) {
	if len(b) != 12 {
		return place{}, ErrDamaged
	}
	return place{binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:])}, nil
}
